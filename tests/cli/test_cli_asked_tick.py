import pytest

from orchestrator.cli import asked_tick
from orchestrator.core.nouns import NodeName, OpenRun, RunId, Token
from orchestrator.core.past import Past
from orchestrator.core.schedule import Schedule
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import ScheduleSpec

NIGHTLY = Schedule(ScheduleSpec(cron="0 3 * * *"))
LEAP_DAY = Schedule(ScheduleSpec(cron="0 0 29 2 *"))
TICK = 1_790_046_000.0  # 2026-09-22T03:00:00Z
NOW = TICK + 3600
RAN: dict[str, object] = {"run": "r", "node": "n1", "tick": iso_utc(TICK), "outcome": "ok"}
OPEN = OpenRun(RunId("r"), round(TICK * 1000), Token(7), NodeName("n1"), 1, "schedule")
SETTLED_MS = round(TICK * 1000)


def refusal(tick: float, past: Past, *, schedule: Schedule | None = NIGHTLY, again: bool = False) -> str:
    """Return what is said against a tick."""
    return asked_tick.refusal(tick, now_utc=NOW, schedule=schedule, past=past, again=again)


@pytest.mark.parametrize(
    ("past", "said"),
    [
        pytest.param(Past(settled_ms=SETTLED_MS), "", id="nothing is kept of it"),
        pytest.param(Past(entries=(RAN | {"outcome": "failed"},)), "", id="it failed"),
        pytest.param(Past(entries=(RAN | {"tick": iso_utc(TICK - 86_400)},)), "", id="another tick ran"),
        pytest.param(
            Past(entries=(RAN,)),
            "the tick 2026-09-22T03:00:00.000Z ran already (r on n1); --again runs it once more",
            id="it ran",
        ),
        pytest.param(
            Past(open=(OPEN,)),
            "the tick 2026-09-22T03:00:00.000Z is being run; --again runs it once more",
            id="it runs",
        ),
        pytest.param(
            Past(settled_ms=SETTLED_MS - 1),
            "the tick 2026-09-22T03:00:00.000Z is still to be run or skipped by itself; --again runs it in addition",
            id="its holder has yet to see to it",
        ),
    ],
)
def test_a_tick_that_ran_or_will_run_wants_to_be_asked_for_again(past: Past, said: str) -> None:
    assert refusal(TICK, past) == said
    assert refusal(TICK, past, again=True) == ""


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_a_tick_to_come_is_not_run(again: bool) -> None:
    assert refusal(TICK + 86_400, Past(), again=again) == "the tick 2026-09-23T03:00:00.000Z lies in the future"


@pytest.mark.parametrize(
    ("schedule", "near"),
    [
        pytest.param(NIGHTLY, "2026-09-22T03:00:00.000Z and 2026-09-23T03:00:00.000Z", id="every night"),
        pytest.param(LEAP_DAY, "2024-02-29T00:00:00.000Z and 2028-02-29T00:00:00.000Z", id="every four years"),
        pytest.param(
            Schedule(ScheduleSpec(every_s=1.5)),
            "2026-09-22T03:00:00.000Z and 2026-09-22T03:00:01.500Z",
            id="every moment",
        ),
        pytest.param(Schedule(ScheduleSpec(at_utc=TICK)), "2026-09-22T03:00:00.000Z", id="once"),
    ],
)
def test_an_instant_that_is_no_tick_is_refused_with_its_neighbours(schedule: Schedule, near: str) -> None:
    said = refusal(TICK + 1, Past(), schedule=schedule, again=True)

    assert said == f"2026-09-22T03:00:01.000Z is no tick of its schedule; the nearest are {near}"


def test_where_ticks_follow_from_another_job_any_instant_of_the_past_may_be_one() -> None:
    assert refusal(TICK + 1.234, Past(), schedule=None) == ""
