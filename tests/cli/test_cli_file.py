import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.conftest import Run

GOOD = """\
cluster: shop
jobs:
  beat: {command: sleep 60, lease: {ttl: 20s}}
  yearly: {command: "true", cron: "0 3 1 1 *", timezone: Europe/Berlin}
  off: {command: "true", enabled: false}
"""


async def test_a_good_file_is_told_job_by_job(run: Run, here: Path) -> None:
    (here / "jobs.yaml").write_text(GOOD)

    done = await run("validate")

    assert (done.status, done.err) == (0, "")
    head, beat, yearly, off = done.out.splitlines()
    assert head == "jobs.yaml: 3 jobs, good"
    assert beat == "  beat    service  ttl 20s  restart always"
    assert yearly.startswith("  yearly  cron     ttl 15s  next ")
    assert yearly.endswith("-01-01 03:00 CET Europe/Berlin")
    assert off == "  off     service  ttl 15s  disabled"


async def test_a_bad_file_is_complained_about_on_stderr_alone(run: Run, here: Path) -> None:
    (here / "bad.yaml").write_text("jobs:\n  a: {comand: x}\n  b: {command: x, cron: '0 30 * * *'}\n")

    done = await run("validate", "bad.yaml")

    assert (done.status, done.out) == (78, "")
    assert "bad.yaml:2:7" in done.err
    assert "hour 30" in done.err
    assert all(line.startswith("orchestrator: ") for line in done.err.splitlines())


async def test_a_missing_file_is_one_clear_line(run: Run) -> None:
    done = await run("validate", "nosuch.yaml")

    assert (done.status, done.out, len(done.err.splitlines())) == (78, "", 1)


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        pytest.param(GOOD.encode(), 0, "-: 3 jobs, good", id="good"),
        pytest.param(b"jobs: 7", 78, "<stdin>:1:", id="bad"),
        pytest.param(b"jobs: {a\xff}", 78, "<stdin>: is not UTF-8 (byte 8)", id="not UTF-8"),
    ],
)
async def test_a_file_may_come_from_stdin(
    run: Run, monkeypatch: pytest.MonkeyPatch, content: bytes, status: int, said: str
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))

    done = await run("validate", "-")

    assert done.status == status
    assert said in done.out + done.err
