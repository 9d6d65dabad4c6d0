"""What /proc tells of processes: who is there, what they cost.

It reads and never signals. Reading costs processor time that the measured ones then lack, so whatever is
called in a loop here looks at little, or seldom.
"""

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from orchestrator.clock import boot

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_LOOK_AGAIN_S = 0.25
_POLL_S = 0.002


def bearing(tag: str, settled: Iterable[int] = ()) -> set[int]:
    """Return the processes with `tag` in their command line; `settled` ones are known to have it."""
    found = set(settled)
    for name in os.listdir(_PROC):  # noqa: PTH208 - a Path for each of thousands is most of the cost
        if name.isdigit() and int(name) not in found and tag.encode() in _read(f"/proc/{name}/cmdline"):
            found.add(int(name))
    return found


def wait_until_running(tag: str, count: int, *, before: int, check: Callable[[], None], limit_s: float) -> set[int]:
    """Return the `count` processes that bear `tag`, as soon as they do.

    Args:
        tag: Stands in the command line of each and of nobody else.
        count: How many are awaited.
        before: What `population` said before the first of them was started: as long as there are not `count` more
            processes than that, a pass over all of them is spared, but for one each quarter of a second.
        check: Called now and then; whatever it raises ends the waiting.
        limit_s: How long at most.

    Raises:
        TimeoutError: They are not all there by then; says how many are.
    """
    found: set[int] = set()
    end = boot() + limit_s
    look_at = 0.0
    while boot() < end:
        if population() >= before + count or boot() >= look_at:
            check()
            began = boot()
            found = bearing(tag, found)
            if len(found) >= count:
                return found
            # A manager with processes of its own reaches the count early: at most a tenth is spent on looking.
            time.sleep(10 * (boot() - began) if population() >= before + count else _POLL_S)
            look_at = boot() + _LOOK_AGAIN_S
        time.sleep(_POLL_S)
    raise TimeoutError(f"{len(found)} of {count} services run after {limit_s:g} s")


def wait_until_gone(pidfds: Iterable[int], limit_s: float) -> None:
    """Return when all processes behind the descriptors have ended.

    Raises:
        TimeoutError: Some live on.
    """
    left = select.poll()
    count = 0
    for fd in pidfds:
        left.register(fd, select.POLLIN)
        count += 1
    end = boot() + limit_s
    while count:
        ended = left.poll(1000)
        for fd, _ in ended:
            left.unregister(fd)
        count -= len(ended)
        if boot() > end:
            raise TimeoutError(f"{count} services live on {limit_s:g} s after they were told to go")


def population() -> int:
    """Return how many processes there are on this machine, give or take a constant: one system call."""
    return _PROC.stat().st_nlink


def below(root: int) -> set[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(_PROC):  # noqa: PTH208 - as above
        if name.isdigit() and (fields := _stat(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return set(found)


def cpu_s(pids: Iterable[int]) -> float:
    """Return the seconds on a processor of these processes, their threads, and their children that were reaped."""
    return sum(_cpu_s(pid) for pid in pids)


def own_cpu_s(pids: Iterable[int]) -> float:
    """Return the same without children."""
    return sum(sum(_threads_s(pid)) for pid in pids)


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return sum(_threads_s(pid)) + sum(int(ticks) for ticks in fields[13:15]) / _TICKS_A_SECOND


def _threads_s(pid: int) -> Iterator[float]:
    # In nanoseconds, where utime and stime count in hundredths of a second: of a leash that is too coarse.
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as above
    except OSError:
        return  # it ended meanwhile
    for thread in threads:
        spent = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
        yield int(spent[0]) / 1e9 if spent else 0.0


def pss_bytes(pids: Iterable[int]) -> int:
    """Return the memory of these processes; a page that several share counts once in all."""
    total = 0
    for pid in pids:
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def _stat(pid: int) -> list[bytes]:
    """Return /proc/PID/stat from the state on; empty if there is no such process."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, 1 << 16)
    except OSError:
        return b""  # it ended meanwhile
    finally:
        os.close(fd)
