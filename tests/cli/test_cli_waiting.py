from dataclasses import replace

import pytest

from orchestrator.cli import waiting
from orchestrator.cli.picture import DISABLED
from orchestrator.cli.waiting import START, STOP
from orchestrator.core.snapshot import JobView

RAN = {"run": "beat@1.1", "outcome": "failed"}
RAN_AGAIN = {"run": "beat@1.2", "outcome": "failed", "exit_code": 1}
RUNNING = JobView("beat", "service", "running", holder="n1")
FREE = JobView("beat", "service", "unheld", last=RAN)
FAILED = replace(RUNNING, state="failed", last=RAN, why="exit 1; 3 failures in a row")


@pytest.mark.parametrize(
    ("want", "before", "now", "line"),
    [
        pytest.param(STOP, RUNNING, RUNNING, None, id="it still runs"),
        pytest.param(STOP, RUNNING, replace(RUNNING, state="stopping"), None, id="it is being stopped"),
        pytest.param(STOP, RUNNING, FREE, "stopped: beat (was on n1, 0.4 s)", id="its lease is free"),
        pytest.param(STOP, FREE, FREE, "stopped: beat (no node held it, 0.4 s)", id="its lease was free before"),
        pytest.param(START, FREE, FREE, None, id="nobody took it yet"),
        pytest.param(START, FREE, replace(RUNNING, state="starting"), None, id="it is being started"),
        pytest.param(START, FREE, RUNNING, "started: beat (on n1, 0.4 s)", id="it runs"),
        pytest.param(
            START, FREE, replace(RUNNING, state="waiting"), "started: beat (on n1, 0.4 s)", id="it waits for its tick"
        ),
        pytest.param(START, FAILED, FAILED, None, id="what was published before the order tells nothing"),
        pytest.param(
            START,
            FAILED,
            replace(FAILED, last=RAN_AGAIN),
            "failed: beat (started on n1: exit 1; 3 failures in a row, 0.4 s)",
            id="it ran and failed again",
        ),
        pytest.param(
            START,
            FREE,
            replace(RUNNING, last=RAN_AGAIN),
            "failed: beat (started on n1: exit 1, 0.4 s)",
            id="it runs once more, after it ran and failed",
        ),
        pytest.param(
            START,
            replace(RUNNING, since="2026-01-01T00:00:00.000Z"),
            replace(RUNNING, last=RAN_AGAIN | {"started": "2026-01-01T00:00:00.000Z"}),
            "started: beat (on n1, 0.4 s)",
            id="the run before the order ended badly, and it runs anew",
        ),
        pytest.param(
            START,
            FREE,
            replace(RUNNING, state="stopped", last=RAN_AGAIN, why="done (exit 0)"),
            "started: beat (on n1: done (exit 0), 0.4 s)",
            id="it ran and is done",
        ),
    ],
)
def test_an_order_is_carried_out_when_the_rows_say_so(
    want: str, before: JobView, now: JobView, line: str | None
) -> None:
    said = waiting.outcome(want, before, now)

    assert (said.line(0.4) if said else None) == line


@pytest.mark.parametrize(
    ("want", "row", "ordered", "line"),
    [
        pytest.param(STOP, RUNNING, None, None, id="it runs"),
        pytest.param(STOP, RUNNING, STOP, None, id="it is still being stopped"),
        pytest.param(STOP, FREE, None, None, id="nobody holds it, but somebody may take it"),
        pytest.param(
            STOP, replace(FREE, why="stopped by a@b"), STOP, "stopped already: beat (stopped by a@b)", id="stopped"
        ),
        pytest.param(START, RUNNING, None, "started already: beat (running on n1)", id="running"),
        pytest.param(START, RUNNING, STOP, None, id="running, but told to stop"),
        pytest.param(START, FAILED, None, None, id="failed: it is to try again"),
        pytest.param(
            START,
            replace(FREE, why=DISABLED),
            None,
            "not started: beat (it is disabled in the file; write `enabled: true` there)",
            id="disabled",
        ),
    ],
)
def test_an_order_that_changes_nothing_is_not_given(want: str, row: JobView, ordered: str | None, line: str) -> None:
    said = waiting.already(want, row, ordered)

    assert (said.line() if said else None) == line
