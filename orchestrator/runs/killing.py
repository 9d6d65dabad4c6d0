"""The kill loop of one run: SIGKILL to all below this process, again and again, until the kernel says ECHILD.

It knows the processes below this one; it must never know why a run ends.
"""

import os

from orchestrator.runs import cgroups, tree
from orchestrator.runs.linux import NEVER, descendants

STUCK_AFTER_S = 10.0
"""A tree that lives so long after its first SIGKILL is reported; a busy machine needs far less (40 ms at most)."""

_PAUSES_MS = ((0.05, 0), (0.5, 2), (2.0, 20), (STUCK_AFTER_S, 100), (NEVER, 1000))
"""How long to wait between two kill rounds, by the age of the first: at once against whatever forks and exits,
a second later for what waits in the kernel. The end of a child cuts the pause short."""


class Killing:
    """One kill loop, from its first round on."""

    __slots__ = ("_refused", "_said_stuck", "_since")

    def __init__(self, now: float) -> None:
        """Begin; nothing is killed yet."""
        self._since = now
        self._refused: list[int] = []
        self._said_stuck: list[int] = []

    def strike(self, cgroup: str | None) -> None:
        """Go one round; `cgroup` is the run's own, if it has one."""
        if cgroup:
            cgroups.kill(cgroup)
        self._refused = tree.kill_below(os.getpid())

    def stuck(self, now: float) -> tuple[list[int], str] | None:
        """Return what still lives, and why, where that is new and the loop is old."""
        if now - self._since < STUCK_AFTER_S:
            return None
        alive = descendants(os.getpid())
        if alive == self._said_stuck:
            return None
        self._said_stuck = alive
        return alive[:100], tree.why_alive(alive, self._refused)

    def pause_ms(self, now: float) -> int:
        """Return how long to wait until the next round."""
        age_s = now - self._since
        return next(pause_ms for until_s, pause_ms in _PAUSES_MS if age_s < until_s)
