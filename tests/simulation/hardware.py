"""The clocks of one machine, and whether anything on it runs at all."""

from collections.abc import Callable

from orchestrator.core.nouns import Moment
from tests.simulation.world import EPOCH_UTC, World

WAKE_S = 0.02
"""Within what time everything on a thawed machine has had its turn."""


class Hardware:
    """One machine without its programs.

    Attributes:
        suspended: Nothing on it runs; the boot clock goes on.
    """

    def __init__(self, world: World) -> None:
        """Give it clocks of its own."""
        chance = world.random
        self.world = world
        self.suspended = False
        self._rate = world.clock_rate()
        self._boot_base = chance.uniform(10, 1e5)
        self._utc_offset = EPOCH_UTC + chance.uniform(-0.2, 0.2)
        self._set_s = 0.0
        self._slept_s = 0.0
        self._slept_since = 0.0
        self._frozen: list[Callable[[], None]] = []

    def boot(self) -> float:
        """Read CLOCK_BOOTTIME, which goes on while the machine is suspended."""
        return self._boot_base + self.world.at * self._rate

    def monotonic(self) -> float:
        """Read CLOCK_MONOTONIC, which stands still while the machine is suspended; only a mutant does."""
        slept_s = self._slept_s + (self.world.at - self._slept_since if self.suspended else 0.0)
        return self._boot_base + (self.world.at - slept_s) * self._rate

    def now(self) -> Moment:
        """Read both clocks."""
        return Moment(self.boot(), self.world.at + self._utc_offset + self._set_s)

    def set_wall_clock(self, ahead_s: float) -> None:
        """Set the wall clock so far ahead of the true time."""
        self._set_s = ahead_s

    def after_boot(self, at_boot: float) -> float:
        """Return how much true time is left until a boot instant."""
        return max(0.0, (at_boot - self.boot()) / self._rate)

    def true_s(self, own_s: float) -> float:
        """Return how much true time passes in a while of this machine's clock."""
        return own_s / self._rate

    def suspend(self) -> None:
        """Freeze it."""
        self.suspended = True
        self._slept_since = self.world.at

    def resume(self) -> None:
        """Thaw it: what was due meanwhile is done now, in any order."""
        self._slept_s += self.world.at - self._slept_since
        self.suspended = False
        frozen, self._frozen = self._frozen, []
        for call in frozen:
            self.world.later(self.world.random.uniform(0, WAKE_S), lambda call=call: self.act(call))  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def act(self, call: Callable[[], None]) -> None:
        """Let a program on it do something, now or when it runs again."""
        if self.suspended:
            self._frozen.append(call)
        else:
            call()
