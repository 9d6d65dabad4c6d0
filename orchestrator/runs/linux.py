"""What Linux offers beyond Python's `os`: prctl, timers on the boot clock, who is whose child.

It knows system calls and /proc; it must never know runs, jobs or leases. Nothing here decides.
Another system gets a file with the same names beside this one.
"""

import ctypes
import os
import time

NEVER = float("inf")

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_TIMER_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK and TFD_CLOEXEC are these, by definition
_TFD_TIMER_ABSTIME = 1

# Python 3.13 has os.timerfd_create, but prctl needs ctypes in any version: one way for all.
_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def boot() -> float:
    """Read CLOCK_BOOTTIME, in seconds: the only clock below main. It goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def die_with_parent(signum: int) -> None:
    """Get `signum` when the parent *thread* ends; survives exec, cleared by setuid and in forked children."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0))


def become_subreaper(*, yes: bool = True) -> None:
    """Adopt every orphan below this process (or no longer)."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0))


def is_subreaper() -> bool:
    """Tell whether this process adopts the orphans below it."""
    flag = ctypes.c_int()
    _checked(_libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(flag), 0, 0, 0))
    return bool(flag.value)


def name_process(name: str) -> None:
    """Show `name` (at most 15 bytes) in `ps -o comm` and `top`."""
    _checked(_libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0))


class BootTimer:
    """A timer on CLOCK_BOOTTIME that makes a descriptor readable (poll's own timeout stands still in suspend)."""

    __slots__ = ("at", "fd")

    def __init__(self, fd: int = -1) -> None:
        """Create it, disarmed; or take over another process's, by a descriptor of it."""
        self.at = NEVER if fd < 0 else -NEVER  # nobody knows for when the other process has armed it
        self.fd = _checked(_libc.timerfd_create(time.CLOCK_BOOTTIME, _TIMER_FLAGS)) if fd < 0 else fd

    def arm(self, at: float) -> None:
        """Become readable at the instant `at`, at once if it is past, never for `NEVER`."""
        if at == self.at:
            return  # spares the system call in every turn of a busy loop
        self.at = at
        nanoseconds = 0 if at == NEVER else max(1, int(max(at, 0.0) * 1e9))  # zero disarms
        value = _Timespec(*divmod(nanoseconds, 1_000_000_000))
        _checked(_libc.timerfd_settime(self.fd, _TFD_TIMER_ABSTIME, ctypes.byref(_Timer(value=value)), None))

    def clear(self) -> None:
        """Make it unreadable again after it fired; it is disarmed then."""
        self.at = NEVER
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)


HAS_CHILDREN_FILE = os.path.exists("/proc/thread-self/children")  # noqa: PTH110 - pathlib is too heavy for a leash
"""Kernels without CONFIG_PROC_CHILDREN need a pass over all of /proc instead."""


def read_file(path: str) -> bytes:
    """Read a small file of /proc or /sys; empty if it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    parts = []
    try:
        while part := os.read(descriptor, 65536):
            parts.append(part)
    except OSError:
        return b""  # the process ended between open and read (ESRCH)
    finally:
        os.close(descriptor)
    return b"".join(parts)


def children(pid: int) -> list[int]:
    """Return the children of a process, zombies included.

    Read by a single-threaded process about itself, while it does not reap, the answer is exact: only its
    own wait removes an entry, and orphans are appended in the same critical section in which their parent
    dies. Read about others it may miss what moves meanwhile; callers repeat until the kernel says ECHILD.
    """
    if not HAS_CHILDREN_FILE:
        return _children_by_parent().get(pid, [])
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - pathlib is too heavy for a leash
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        found += map(int, read_file(f"/proc/{pid}/task/{thread}/children").split())
    return found


def own_children() -> list[int]:
    """Return the children of this process; exact if it is single-threaded, see `children`."""
    if HAS_CHILDREN_FILE:
        return children(os.getpid())
    # One pass over /proc is no snapshot: a process that changes its pid all the time can slip through it.
    return sorted({pid for _ in range(5) for pid in _children_by_parent().get(os.getpid(), [])})


def descendants(pid: int) -> list[int]:
    """Return everything below a process, parents before their children, as far as it can be seen at once."""
    if HAS_CHILDREN_FILE:
        found = children(pid)
        for each in found:  # grows while it is walked: breadth first
            found += children(each)
        return found
    by_parent = _children_by_parent()
    found = by_parent.get(pid, [])[:]
    for each in found:
        found += by_parent.get(each, [])
    return found


def _children_by_parent() -> dict[int, list[int]]:
    """Make one pass over /proc; not a snapshot, so emptiness must be seen several times to be believed."""
    by_parent: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is too heavy for a leash
        if name.isdigit() and (fields := stat_fields(int(name))):
            by_parent.setdefault(int(fields[1]), []).append(int(name))
    return by_parent


def stat_fields(pid: int) -> list[bytes]:
    """Return /proc/PID/stat from the state on: state, ppid, pgrp, session ...; empty if there is no such process.

    The name before it may contain blanks and brackets; only the last bracket counts.
    """
    return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def state(pid: int) -> str:
    """Return the state letter of a process (R S D T t Z), "" if there is no such process."""
    fields = stat_fields(pid)
    return fields[0].decode() if fields else ""


def owner(pid: int) -> str:
    """Return the effective uid of a process, "" if there is no such process (the owner of /proc/PID may be root)."""
    _, _, after = read_file(f"/proc/{pid}/status").partition(b"\nUid:")
    return after.split()[1].decode() if after else ""
