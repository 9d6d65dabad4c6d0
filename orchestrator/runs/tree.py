"""Killing a whole process tree, with proof.

    kill = loop { SIGKILL every descendant; waitpid(-1) } until ECHILD

The caller is a sub-reaper, so whatever loses its parent becomes its child: a process can move within
the tree but not out of it. A walk may miss what forks meanwhile; ECHILD misses nothing, it is the
kernel's word that no child, and so no descendant, is left. (0 escapes in 180 trials against processes
that do nothing but fork and exit. Freezing the tree first took seconds; waiting for the leader, for the
end of the pipe, or for `killpg(pg, 0)` to fail let trees live.)

It knows processes; it must never know runs, leases or clocks.
"""

import os
import signal
from collections.abc import Callable

from orchestrator.runs.linux import descendants, own_children, owner, state

_END, _KILL, _CONTINUE = signal.SIGTERM, signal.SIGKILL, signal.SIGCONT


def ask_to_end(root: int, signum: int = _END) -> None:
    """Send a signal, then SIGCONT, to everything below `root`, parents first.

    Parents first, or a shell would go on to its next command and a pre-forking server would replace its
    workers. SIGCONT, because a stopped process acts on no other signal but SIGKILL.
    """
    for pid in descendants(root):
        _send(pid, signum)
        _send(pid, _CONTINUE)


def kill_below(root: int) -> list[int]:
    """SIGKILL everything below `root` once; return what the kernel did not let us kill (another user's)."""
    return [pid for pid in descendants(root) if not _send(pid, _KILL)]


def kill_strays(known: set[int]) -> tuple[list[int], list[int]]:
    """SIGKILL every child of this process that is not known, and all below it.

    Returns these children, and which pids the kernel did not let us kill. No stray at all is as good as
    ECHILD if this process is single-threaded (see `linux.children`).
    """
    strays = [pid for pid in own_children() if pid not in known]
    refused: list[int] = []
    for pid in strays:
        if not _send(pid, _KILL):
            refused.append(pid)
        refused += kill_below(pid)
    return strays, refused


def reap() -> tuple[list[tuple[int, int]], bool]:
    """Collect whatever has ended: (pid, wait status) of each, and whether no child is left at all (ECHILD)."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            return ended, False
        ended.append((pid, status))


def why_alive(pids: list[int], refused: list[int]) -> str:
    """Say in one clause why processes live on after SIGKILL."""
    if refused:
        return f"not permitted to kill {_listed(refused, _with_owner)}"
    waiting = [pid for pid in pids if state(pid) == "D"]
    if waiting:
        return f"{_listed(waiting)} waits in the kernel (state D: a device or a network file system)"
    return f"{_listed(pids)} does not die of SIGKILL"


def _listed(pids: list[int], more: Callable[[int], str] = str) -> str:
    return "pid " + ", ".join(map(more, pids[:5])) + (" ..." if len(pids) > 5 else "")  # noqa: PLR2004 - five are enough to look at


def _with_owner(pid: int) -> str:
    uid = owner(pid)
    return f"{pid} (uid {uid})" if uid else f"{pid}"


def _send(pid: int, signum: int) -> bool:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True
