"""What a new holder makes of what it finds: runs that nobody told the end of, and those it ended itself."""

from dataclasses import replace

from orchestrator.core.answers import LeaseLost, RunRecorded, TickClaimed, TicksSettled
from orchestrator.core.attempts import again
from orchestrator.core.job import Job
from orchestrator.core.messages import StartRun
from orchestrator.core.nouns import NodeName, OpenRun, RunId
from orchestrator.core.requests import AcquireLease, ClaimTick, RecordRun, SettleTicks
from orchestrator.core.spec import Misfire, OnLost, RetrySpec, ScheduleSpec
from tests.core.house import (
    ABSENT,
    JOB,
    NEWER,
    TOKEN,
    at,
    cron,
    ended,
    granted,
    held_job,
    job,
    met,
    of,
    only,
    seen,
    server_ms,
    turn,
)

FIRST = RunId("beat@2027-01-15T08:01:00.000Z")


def started(job: Job, boot: float = 60.0) -> StartRun:
    claim = only(ClaimTick, turn(job, boot=boot))
    return only(StartRun, turn(job, TickClaimed(JOB, TOKEN, claim.tick_ms, claim.run, boot), boot=boot))


def opened(run: RunId = FIRST, **changes: object) -> OpenRun:
    """Return what the store keeps of a run of node a."""
    mark = OpenRun(run, server_ms(60.0), TOKEN, NodeName("a"), 1, "schedule")
    return replace(mark, **changes)  # type: ignore[arg-type] # a test names the fields it changes


def lost_and_taken_again(job: Job, *left: OpenRun, boot: float = 80.0) -> list[object]:
    """Let the job lose its lease and get another one that finds these open runs."""
    turn(job, LeaseLost(JOB, TOKEN, "token was issued", boot), boot=boot)
    turn(job, ABSENT, boot=boot)
    again = replace(granted(boot, NEWER, last_tick_ms=server_ms(60.0)), open=left)
    return [*job.handle(again, at(boot)), *job.advance(at(boot))]


def test_a_run_that_ended_here_while_redis_was_away_is_not_lost_though_the_store_calls_it_open() -> None:
    job = held_job(cron(on_lost=OnLost.RERUN), boot=59.0)
    turn(job, ended(started(job).run), boot=61.0)  # its record is never answered

    actions = lost_and_taken_again(job, opened())

    assert [action for action in actions if isinstance(action, RecordRun | ClaimTick)] == []
    assert job.cron is not None
    assert job.cron.retries == {}


def test_a_failed_run_whose_record_is_owed_is_tried_again_by_the_next_lease_of_the_same_node() -> None:
    job = held_job(cron(retries=RetrySpec(count=1, delay_s=10.0)), boot=59.0)
    turn(job, ended(started(job).run, exit_code=1), boot=61.0)

    lost_and_taken_again(job, opened(), boot=65.0)

    assert job.cron is not None
    (left,) = job.cron.retries.values()
    assert left.retry_ms == server_ms(71.0)
    assert only(ClaimTick, turn(job, boot=71.0)).run == again(left).run


def test_once_the_store_has_the_record_what_it_calls_open_is_lost() -> None:
    job = held_job(cron(), boot=59.0)
    run = started(job).run
    turn(job, ended(run), boot=61.0)
    turn(job, RunRecorded(JOB, run, 61.0), boot=61.1)

    record = only(RecordRun, lost_and_taken_again(job, opened(RunId("beat@another"))))

    assert '"outcome": "lost"' in record.record
    assert not record.witness


def test_a_run_that_ended_without_a_lease_leaves_its_room() -> None:
    job = held_job(cron(), boot=59.0)
    job.here.capacity.limit = 1
    run = started(job).run
    turn(job, LeaseLost(JOB, TOKEN, "token was issued", 62.0), boot=62.0)

    turn(job, ended(run, cause="killed"), boot=63.0)

    assert job.here.capacity.admits(JOB)


# Redis lost its memory and the holder died with it


def forgotten() -> Job:
    """Return a standby that saw node b hold the lease at 9, before Redis lost its memory at 11.5."""
    machine = job(cron(schedule=ScheduleSpec(every_s=1.0), misfire=Misfire.ALL))
    machine.server.on_met(met(9.0), 9.0, 15.0, vouched=True)
    turn(machine, seen(left_ms=14_000, asked_at=9.0), boot=9.0)
    machine.server.on_met(replace(met(12.0), epoch=f"{server_ms(11.5)}|r2|run1"), 12.0, 15.0, vouched=False)
    return machine


def test_what_was_due_after_a_loss_of_data_in_which_the_holder_died_runs_late_and_what_is_in_doubt_is_told() -> None:
    machine = forgotten()

    (ask,) = of(AcquireLease, turn(machine, ABSENT, boot=28.0))
    assert ask.tick_floor_ms == server_ms(11.5)
    grant = replace(granted(28.0, NEWER), last_tick_ms=server_ms(11.5))
    doubt = only(SettleTicks, turn(machine, grant, boot=28.1))
    assert (doubt.what, doubt.count) == ("doubt", 2)  # 10 and 11: they may have run in the lost memory
    settled = TicksSettled(JOB, NEWER, doubt.until_ms, server_ms(11.5), 28.1)

    assert only(ClaimTick, turn(machine, settled, boot=28.2)).tick_ms == server_ms(12.0)


def test_a_holder_that_was_seen_after_the_loss_has_answered_for_what_was_due() -> None:
    machine = forgotten()
    turn(machine, seen(left_ms=14_000, asked_at=12.0), boot=12.0)

    (ask,) = of(AcquireLease, turn(machine, ABSENT, boot=28.0))

    assert ask.tick_floor_ms > server_ms(26.0)
