"""What main inherits when a launcher or an adopted leash dies, and the last look at an unproven run.

It knows main's children; it must never know why they are there. It reaps by pid only: `waitpid(-1)` would
take the exit statuses of asyncio's children away.

A stray is a child of main in a session that is not main's, and not one that was there before or that main
spared, each by pid and start time. (A leash and its job have sessions of their own, and a session cannot be
joined later: what is in main's session was started by main itself.)
"""

import os

import psutil

from orchestrator.runs import linux, tree
from orchestrator.runs.leftovers import Identity, look_at


class Strays:
    """Main's unknown children."""

    def __init__(self) -> None:
        """Spare the children that are there already."""
        self._session = os.getsid(0)
        self._spared: set[Identity] = set()
        for pid in linux.own_children():
            self.spare(pid)

    def spare(self, pid: int) -> None:
        """Never touch this child (a server that main started in a session of its own)."""
        if child := look_at(pid):
            self._spared.add(child.identity)

    def kill(self, known: set[int]) -> tuple[list[int], list[int]]:
        """SIGKILL and reap every stray, with all below it.

        Returns the strays that were there, and the pids that the kernel did not let us kill. No stray at all
        proves that nothing of a dead leash is left: an orphan becomes our child in the very moment its parent
        dies. Main may have threads that reap meanwhile, so an empty answer is read twice.
        """
        untouched = known | self._still_spared() | self._own_session()
        strays, refused = tree.kill_strays(untouched)
        if not strays:
            strays, refused = tree.kill_strays(untouched | self._own_session())
        for pid in strays:
            _reap(pid)
        return strays, refused

    def _still_spared(self) -> set[int]:
        # A later process with the pid of one that was spared is a stray like any other.
        return {spared.pid for spared in self._spared if (child := look_at(spared.pid)) and child.identity == spared}

    def _own_session(self) -> set[int]:
        return {pid for pid in linux.own_children() if _session(pid) == self._session}


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def identify(pid: int) -> psutil.Process | None:
    """Return the process as (pid, create time), so that a later one with the same pid is told apart.

    None where it cannot be seen: it is gone, or this process has too many open files to look (what it said counts all
    the same).
    """
    try:
        return psutil.Process(pid)
    except (psutil.Error, OSError):
        return None


def finish_off(seen: psutil.Process | None) -> bool:
    """SIGKILL a process seen earlier, and what is below it, if it still lives; tell whether it does."""
    if seen is None:
        return False
    try:
        if not seen.is_running() or seen.status() == psutil.STATUS_ZOMBIE:
            return False
        for process in (*seen.children(recursive=True), seen):
            process.kill()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return True
