"""docs/schedules.md against the code: what the page says of ticks is computed here, by the modules that decide it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import click
import pytest

from orchestrator import cli, config
from orchestrator.cli import orchestrator as command_line
from orchestrator.config import model
from orchestrator.core import attempts, cron, records, steps, ticks, wall_clock
from orchestrator.core.cron_text import ALIASES, FIELDS
from orchestrator.core.messages import RunEnded
from orchestrator.core.nouns import LeaseValue, Moment, NodeName, OpenRun, RunId, Token
from orchestrator.core.records import record_of
from orchestrator.core.run import LEASE_LOST, Reason, Run
from orchestrator.core.schedule import Schedule, parse_problem
from orchestrator.core.spec import Dst, JobSpec, Misfire, OnLost, Overlap, ScheduleSpec
from orchestrator.errors import ConfigError
from tests.test_coming_from_supervisor import keys_of
from tests.test_docs import PACKAGE, ROOT, blocks, code_of, section, table

PAGE = (ROOT / "docs/schedules.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)

WORD = re.compile(r"[a-z_]+(?:\.[a-z_]+)*")
OURS = {*keys_of(model.Job), *keys_of(model.File)}
VALUES = {"true", *(str(value) for words in (Misfire, Overlap, OnLost, Dst, Reason) for value in words)}
OUTCOMES = {"ok", "failed", "timeout", "stopped", "lost", "skipped", "missed"}
TOLD_BY_HISTORY = {"since", "settled"}
EVENTS = {"clock.wrong", "clock.set", "clock.differs"}
SNIPPETS = sorted({code for code in code_of(PROSE) if re.match(r"[a-z_]+: ", code)})


def tables(text: str) -> list[list[list[str]]]:
    """Return all tables of a text, without their titles."""
    return [table(block) for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def job(**keys: str) -> JobSpec:
    """Return a job as the loader understands it: `every: 1m`, unless another schedule is given."""
    if not {"cron", "every", "at"} & keys.keys():
        keys["every"] = "1m"
    written = ", ".join(f"{key}: {value}" for key, value in keys.items())
    return config.parse(f"jobs: {{invoices: {{command: x, {written}}}}}", "jobs.yaml", {}).jobs[0]


def utc(text: str) -> float:
    """Return an instant in seconds since 1970."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def due_in(spec: ScheduleSpec, begin: str, end: str) -> list[float]:
    """Return the ticks in a span."""
    found: list[float] = []
    schedule, at = Schedule(spec), utc(begin)
    while (tick := schedule.next_after(at)) is not None and tick <= utc(end):
        found.append(tick)
        at = tick
    return found


# --- keys and words ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", blocks(PAGE, "yaml"), ids=lambda text: text.splitlines()[0])
def test_a_jobs_yaml_of_the_page_is_sound(text: str) -> None:
    assert config.parse(text, "jobs.yaml", {}).jobs


def test_every_key_that_the_page_names_exists() -> None:
    known = (
        OURS
        | VALUES
        | OUTCOMES
        | TOLD_BY_HISTORY
        | EVENTS
        | set(command_line.list_commands(click.Context(command_line)))
    )
    ours_alone = PROSE.split("\n## Coming from\n", maxsplit=1)[0]

    named = {code for code in code_of(ours_alone) if WORD.fullmatch(code)}

    assert named - known == set()


def test_every_key_that_takes_the_place_of_another_tool_s_exists() -> None:
    here = {code for _, cell in table(section(PAGE, "Coming from")) for code in code_of(cell) if WORD.fullmatch(code)}
    below_retries = {"count", "delay", "backoff", "max_delay"}

    assert here - below_retries <= OURS | VALUES | {"defaults", "retries"}
    assert {f"retries.{key}" for key in below_retries} <= OURS


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_line_of_yaml_on_the_page_is_taken_by_the_loader(snippet: str) -> None:
    places = (
        f"jobs: {{some: {{command: x, {snippet}}}}}",
        f"jobs: {{some: {{command: x, every: 1h, {snippet}}}}}",
        f"jobs: {{some: {{command: x, every: 1h, overlap: allow, {snippet}}}}}",
        f"jobs: {{some: {{command: x, cron: '@daily', {snippet}}}}}",
        f"{{{snippet.replace('N', '5')}, jobs: {{some: {{command: x}}}}}}",
    )

    assert any(is_sound(text) for text in places)


def is_sound(text: str) -> bool:
    """Say whether the loader takes a file."""
    try:
        config.parse(text, "jobs.yaml", {})
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize(
    ("title", "words", "default"),
    [
        ("Late ticks: `misfire`", Misfire, JobSpec.__dataclass_fields__["misfire"].default),
        ("While a run goes on: `overlap`", Overlap, JobSpec.__dataclass_fields__["overlap"].default),
    ],
    ids=["misfire", "overlap"],
)
def test_each_choice_has_its_row_and_the_default_is_marked(
    title: str, words: type[Misfire] | type[Overlap], default: object
) -> None:
    rows = [cell for cell, *_ in tables(section(PAGE, title))[0]]

    assert [code_of(cell)[0] for cell in rows] == [str(word) for word in words]
    assert [code_of(cell)[0] for cell in rows if "(default)" in cell] == [default]


def test_what_ends_a_run_or_a_tick_is_complete() -> None:
    rows = tables(section(PAGE, "History"))[0]

    assert {word for outcome, _ in rows for word in code_of(outcome)} == OUTCOMES


PLAIN = job()
SUCCESSES = (PACKAGE / "store/lua/record.lua").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "said",
    [
        f"`misfire_grace` ({PLAIN.misfire_grace_s / 60:g} m)",
        f"`max_instances` ({PLAIN.max_instances})",
        f"`on_lost: {PLAIN.on_lost}` (default)",
        f"{PLAIN.history.runs} entries and {PLAIN.history.max_bytes // 1024} KiB a job",
        f"the newest {ticks.MOST_CATCH_UP} at most",
        f"is rerun at most {attempts.MOST_RERUNS} times",
        f"within {cron.TRIGGER_VALID_MS // 60_000} minutes is refused",
        f"the last {records.MOST_OUTPUT_LINES} lines, {records.MOST_OUTPUT_CHARACTERS:,} characters at most",
        f"more than {wall_clock.SET_S:g} s beyond that",
        f"From {wall_clock.APART_S:g} s of difference on",
        f"the newest {re.findall('MOST_SUCCESSES = ([0-9]+)', SUCCESSES)[0]} are kept",
    ],
)
def test_every_number_of_the_page_is_that_of_the_code(said: str) -> None:
    assert said in PAGE


def test_a_tick_ahead_of_the_clock_of_redis_is_refused_from_the_difference_on_that_is_said() -> None:
    assert steps.AHEAD_OF_SERVER_MS == 1000 * wall_clock.APART_S


# --- when a job is due ------------------------------------------------------------------------------


def test_the_fields_of_an_expression_are_those_of_the_code() -> None:
    rows = tables(section(PAGE, "When a job is due"))[1]

    assert [row[0] for row in rows] == [field.name for field in FIELDS]
    assert [row[1].split(";")[0] for row in rows] == [f"{field.low} to {field.high}" for field in FIELDS]
    expected = [f"{field.names[0]} to {field.names[-1]}".lower() if field.names else "" for field in FIELDS]
    assert [row[2] for row in rows] == expected


def test_every_alias_is_named() -> None:
    cells = [cell for cell, *_ in tables(section(PAGE, "When a job is due"))[2]]

    assert {code for cell in cells for code in code_of(cell) if code.startswith("@")} == {*ALIASES, "@every 90s"}


def written_values() -> Iterator[tuple[str, str]]:
    """Yield each example of the dialect as an expression, with itself."""
    for cell, meaning in tables(section(PAGE, "When a job is due"))[2]:
        for code in code_of(cell):
            fields = [code, "*", "*", "*", "*"]
            if "day-of-week" in cell:
                fields = ["0", "0", "*", "*", code]
            elif "day-of-month" in cell or "day fields" in cell:
                fields = ["0", "0", code, "*", "*"]
            elif meaning.startswith("a value drawn"):
                fields = ["0", code, "*", "*", "*"] if "18" in code else fields
            yield code, code if code.startswith("@") else " ".join(fields)


@pytest.mark.parametrize(("code", "expression"), [*written_values()], ids=lambda text: text)
def test_every_example_of_the_dialect_is_understood(code: str, expression: str) -> None:
    assert parse_problem(ScheduleSpec(cron=expression), name="invoices") == "", code


@pytest.mark.parametrize(
    "expression", ["0 0 30 2 *", "0 0 * * fri-mon", "15W", "TZ=Europe/Berlin 0 3 * * *", "@reboot"]
)
def test_what_the_page_calls_refused_is_refused(expression: str) -> None:
    assert f"`{expression}`" in PAGE

    assert parse_problem(ScheduleSpec(cron=expression if " " in expression else f"0 0 {expression} * *"))
    assert parse_problem(ScheduleSpec(cron=expression))


@pytest.mark.parametrize(
    ("expression", "days"),
    [("0 0 13 * fri", ["02", "09", "13", "16", "23", "30"]), ("0 0 1-7 * */7", ["04"])],
    ids=["one of two day fields is enough", "both must match where one begins with a star"],
)
def test_two_day_fields_mean_what_the_page_says(expression: str, days: list[str]) -> None:
    assert f"`{expression}`" in PAGE

    due = due_in(ScheduleSpec(cron=expression), "2026-01-01T00:00", "2026-01-31T23:00")

    assert [datetime.fromtimestamp(tick, UTC).strftime("%d") for tick in due] == days


def test_a_star_with_a_step_past_the_field_is_its_first_value_and_a_start_with_a_step_goes_to_its_end() -> None:
    assert "10, 25, 40, 55" in PAGE

    quarters = due_in(ScheduleSpec(cron="10/15 * * * *"), "2026-01-01T00:00", "2026-01-01T00:59")
    hourly = due_in(ScheduleSpec(cron="*/61 * * * *"), "2026-01-01T00:30", "2026-01-01T02:30")

    assert [round(tick - utc("2026-01-01T00:00")) // 60 for tick in quarters] == [10, 25, 40, 55]
    assert hourly == [utc("2026-01-01T01:00"), utc("2026-01-01T02:00")]


def test_a_period_of_seven_days_is_due_on_thursdays() -> None:
    assert "`every: 7d` is Thursday, 00:00 UTC" in PAGE

    (tick,) = due_in(ScheduleSpec(every_s=7 * 86_400), "2026-01-02T00:00", "2026-01-08T00:00")

    assert datetime.fromtimestamp(tick, UTC).strftime("%A %H:%M") == "Thursday 00:00"


def test_an_hourly_job_that_is_written_as_fixed_time_skips_the_repeated_hour() -> None:
    assert "`5 0-23 * * *` is fixed-time" in PAGE
    night = ("2026-10-24T22:00", "2026-10-25T02:00")

    fixed, following = (
        due_in(ScheduleSpec(cron=text, timezone="Europe/Berlin"), *night) for text in ("5 0-23 * * *", "5 * * * *")
    )

    assert (len(fixed), len(following)) == (3, 4)


# --- clocks that change -----------------------------------------------------------------------------


def examples() -> Iterator[tuple[str, list[str]]]:
    """Yield each `orchestrator next` of the page with what it prints there."""
    for block in blocks(PAGE, ""):
        command = ""
        shown: list[str] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, shown
                command, shown = line.removeprefix("$ orchestrator "), []
            else:
                shown.append(line)
        yield command, shown


@pytest.mark.parametrize(("command", "shown"), [*examples()], ids=lambda told: told if isinstance(told, str) else "")
def test_the_page_shows_what_next_prints(command: str, shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(shlex.split(command))

    assert status == 0
    assert capsys.readouterr().out.splitlines() == shown


OF_A_ROW = {
    "fixed-time": [("30 2 {date} *", Dst.CRON)],
    "follows": [("*/30 2 {date} *", Dst.CRON)],
    "`dst: literal`": [("30 2 {date} *", Dst.LITERAL), ("*/30 2 {date} *", Dst.LITERAL)],
}
TWICE = ("Europe/Berlin", "25 10", "2026-10-24T22:00", "2026-10-25T22:00")
GAP = ("Europe/Berlin", "29 3", "2026-03-28T23:00", "2026-03-29T21:00")
NO_DATE = ("Pacific/Apia", "30 12", "2011-12-29T00:00", "2012-01-02T00:00")
PLAIN_DAY = ("Europe/Berlin", "20 10", "2026-10-19T22:00", "2026-10-20T21:00")
GAP_ENDS = utc("2026-03-29T01:00")


def told_cells() -> Iterator[tuple[str, tuple[str, str, str, str], str, Dst]]:
    """Yield each cell of the table of clock changes with a day, an expression and how that is read."""
    for kind, *cells in tables(section(PAGE, "Time zones, and clocks that change"))[0]:
        for expression, dst in OF_A_ROW[next(word for word in OF_A_ROW if kind.startswith(word))]:
            for cell, day in zip(cells, (TWICE, GAP, NO_DATE), strict=True):
                yield cell, day, expression, dst


@pytest.mark.parametrize(("cell", "day", "expression", "dst"), [*told_cells()])
def test_each_cell_of_the_table_of_clock_changes_holds(
    cell: str, day: tuple[str, str, str, str], expression: str, dst: Dst
) -> None:
    def due(zone: str, date: str, begin: str, end: str) -> list[float]:
        spec = ScheduleSpec(cron=expression.format(date=date), timezone=zone, dst=dst)
        return due_in(spec, begin, end)

    found, ordinary = due(*day), due(*PLAIN_DAY)

    first_pass = [tick for tick in found if not datetime.fromtimestamp(tick, ZoneInfo(day[0])).fold]
    assert {
        "runs both times": len(found) == 2 * len(ordinary) == 2 * len(first_pass),
        "runs the first time only": len(found) == len(ordinary) == len(first_pass),
        "runs once, where the gap ends": found == [GAP_ENDS],
        "does not run": found == [],
    }[cell]


# --- late ticks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", tables(section(PAGE, "Late ticks: `misfire`"))[1], ids=lambda row: "-".join(row[:2]))
def test_the_table_of_what_runs_after_a_night_without_a_node_holds(row: list[str]) -> None:
    misfire, grace = (code_of(cell)[0] for cell in row[:2])
    plan = ticks.Ticks(job(cron="'* * * * *'", misfire=misfire, misfire_grace=grace))
    back = Moment(0.0, utc("2026-01-01T09:00:30"))
    plan.begin(back, round(1000 * utc("2026-01-01T01:00:30")), doubt_ms=0, lost_ms=0)

    ran = missed = 0
    while (found := plan.look(back)) is not None:
        if isinstance(found, ticks.DueTick):
            ran += 1
            plan.on_claimed(back, found.ms)
        else:
            missed += found.count
            plan.plan(back, found.until_ms)

    assert [str(ran), str(missed)] == row[2:]
    assert ran + missed == 480


def test_ticks_in_doubt_are_told_in_the_words_of_the_page() -> None:
    plan = ticks.Ticks(job())
    now = Moment(0.0, utc("2026-01-01T09:00:30"))
    at_ms = round(1000 * now.utc)

    doubt = plan.begin(now, at_ms, doubt_ms=at_ms - 180_000, lost_ms=at_ms)

    assert doubt is not None
    assert f"`{doubt.why}`" in PAGE


# --- attempts ---------------------------------------------------------------------------------------

HOLDER = LeaseValue(Token(7), NodeName("alpha"), "one")
NOW = Moment(100.0, utc("2026-11-30T02:00:10"))
FIRST = RunId("invoices@2026-11-30T02:00:00.000Z")


def test_the_table_of_retries_holds() -> None:
    (written,) = (code for code in code_of(PROSE) if code.startswith("{count:"))
    spec = job(retries=written)
    open_run = OpenRun(FIRST, round(1000 * utc("2026-11-30T02:00")), Token(7), NodeName("alpha"), 1, "schedule")

    expected = [["1", "at the tick", f"`{open_run.run}`"]]
    for _ in range(spec.retries.count):
        waits = attempts.retried(spec, open_run, NOW)
        follower = attempts.again(waits)
        delay_s = round(waits.retry_ms / 1000 - NOW.utc)
        expected.append(
            [f"{follower.number}", f"{delay_s} s after the end of attempt {open_run.attempt}", f"`{follower.run}`"]
        )
        open_run = follower.opened(HOLDER)

    assert tables(section(PAGE, "Time limits and retries"))[0] == expected


WAYS_TO_END = {
    "the node, its machine or its network died": ("deadline", LEASE_LOST, 4711),
    "the node was told to leave": ("stop", attempts.NODE_LEAVES, 4711),
    "`orchestrator stop`": ("stop", "stop was ordered", 4711),
    "it is certain that its command never started": ("deadline", LEASE_LOST, None),
}


@pytest.mark.parametrize(
    "row", tables(section(PAGE, "What a failover does to a run"))[0], ids=lambda row: row[0].replace("`", "")
)
def test_the_table_of_failovers_holds(row: list[str]) -> None:
    cause, why, pid = next(way for words, way in WAYS_TO_END.items() if row[0].startswith(words))
    tick_ms = round(1000 * utc("2026-11-30T02:00"))
    run = Run(FIRST, Token(7), tick_ms, Reason.SCHEDULE, NOW, pid=pid, stop_why=why)
    ended = RunEnded(PLAIN.name, FIRST, None, 15 if pid else 0, "", cause, elapsed_s=1.0)

    outcomes, follows = set(), list[str]()
    for on_lost in OnLost:
        spec = replace(PLAIN, on_lost=on_lost)
        record = record_of(spec, run, ended, NodeName("alpha"), NOW, order_ms=0)
        outcomes.add(f"`{record['outcome']}`")
        left = attempts.follower(spec, run, ended, record, HOLDER, NOW)
        wait_s = None if left is None else round(left.retry_ms / 1000 - NOW.utc, 3)
        words = {None: "nothing", 0.0: "runs again at once", PLAIN.lease.heartbeat_s: "runs again, a heartbeat later"}
        follows.append(words[wait_s])

    assert {row[1]} == outcomes
    assert all(cell.startswith(told) for cell, told in zip(row[2:], follows, strict=True)), follows


def test_reruns_take_nothing_from_retries_and_both_come_to_an_end() -> None:
    spec = job(on_lost="rerun", retries="2")
    reruns, last = attempts.MOST_RERUNS, 1 + attempts.MOST_RERUNS + spec.retries.count
    attempt = attempts.Attempt(FIRST, 0, Reason.SCHEDULE)

    for _ in range(reruns):
        left = attempts.rerun(spec, attempt.opened(HOLDER), NOW, certain=False)
        assert left is not None
        attempt = attempts.again(left)
    assert attempts.rerun(spec, attempt.opened(HOLDER), NOW, certain=False) is None

    while not (run := attempt.begun(spec, HOLDER.token, NOW, lanes=())).last_attempt:
        attempt = attempts.again(attempts.retried(spec, attempt.opened(HOLDER), NOW))
    assert run.attempt == last
