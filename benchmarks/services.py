"""One life of a manager with many services that do nothing: start, memory, idle, stop."""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator

from benchmarks import processes
from benchmarks.managers import Manager, Service
from orchestrator.clock import boot

SETTLE_S = 5.0
"""From the last start to the first reading: supervisord counts a second, we publish what runs."""

_LIMIT_S = 120.0

Readings = dict[str, float]


def live(manager: Manager, count: int, *, idle_s: float) -> Readings:
    """Start `count` services, let them be, stop them.

    Args:
        manager: A fresh one.
        count: Of services.
        idle_s: For how long the idle manager is watched; 0: neither its idleness nor its memory is of interest.

    Returns:
        start_s: From the manager's start until all services run.
        start_cpu_s: What all of that cost, the services' own starts and Redis included; it hardly depends on who else
            uses the machine.
        idle_percent, idle_redis_percent: Of one processor, while nothing happens.
        pss_kib: Of all its own processes together, a service; redis apart.
        stop_s: From SIGTERM until no service is left.
        gone_s: From SIGTERM until the manager has ended, too.
    """
    tag = f"86400.{secrets.randbelow(10**9):09d}1"
    manager.prepare([Service(f"s{number}", ("/bin/sleep", tag)) for number in range(count)])
    before = processes.population()
    began = manager.start()
    with _swept(tag):
        services = processes.wait_until_running(tag, count, before=before, check=manager.check, limit_s=_LIMIT_S)
        readings = {"start_s": boot() - began}
        readings["start_cpu_s"] = processes.cpu_s({*processes.below(manager.pid), *manager.extra_pids()})
        if idle_s:
            time.sleep(SETTLE_S)
            readings |= _idle(manager, services, idle_s)
        readings |= _stop(manager, services)
    return readings


def _idle(manager: Manager, services: set[int], idle_s: float) -> Readings:
    own = processes.below(manager.pid) - services
    memory = processes.pss_bytes(own)
    began, spent, redis = boot(), processes.cpu_s(own), processes.cpu_s(manager.extra_pids())
    time.sleep(idle_s)
    passed = boot() - began
    return {
        "pss_kib": memory / 1024 / len(services),
        "idle_percent": 100 * (processes.cpu_s(own) - spent) / passed,
        "idle_redis_percent": 100 * (processes.cpu_s(manager.extra_pids()) - redis) / passed,
    }


def _stop(manager: Manager, services: set[int]) -> Readings:
    pidfds = [os.pidfd_open(pid) for pid in services]
    try:
        began = manager.tell_to_go()
        processes.wait_until_gone(pidfds, _LIMIT_S)
        stopped = boot()
    finally:
        for fd in pidfds:
            os.close(fd)
    assert manager.process is not None  # noqa: S101 - it was told to go just now
    manager.process.wait(_LIMIT_S)
    return {"stop_s": stopped - began, "gone_s": boot() - began}


@contextlib.contextmanager
def _swept(tag: str) -> Iterator[None]:
    """Leave no service behind, whatever became of the manager."""
    try:
        yield
    except BaseException:
        for pid in processes.bearing(tag):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise
