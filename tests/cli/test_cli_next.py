import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

FILE = """\
jobs:
  beat: {command: x}
  nightly: {command: x, cron: "30 2 * * *", timezone: Europe/Berlin}
  often: {command: x, every: 90s}
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
        pytest.param(["nightly", "--from", "noon"], 2, "`noon` is no instant", id="no instant"),
    ],
)
async def test_what_has_no_answer_says_why(run: Run, here: Path, args: list[str], status: int, said: str) -> None:
    (here / "jobs.yaml").write_text(FILE)

    done = await run("next", *args, "--json")

    assert (done.status, done.out) == (status, "")
    assert said in done.err
