"""True time, the server and the way to it: what all machines of a story share.

Nothing in here decides anything about leases. No node knows true time; only the world and the checker do.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.core.answers import StoreAnswer
from orchestrator.core.messages import Event, Nudged
from orchestrator.core.nouns import Intent, JobName, Trigger
from orchestrator.core.requests import AcquireLease, GiveOrder, ReleaseLease, StoreRequest
from orchestrator.core.timing import LeaseTiming
from tests.simulation.history import History
from tests.simulation.store_model import StoreModel

EPOCH_UTC = 1_800_000_000.0
"""When every story begins, in seconds since 1970."""

RATE_SHARE = 0.48
"""How much of the permitted clock rate error each clock has at most, so that any two stay inside it."""

TARGETED = 4
"""How much rather a treacherous network holds up a batch that takes or gives a lease."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How unkind the network and the machines are, all within what the design permits.

    Attributes:
        lost: Share of batches that never arrive.
        late: Share of ways (there, or back) that take up to four seconds.
        slow: Share of ways that take up to the request timeout: the answer comes at the last moment.
        held: Share of batches that arrive long after the client gave up: at a moment when it hurts.
        strain: How much of the margin a late scheduler, and of the kill time a kill, really takes.
    """

    lost: float = 0.01
    late: float = 0.02
    slow: float = 0.0
    held: float = 0.0
    strain: float = 0.2


ORDINARY = Weather()
CALM = Weather(lost=0.0, late=0.0)


class World:
    """True time and what is due in it.

    Attributes:
        at: True time since the beginning, in seconds.
        timing: Of every lease in the story.
        server_offset: What the server's wall clock shows at 0; a step changes it.
    """

    def __init__(self, seed: int, timing: LeaseTiming, weather: Weather, history: History) -> None:
        """Build a server and a network from one seed."""
        self.random = random.Random(seed)  # noqa: S311 - a story must replay, not be secret
        self.timing = timing
        self.weather = weather
        self.history = history
        self.store = StoreModel()
        self.at = 0.0
        self.server_offset = EPOCH_UTC
        self.server_away = False
        self.subscribers: list[Callable[[Event], None]] = []
        self.transcript: list[str] = []
        self._server_rate = self.clock_rate()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._paused: list[Callable[[], None]] = []
        self._held: list[Callable[[], None]] = []

    # --- time -------------------------------------------------------------------------------------

    def clock_rate(self) -> float:
        """Return the rate of one more clock."""
        share = self.random.choice((-RATE_SHARE, RATE_SHARE, self.random.uniform(-RATE_SHARE, RATE_SHARE)))
        return 1 + share * self.timing.clock_rate_error

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Do something after a while of true time."""
        self._serial += 1
        heapq.heappush(self._queue, (self.at + delay_s, self._serial, call))

    def run_until(self, end: float) -> None:
        """Let true time pass."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.at, _, call = heapq.heappop(queue)
            call()
        self.at = end

    def note(self, who: str, what: str) -> None:
        """Keep a line of the transcript that a failing seed is explained by."""
        self.transcript.append(f"{self.at:10.3f} {who:8} {what}")

    def strained(self, limit_s: float) -> float:
        """Return how long something takes that may take `limit_s`."""
        strain = self.weather.strain
        return self.random.uniform(strain / 2, 1) * strain * limit_s

    # --- the server -------------------------------------------------------------------------------

    def server_ms(self) -> int:
        """Return what the server's wall clock shows."""
        return int((self.at * self._server_rate + self.server_offset) * 1000)

    def execute(self, requests: list[StoreRequest]) -> list[StoreAnswer]:
        """Carry a batch out at the server, before the checker's eyes."""
        answers: list[StoreAnswer] = []
        for request in requests:
            answer = self.store.execute(request, self.server_ms())
            self.history.witness(request, answer, self.at)
            answers.append(answer)
            if isinstance(request, GiveOrder):
                self.nudge(None)
            if isinstance(request, ReleaseLease) and getattr(answer, "was_ours", False):
                self.nudge(request.job)
        return answers

    def nudge(self, job: JobName | None) -> None:
        """Tell everybody who is reached that something changed."""
        for hear in self.subscribers:
            self.later(self.random.uniform(0.0005, 0.003), lambda hear=hear: hear(Nudged(job)))  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def order(self, jobs: tuple[JobName, ...], want: str) -> None:
        """Give a standing order as a client does."""
        self.store.order(jobs, Intent(want, "sim", "", 0), self.server_ms())
        self.nudge(None)

    def trigger(self, job: JobName) -> None:
        """Order one run of a cron as a client does."""
        self.store.trigger(Trigger(job, 0, None, "sim", ""), self.server_ms())
        self.nudge(None)

    def pause_server(self) -> None:
        """Let the server answer nobody for a while."""
        self.server_away = True

    def server_back(self) -> None:
        """End a pause: what was sent meanwhile is carried out now, however late."""
        self.server_away = False
        calls, self._paused = self._paused, []
        for call in calls:
            call()

    # --- the way to it ----------------------------------------------------------------------------

    def deliver(self, requests: list[StoreRequest], call: Callable[[], None]) -> None:
        """Bring a batch to the server: soon, late, or never; the server does it when it is there."""
        fate = self.random.random()
        if fate < self.weather.lost:
            return
        targeted = self.weather.held and any(isinstance(ask, AcquireLease | ReleaseLease) for ask in requests)
        if fate < self.weather.lost + self.weather.held * (TARGETED if targeted else 1):
            self._held.append(call)
        else:
            self.later(self.latency_s(), lambda: self._at_server(call))

    def latency_s(self) -> float:
        """Return how long one way takes."""
        chance, weather = self.random, self.weather
        fate = chance.random()
        if fate < weather.late:
            return chance.uniform(0.1, 4.0)
        if fate < weather.late + weather.slow:
            return chance.uniform(0.5, 1.0) * self.timing.request_timeout_s
        return chance.uniform(0.0003, 0.002)

    def let_go(self, share: float, within_s: float) -> None:
        """Let batches arrive that were held up."""
        held, self._held = self._held, []
        for call in held:
            if self.random.random() < share:
                self.later(self.random.uniform(0, within_s), lambda call=call: self._at_server(call))  # type: ignore[misc]  # as above
            else:
                self._held.append(call)

    def _at_server(self, call: Callable[[], None]) -> None:
        if self.server_away:
            self._paused.append(call)
        else:
            call()
