from dataclasses import replace

import pytest

from orchestrator.cli import waiting
from orchestrator.cli.picture import DISABLED
from orchestrator.cli.waiting import Verb
from orchestrator.core.nouns import Intent
from orchestrator.core.snapshot import JobView

RAN = {"run": "beat@1.1", "outcome": "failed"}
RAN_AGAIN = {"run": "beat@1.2", "outcome": "failed", "exit_code": 1}
RUNNING = JobView("beat", "service", "running", holder="n1")
FREE = JobView("beat", "service", "unheld", last=RAN)
STOP, START, PAUSE, RESUME = Verb
CRON = JobView("invoices", "cron", "waiting", holder="n1")
PAUSED = replace(CRON, state="paused", why="paused by ann@desk: audit")
PAUSED_AND_RUNNING = replace(PAUSED, state="running")
FAILED = replace(RUNNING, state="failed", last=RAN, why="exit 1; 3 failures in a row")


@pytest.mark.parametrize(
    ("verb", "before", "now", "line"),
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
        pytest.param(PAUSE, CRON, CRON, None, id="it does not know of the pause"),
        pytest.param(PAUSE, CRON, PAUSED, "paused: invoices (on n1, 0.4 s)", id="it is paused"),
        pytest.param(
            PAUSE,
            CRON,
            PAUSED_AND_RUNNING,
            "paused: invoices (on n1; its run goes on, 0.4 s)",
            id="paused while it runs",
        ),
        pytest.param(
            PAUSE,
            replace(CRON, holder=None),
            replace(PAUSED, holder=None),
            "paused: invoices (no node holds it, 0.4 s)",
            id="paused, and held by nobody",
        ),
        pytest.param(RESUME, PAUSED, PAUSED, None, id="it is still paused"),
        pytest.param(RESUME, PAUSED, PAUSED_AND_RUNNING, None, id="it runs, and is still paused"),
        pytest.param(RESUME, PAUSED, replace(CRON, holder=None, state="unheld"), None, id="nobody took it yet"),
        pytest.param(RESUME, PAUSED, CRON, "resumed: invoices (waiting on n1, 0.4 s)", id="it waits for its tick"),
        pytest.param(
            RESUME,
            replace(PAUSED, holder=None, scope="node"),
            replace(CRON, holder=None, scope="node", why="on n1, n2"),
            "resumed: invoices (waiting on every node, 0.4 s)",
            id="every node runs one, and knows of it",
        ),
        pytest.param(
            START,
            replace(FREE, scope="node", state="stopped"),
            replace(RUNNING, holder=None, scope="node", why="on n1, n2"),
            "started: beat (on every node, 0.4 s)",
            id="every node runs one, and it was started",
        ),
        pytest.param(START, PAUSED, PAUSED, None, id="started, and still paused"),
        pytest.param(START, PAUSED, CRON, "started: invoices (on n1, 0.4 s)", id="a start takes a pause back"),
    ],
)
def test_an_order_is_carried_out_when_the_rows_say_so(
    verb: Verb, before: JobView, now: JobView, line: str | None
) -> None:
    said = waiting.outcome(verb, before, now)

    assert (said.line(0.4) if said else None) == line


@pytest.mark.parametrize(
    ("verb", "row", "ordered", "line"),
    [
        pytest.param(STOP, RUNNING, "", None, id="it runs"),
        pytest.param(STOP, RUNNING, "stopped", None, id="it is still being stopped"),
        pytest.param(STOP, FREE, "", None, id="nobody holds it, but somebody may take it"),
        pytest.param(
            STOP, replace(FREE, why="stopped by a@b"), "stopped", "stopped already: beat (stopped by a@b)", id="stopped"
        ),
        pytest.param(STOP, PAUSED, "paused", None, id="a paused job can be stopped"),
        pytest.param(START, RUNNING, "", "started already: beat (running on n1)", id="running"),
        pytest.param(START, RUNNING, "stopped", None, id="running, but told to stop"),
        pytest.param(START, PAUSED_AND_RUNNING, "paused", None, id="running, but paused"),
        pytest.param(START, FAILED, "", None, id="failed: it is to try again"),
        pytest.param(
            START,
            replace(FREE, why=DISABLED),
            "",
            "not started: beat (it is disabled in the file; write `enabled: true` there)",
            id="disabled",
        ),
        pytest.param(PAUSE, CRON, "running", None, id="to be paused"),
        pytest.param(
            PAUSE, PAUSED, "paused", "paused already: invoices (paused by ann@desk: audit)", id="paused already"
        ),
        pytest.param(PAUSE, CRON, "paused", None, id="a pause that its holder does not know of yet"),
        pytest.param(
            PAUSE, CRON, "stopped", "not paused: invoices (it is stopped by ann@desk: audit)", id="stopped is more"
        ),
        pytest.param(RESUME, PAUSED, "paused", None, id="to be resumed"),
        pytest.param(RESUME, CRON, "running", "resumed already: invoices (waiting on n1)", id="it was not paused"),
        pytest.param(
            RESUME,
            CRON,
            "stopped",
            "not resumed: invoices (it is stopped by ann@desk: audit; `orchestrator start invoices` starts it)",
            id="it is not paused but stopped",
        ),
    ],
)
def test_an_order_that_changes_nothing_or_too_much_is_not_given(
    verb: Verb, row: JobView, ordered: str, line: str | None
) -> None:
    standing = Intent(ordered, "ann@desk", "audit", at_ms=1) if ordered else None

    said = waiting.already(verb, row, standing)

    assert (said.line() if said else None) == line


def test_an_order_is_overtaken_by_a_later_one_that_wants_something_else() -> None:
    later = Intent("stopped", "ann@desk", "", at_ms=2)

    said = waiting.overtaken(PAUSE, "invoices", later, 1)

    assert said is not None
    assert said.line() == "overtaken: invoices (by a stop of ann@desk)"
    assert waiting.overtaken(STOP, "invoices", later, 1) is None
    assert waiting.overtaken(PAUSE, "invoices", later, 2) is None
