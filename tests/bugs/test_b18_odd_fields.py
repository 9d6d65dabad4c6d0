"""B18: agronholm/apscheduler#349, taichino/croniter#119, systemd-cron#136, bunkat/later#47.

Day 7 was refused and 1 was a Tuesday (#349), `mon-sun` was refused (#119), `fri-sun` ran on other days (#136), and what
has no meaning at all ran at some time or never. Here the week is cron's, and an expression means what people expect
or is refused, with the job, the field and what to write.
"""

import json
from pathlib import Path

import pytest

from orchestrator import cli

FROM = "2026-01-01T00:00:00Z"
FIELDS = "(the fields are: minute hour day-of-month month day-of-week)"
COUNT = "write 5 (minute hour day-of-month month day-of-week) or 6 with the second first; there is no year"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param(
            "0 5 * * 7",
            ["2026-01-04T05:00:00Z", "2026-01-11T05:00:00Z", "2026-01-18T05:00:00Z"],
            id="day 7 is a Sunday",
        ),
        pytest.param(
            "0 0 * * 1,7",
            ["2026-01-04T00:00:00Z", "2026-01-05T00:00:00Z", "2026-01-11T00:00:00Z", "2026-01-12T00:00:00Z"],
            id="day 1 is a Monday",
        ),
        pytest.param(
            "0 5 * * 5-7",
            ["2026-01-02T05:00:00Z", "2026-01-03T05:00:00Z", "2026-01-04T05:00:00Z", "2026-01-09T05:00:00Z"],
            id="a range ends on day 7",
        ),
        pytest.param(
            "0 5 * * fri-sun",
            ["2026-01-02T05:00:00Z", "2026-01-03T05:00:00Z", "2026-01-04T05:00:00Z", "2026-01-09T05:00:00Z"],
            id="a range ends on a Sunday",
        ),
        pytest.param(
            "0 5 * * mon-sun",
            ["2026-01-01T05:00:00Z", "2026-01-02T05:00:00Z", "2026-01-03T05:00:00Z", "2026-01-04T05:00:00Z"],
            id="a whole week is every day",
        ),
        pytest.param(
            "0 0 13 * 5",
            ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z", "2026-01-16T00:00:00Z"],
            id="of two day fields either counts",
        ),
        pytest.param(
            "5 */6 * * *",
            ["2026-01-01T00:05:00Z", "2026-01-01T06:05:00Z", "2026-01-01T12:05:00Z", "2026-01-01T18:05:00Z"],
            id="a step counts from the first hour",
        ),
        pytest.param(
            "0/5 * * * *",
            ["2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z", "2026-01-01T00:15:00Z", "2026-01-01T00:20:00Z"],
            id="a step from a number goes to the end of the field",
        ),
    ],
)
def test_an_odd_field_means_what_people_expect(
    capsys: pytest.CaptureFixture[str], expression: str, expected: list[str]
) -> None:
    status = cli.main(["next", "--cron", expression, "--from", FROM, "--count", str(len(expected)), "--json"])

    assert (status, [tick["utc"] for tick in json.loads(capsys.readouterr().out)]) == (0, expected)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        pytest.param("0 30 * * *", f"hour 30 is out of range: write 0 to 23 {FIELDS}", id="fields in the wrong order"),
        pytest.param("* * * * * * *", f"7 fields: {COUNT}", id="a field too many"),
        pytest.param(
            "@reboot",
            "@reboot is no instant: write a service with `restart: never`, which runs once, whichever node; an order to"
            " start it runs it again",
            id="no instant",
        ),
        pytest.param("60 * * * *", f"minute 60 is out of range: write 0 to 59 {FIELDS}", id="a minute that is none"),
        pytest.param(
            "0 0 31 2 *",
            "no date has day-of-month 31, month 2 and day-of-week *, the job would never run: write a day that occurs,"
            " for example L for the last of the month",
            id="a date that never comes",
        ),
    ],
)
def test_what_has_no_meaning_is_refused_with_the_job_and_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expression: str, complaint: str
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(f'jobs:\n  odd:\n    command: x\n    cron: "{expression}"\n')

    status = cli.main(["validate", str(file)])

    said = capsys.readouterr()
    assert (status, said.out) == (78, "")
    assert said.err.splitlines()[0] == f"orchestrator: {file}:4:11: jobs.odd.cron: {complaint}"
    assert cli.main(["next", "--cron", expression]) == 78
    assert capsys.readouterr().err == f"orchestrator: {complaint}\n"
