import json
from pathlib import Path

import pytest

from orchestrator.core.schedule import jitter_of
from tests.cli.conftest import Run

FILE = """\
jobs:
  beat: {command: x}
  nightly: {command: x, cron: "30 2 * * *", timezone: Europe/Berlin}
  often: {command: x, every: 90s}
  spread: {command: x, every: 1h, jitter: 5m}
  once: {command: x, at: 2026-12-24T18:00, timezone: Europe/Berlin}
  follower: {command: x, after: [nightly]}
  summer: {command: x, cron: 0 9 1 * *, not_before: 2026-06-01, not_after: 2026-08-31}
"""


async def test_a_job_is_told_tick_by_tick_with_a_mark_where_clocks_are_changed(run: Run, here: Path) -> None:
    (here / "jobs.yaml").write_text(FILE)

    done = await run("next", "nightly", "-n", "2", "--from", "2026-10-24T12:00:00Z")

    assert done.status == 0
    assert done.out.splitlines() == [
        "Sun 2026-10-25 02:30 CEST Europe/Berlin (first of two)  2026-10-25T00:30:00Z",
        "Mon 2026-10-26 02:30 CET Europe/Berlin                  2026-10-26T01:30:00Z",
    ]


async def test_an_expression_needs_no_file(run: Run) -> None:
    done = await run(
        *("next", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin"),
        *("--from", "2026-03-28T12:00:00+01:00", "--count", "2", "--json"),
    )

    assert done.status == 0
    assert json.loads(done.out) == [
        {"utc": "2026-03-29T01:00:00Z", "local": "2026-03-29T03:00:00+02:00"},
        {"utc": "2026-03-30T00:30:00Z", "local": "2026-03-30T02:30:00+02:00"},
    ]


async def test_a_period_is_told_in_utc(run: Run, here: Path) -> None:
    (here / "jobs.yaml").write_text(FILE)

    done = await run("next", "often", "-n", "2", "--from", "2026-01-01T00:00", "--json")

    assert [tick["utc"] for tick in json.loads(done.out)] == ["2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"]


async def test_a_job_with_jitter_shows_its_ticks_and_says_how_much_later_it_starts(run: Run, here: Path) -> None:
    (here / "jobs.yaml").write_text(FILE)

    done = await run("next", "spread", "-n", "2", "--from", "2026-01-01T00:00")

    assert done.out.splitlines() == [
        "Thu 2026-01-01 01:00 UTC  2026-01-01T01:00:00Z",
        "Thu 2026-01-01 02:00 UTC  2026-01-01T02:00:00Z",
    ]
    assert done.err == f"starts {jitter_of('spread', 300.0):.1f} s after its tick (jitter)\n"


async def test_a_job_that_runs_once_has_one_tick(run: Run, here: Path) -> None:
    (here / "jobs.yaml").write_text(FILE)

    before = await run("next", "once", "--from", "2026-01-01T00:00Z")
    after = await run("next", "once", "--from", "2026-12-24T17:00Z")

    assert before.out == "Thu 2026-12-24 18:00 CET Europe/Berlin  2026-12-24T17:00:00Z\n"
    assert (after.status, after.out, after.err) == (0, "", "it is never due again\n")


async def test_a_job_after_another_one_says_so_and_has_no_instants(run: Run, here: Path) -> None:
    (here / "jobs.yaml").write_text(FILE)
    said = "runs after each success of `nightly`; no instants of its own\n"

    plain, as_json = await run("next", "follower"), await run("next", "follower", "--json")

    assert (plain.status, plain.out, plain.err) == (0, "", said)
    assert (as_json.status, json.loads(as_json.out), as_json.err) == (0, [], said)


async def test_only_ticks_between_the_bounds_are_shown(run: Run, here: Path) -> None:
    (here / "jobs.yaml").write_text(FILE)

    done = await run("next", "summer", "--from", "2026-01-01T00:00Z", "--json")

    assert [tick["utc"] for tick in json.loads(done.out)] == [
        *("2026-06-01T09:00:00Z", "2026-07-01T09:00:00Z", "2026-08-01T09:00:00Z")
    ]


async def test_an_expression_may_be_read_literally(run: Run) -> None:
    done = await run(
        *("next", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--dst", "literal"),
        *("--from", "2026-10-24T12:00:00Z", "--count", "2"),
    )

    assert done.out.splitlines() == [
        "Sun 2026-10-25 02:30 CEST Europe/Berlin (first of two)  2026-10-25T00:30:00Z",
        "Sun 2026-10-25 02:30 CET Europe/Berlin (second of two)  2026-10-25T01:30:00Z",
    ]


async def test_a_job_counts_from_now_where_nothing_else_is_said(run: Run, here: Path) -> None:
    (here / "jobs.yaml").write_text(FILE)

    done = await run("next", "often", "--json")

    assert len(json.loads(done.out)) == 5


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        pytest.param(["--cron", "0 30 * * *"], 78, "hour 30 is out of range", id="an hour that does not exist"),
        pytest.param(["--cron", "0 0 31 2 *"], 78, "would never run", id="a date that does not exist"),
        pytest.param(["--cron", "@daily", "--timezone", "Mars/Base"], 78, "Mars/Base", id="a zone nobody knows"),
        pytest.param(["beat"], 2, "`beat` is a service", id="a service has no ticks"),
        pytest.param(["nigthly"], 4, "did you mean `nightly`?", id="an unknown job"),
        pytest.param([], 2, "name a job", id="neither job nor expression"),
        pytest.param(["beat", "--cron", "@daily"], 2, "name a job", id="both"),
        pytest.param(["nightly", "--timezone", "UTC"], 2, "--timezone belongs to --cron", id="a zone for a job"),
        pytest.param(["nightly", "--dst", "literal"], 2, "--dst belongs to --cron", id="another reading for a job"),
        pytest.param(["--cron", ""], 78, "neither cron nor every is given", id="an empty expression"),
        pytest.param(["nightly", "--from", "noon"], 2, "`noon` is no instant", id="no instant"),
    ],
)
async def test_what_has_no_answer_says_why(run: Run, here: Path, args: list[str], status: int, said: str) -> None:
    (here / "jobs.yaml").write_text(FILE)

    done = await run("next", *args, "--json")

    assert (done.status, done.out) == (status, "")
    assert said in done.err
