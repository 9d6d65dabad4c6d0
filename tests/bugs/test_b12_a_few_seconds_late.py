"""B12: agronholm/apscheduler#146, #296, #182, #292.

By default a run that was 1.5 s late was dropped, with one line in the log. Here a node that was frozen, or had too
little of its processor, runs what was due late, once each; what is later than `misfire_grace` is missed, and told.
"""

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.core.spec import Misfire
from tests.bugs.days import CRON, TTL_S, Days, OrderlyMachine, cron, instant
from tests.bugs.scene import history, wait_until
from tests.bugs.starts import KeptTicks
from tests.chaos.cluster import JOB, Cluster, Node, until

PERIOD_S = 4
LATE_S = 5.0
"""So late a run may be after a stop of a few seconds."""

chaos = pytest.mark.chaos


# Frozen for a moment, or short of its processor


@chaos
def test_a_run_that_is_late_for_a_stopped_main_runs_once_and_history_tells_tick_and_start(cluster: Cluster) -> None:
    runs, node = started(cluster)
    slept = []
    for _ in range(3):
        slept.append(sleeps_over_a_tick(node, runs, for_s=1.5))
        runs.reach(slept[-1], within_s=LATE_S)

    told = settled(cluster)
    assert [run.tick for run in runs.all] == consecutive(runs)
    assert all(run.late_s < LATE_S for run in runs.all)
    assert (told["skipped"], told["missed"], told["ran"]) == (0, 0, told["ticks"])
    lateness = {instant(run["tick"]): instant(run["started"]) - instant(run["tick"]) for run in told["runs"]}
    assert all(1.0 < lateness[tick] < LATE_S for tick in slept)


@chaos
def test_a_run_that_is_due_beside_hogs_is_not_dropped(cluster: Cluster) -> None:
    runs, _ = started(cluster)

    with hogs(cluster, count=3):
        runs.reach(runs.all[-1].tick + 2 * PERIOD_S, within_s=2 * PERIOD_S + LATE_S)

    told = settled(cluster)
    assert [run.tick for run in runs.all] == consecutive(runs)
    assert all(run.late_s < LATE_S for run in runs.all)
    assert (told["skipped"], told["missed"], told["ran"]) == (0, 0, told["ticks"])


@chaos
def test_a_tick_later_than_an_explicit_grace_is_missed_and_told_and_the_next_one_runs(cluster: Cluster) -> None:
    runs, node = started(cluster, misfire_grace="1s")

    slept = sleeps_over_a_tick(node, runs, for_s=2.5)
    runs.reach(slept + PERIOD_S, within_s=PERIOD_S + LATE_S)

    told = settled(cluster)
    (missed,) = [run for run in told["runs"] if run["tick"] and instant(run["tick"]) == slept]
    assert slept not in [run.tick for run in runs.all]
    assert (missed["outcome"], missed["count"], missed["why"]) == ("missed", 1, "later than misfire_grace")
    assert told["ran"] + told["missed"] == told["ticks"]


def started(cluster: Cluster, **job: object) -> tuple[KeptTicks, Node]:
    """Start a node that runs a cron, and would hold its lease over any sleep here."""
    runs = KeptTicks(cluster)
    cluster.write({JOB: {"cron": f"*/{PERIOD_S} * * * * *", "command": runs.command, **job}}, ttl_s=20.0)
    node = cluster.up("a")
    until(lambda: runs.all, "it runs")
    return runs, node


def sleeps_over_a_tick(node: Node, runs: KeptTicks, for_s: float) -> float:
    """Stop main before the next tick and let it go on so long after it; return the tick."""
    tick = runs.all[-1].tick + PERIOD_S
    wait_until(tick - 1.0)
    node.send(signal.SIGSTOP)
    wait_until(tick + for_s)
    node.send(signal.SIGCONT)
    return tick


def consecutive(runs: KeptTicks) -> list[float]:
    """Return every tick from the first that ran on, as many as ran."""
    return [runs.all[0].tick + PERIOD_S * number for number in range(len(runs.all))]


def settled(cluster: Cluster) -> dict[str, Any]:
    """Return what history tells when no run is open. Any: what JSON holds."""
    return until(lambda: told if not (told := history(cluster))["open"] else None, "the newest run has ended")


@contextlib.contextmanager
def hogs(cluster: Cluster, count: int) -> Iterator[None]:
    """Have so many processes that never rest."""
    never_rests = ["sh", "-c", "while :; do :; done"]
    running = [subprocess.Popen(never_rests, env=cluster.environ()) for _ in range(count)]
    try:
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()


# Asleep for ten minutes


@pytest.mark.parametrize("asleep", [OrderlyMachine.suspend, OrderlyMachine.stop_main], ids=["the machine", "main"])
@pytest.mark.parametrize(
    ("misfire", "caught_up", "missed"),
    [
        pytest.param(Misfire.ONCE, ["10:12:00"], 9, id="once: the newest runs"),
        pytest.param(Misfire.SKIP, [], 10, id="skip: none of them runs"),
        pytest.param(
            Misfire.ALL, [f"10:{minute:02}:00" for minute in range(3, 13)], 0, id="all: each runs, oldest first"
        ),
    ],
)
def test_after_ten_minutes_of_sleep_misfire_says_what_runs(
    misfire: Misfire, caught_up: list[str], missed: int, asleep: Any
) -> None:
    days = Days(cron("* * * * *", misfire=misfire, misfire_grace_s=3600.0), begin="2027-01-15T09:57:30Z")
    days.go("10:02:30")
    (machine,) = days.machines
    slept = len(days.starts)

    asleep(machine)
    days.go("10:12:30")
    machine.resume()
    machine.continue_main()
    days.go("10:14:30")

    after = days.starts[slept:]
    assert days.ticks()[slept:] == [*caught_up, "10:13:00", "10:14:00"]
    assert [start.reason for start in after] == ["catch_up"] * len(caught_up) + ["schedule"] * 2
    assert all(start.at < instant("2027-01-15T10:12:30Z") + 5 * TTL_S for start in after[: len(caught_up)])
    assert (days.past(CRON).missed, days.past(CRON).skipped) == (missed, 0)
    days.assert_every_tick_is_told_of()
