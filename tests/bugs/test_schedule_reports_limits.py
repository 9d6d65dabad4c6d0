"""Reports of what grew without a bound, came all at once, or was reckoned from the far past.

Each test names what holds, its docstring what was reported and where; all reports stand in
`schedule_reports.txt`.
"""

import contextlib
import json
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.core.messages import RunEnded
from orchestrator.core.nouns import JobName, Moment, NodeName, RunId, Token
from orchestrator.core.records import record_of
from orchestrator.core.requests import RecordRun
from orchestrator.core.run import Reason, Run
from orchestrator.core.schedule import Schedule
from orchestrator.core.spec import HistorySpec, ScheduleSpec
from orchestrator.core.ticks import DueTick, Passed, Ticks
from orchestrator.store.keys import Keys
from tests.bugs.days import CRON, SOON_S, Days, cron, instant
from tests.chaos.cluster import Cluster
from tests.runs.node import Node as Runner
from tests.runs.node import job as short_job
from tests.runs.node import until as soon
from tests.store.node import JOB, Node

HISTORY = HistorySpec()
MIB = 1 << 20


# What was missed in a long absence


def test_after_eight_hours_off_one_run_catches_up_and_then_all_is_as_usual() -> None:
    """kubernetes#42649, #36311: after more than a hundred missed starts a job was never scheduled again."""
    days = Days(cron("* * * * *", ttl_s=60.0, misfire_grace_s=600.0), nodes=2, begin="2027-01-15T00:10:30Z")
    days.go("00:30:30")  # it has run ten times or so
    for machine in days.machines:
        machine.lose_power()
    before = len(days.starts)

    days.go("08:30:30")
    for machine in days.machines:
        machine.start_main()
    days.go("08:40:30")

    after = days.starts[before:]
    assert [start.reason for start in after] == ["catch_up"] + ["schedule"] * (len(after) - 1)
    assert after[0].at < instant("2027-01-15T08:33:30Z")
    assert days.ticks()[-1] == "08:40:00"
    assert days.past().missed == days.ledger.due(CRON, days.past()) - len(days.starts) > 400
    days.assert_every_tick_is_told_of()


@pytest.mark.parametrize("off_s", [8 * 3600, 10 * 365 * 86_400], ids=["eight hours", "ten years"])
def test_what_was_missed_is_reckoned_in_a_bounded_number_of_steps(monkeypatch: pytest.MonkeyPatch, off_s: int) -> None:
    """kubernetes#42649: and the starts that were missed were walked one by one, at each look anew."""
    planned, now = Ticks(cron("* * * * *")), instant("2027-01-15T10:00:30Z")
    planned.plan(Moment(0.0, now), round(1000 * (now - off_s)))
    limit_steps(monkeypatch, 2000)

    passed = []
    while isinstance(found := planned.look(Moment(0.0, now)), Passed):
        passed.append(found.why)
        planned.plan(Moment(0.0, now), found.until_ms)

    assert found == DueTick(instant("2027-01-15T10:00:00Z"), late=True)
    assert passed == ["later than misfire_grace", "a newer one is due (misfire: once)"]


def limit_steps(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Have a walk from tick to tick fail that takes more steps."""
    walked = type(Schedule(ScheduleSpec(cron="* * * * *"))._ticks)
    step, steps = walked.next_after, count(1)

    def next_after(self: Any, utc: float) -> float | None:
        assert next(steps) <= most, "it walks through the whole past"
        return step(self, utc)

    monkeypatch.setattr(walked, "next_after", next_after)


# The clocks of the nodes differ


def test_a_hundred_ticks_of_a_short_job_are_a_hundred_runs_though_the_nodes_clocks_differ_by_seconds() -> None:
    """ShedLock#6, #1241, #2031, gocron#841, xxl-job#370: the lock was released before the last node's clock was there.

    Here the lease moves from node to node as well, every tenth tick.
    """
    days = Days(cron("*/10 * * * * *"), nodes=3, begin="2027-01-15T09:57:00Z", begun=False)
    for machine, ahead_s in zip(days.machines, (-3.0, 0.0, 3.0), strict=True):
        days.set_clocks(ahead_s, machines=[machine])
        machine.start_main()
    days.go("10:00:05")
    first = len(days.ticks())

    for _ in range(10):
        days.pass_s(100.0)
        moved = days.holder()
        moved.leave()
        days.world.later(150.0, moved.start_main)

    ran = days.ticks()[first:]
    assert len(ran) == len(set(ran)) == 100
    assert len({start.node for start in days.starts}) == 3
    days.assert_every_tick_is_told_of()


# All at the same second


def test_jitter_spreads_jobs_and_each_starts_at_the_same_second_every_hour_and_on_every_node() -> None:
    """dkron#866, robfig/cron#309, argo-workflows#16603, test-infra#12148: all jobs of an hour began in one second."""
    names = [JobName(f"report-{number}") for number in range(200)]
    days = Days(
        *(cron("0 * * * *", name=name, ttl_s=120.0, jitter_s=300.0) for name in names),
        nodes=2,
        begin="2027-01-15T09:50:30Z",
    )

    days.go("10:30:00")
    first = {start.job: start for start in days.starts}
    for machine in [machine for machine in days.machines if any(machine.holds(name) for name in names)]:
        machine.lose_power()
        days.pass_s(300.0)
        machine.start_main()
    days.go("11:30:00")
    second = {start.job: start for start in days.starts if start.at > instant("2027-01-15T11:00:00Z")}

    assert set(first) == set(second) == set(names)
    assert all(0 - SOON_S < start.late_s < 300.0 + SOON_S for start in first.values())
    assert max(Counter(int(start.late_s) for start in first.values()).values()) <= 5
    assert min(Counter(int(start.late_s) // 30 for start in first.values()).values()) >= 8
    assert all(abs(first[name].late_s - second[name].late_s) < SOON_S for name in names)
    assert any(first[name].node != second[name].node for name in names)


# What is kept of runs


async def test_ten_thousand_runs_of_a_mebibyte_of_output_are_less_than_a_mebibyte_in_redis(cluster: Cluster) -> None:
    """dkron#1566, #1553, #660: output lay in the store itself: snapshots of 3.2 GB, 4 GB of memory."""
    node = Node(cluster.server)
    value = await node.hold(schedule="every 60s")
    output = tuple("x" * (MIB // 10) for _ in range(10))

    for begin in range(0, 10_000, 500):
        records = [recorded(begin + number, value.token, output) for number in range(500)]
        await node.store.serve(records)

    client = cluster.server.client
    assert sum(client.memory_usage(key) or 0 for key in Keys("shop").parts(JOB).values()) < MIB
    assert client.zcard(Keys("shop").parts(JOB)["ages"]) <= HISTORY.runs
    newest = json.loads(client.hget(Keys("shop").parts(JOB)["history"], "r9999"))
    assert newest["output"] != []
    await node.store.close()


def recorded(number: int, token: Token, output: tuple[str, ...]) -> RecordRun:
    """Return how the end of a run is told to the store."""
    now = Moment(7.0 + number, instant("2027-01-15T10:00:00Z") + 60.0 * number)
    spec = cron("* * * * *", name=JOB)
    run = Run(RunId(f"r{number}"), token, round(1000 * now.utc), Reason.SCHEDULE, now)
    ended = RunEnded(JOB, run.id, 1, 0, "", "exit", 1.0, output)
    record = json.dumps(record_of(spec, run, ended, NodeName("n1"), now, order_ms=0))
    return RecordRun(JOB, JOB, token, run.id, record, now.boot, HISTORY.runs, HISTORY.max_bytes)


async def test_no_exit_status_of_a_thousand_short_runs_is_lost_and_no_zombie_is_left(tmp_path: Path) -> None:
    """supercronic#88, #171: a zombie kept the next start back, and the first cure took exit statuses away."""
    before = zombies()  # of tests before this one, whose nodes are gone
    node = Runner(tmp_path)
    await node.runs.open()
    expected, seen = [], []

    for begin in range(0, 1000, 100):
        codes = [number % 200 for number in range(begin, begin + 100)]
        runs = [node.start(short_job(("sh", "-c", f"(exit 1) & exit {code}"))) for code in codes]
        seen += [(await node.ended(run)).exit_code for run in runs]
        expected += codes

    assert seen == expected
    await soon(lambda: zombies() <= before, "every leash is reaped as well")
    await node.runs.close()


def zombies() -> set[int]:
    """Return who has ended below this process, and was not reaped."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found
