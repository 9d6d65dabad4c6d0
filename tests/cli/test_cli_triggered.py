import pytest

from orchestrator.cli import triggered
from orchestrator.core.nouns import NodeName, OpenRun, RunId, Token
from orchestrator.core.past import Past

RUN = "invoices@manual-1790000000000"
NOW = 1_790_000_000.0
OK: dict[str, object] = {"run": RUN, "node": "n1", "outcome": "ok", "exit_code": 0, "elapsed_s": 41.2, "attempt": 1}
FAILED = OK | {"outcome": "failed", "exit_code": 1, "elapsed_s": 0.3}
RETRIED = FAILED | {"run": f"{RUN}.2", "attempt": 2}
REFUSED = {"run": RUN, "outcome": "skipped", "why": "invoices@x still runs (overlap: skip)"}


def opened(run: str = RUN, **changes: int) -> OpenRun:
    """Return an open run."""
    return OpenRun(
        RunId(run),
        None,
        Token(7),
        NodeName("n1"),
        changes.get("attempt", 1),
        "manual",
        retry_ms=changes.get("retry_ms", 0),
    )


def line(past: Past, *, until_end: bool) -> str | None:
    """Return what is said of an order, None if nothing can be said yet."""
    said = triggered.outcome("invoices", RUN, triggered.fate_of(RUN, past), until_end=until_end)
    return None if said is None else f"{'' if said.good else 'not well: '}{said.line()}"


STARTED = f"started: invoices (on n1, run {RUN})"


@pytest.mark.parametrize(
    ("past", "start", "end"),
    [
        pytest.param(Past(), None, None, id="nothing is known of it"),
        pytest.param(Past(open=(opened(),)), STARTED, None, id="it runs"),
        pytest.param(Past(entries=(OK,)), *2 * ["ok: invoices (exit 0 after 41s on n1)"], id="it ended well"),
        pytest.param(
            Past(entries=(FAILED,)), *2 * ["not well: failed: invoices (exit 1 after 0.3s on n1)"], id="it failed"
        ),
        pytest.param(
            Past(entries=(FAILED,), open=(opened(retry_ms=1),)), STARTED, None, id="it failed and is to be tried again"
        ),
        pytest.param(
            Past(entries=(FAILED,), open=(opened(f"{RUN}.2", attempt=2),)), STARTED, None, id="its second attempt runs"
        ),
        pytest.param(
            Past(entries=(RETRIED, FAILED)),
            *2 * ["not well: failed: invoices (exit 1 after 0.3s on n1, attempt 2)"],
            id="all attempts failed",
        ),
        pytest.param(
            Past(entries=(REFUSED,)),
            *2 * ["not well: skipped: invoices (invoices@x still runs (overlap: skip))"],
            id="the holder refused it",
        ),
        pytest.param(
            Past(entries=(OK | {"run": f"{RUN}0"}, OK | {"run": None}), open=(opened("invoices@manual-1"),)),
            *2 * [None],
            id="others ran",
        ),
    ],
)
def test_the_past_tells_what_became_of_an_order(past: Past, start: str | None, end: str | None) -> None:
    assert line(past, until_end=False) == start
    assert line(past, until_end=True) == end


@pytest.mark.parametrize(
    ("past", "said"),
    [
        pytest.param(Past(), "invoices (not taken up yet)", id="nobody took it"),
        pytest.param(Past(open=(opened(),)), "invoices (running on n1, attempt 1)", id="it runs"),
        pytest.param(
            Past(entries=(FAILED,), open=(opened(retry_ms=round(1000 * NOW) + 23_000),)),
            "invoices (attempt 1 ended with exit 1; the next one follows in 23s)",
            id="it is to be tried again",
        ),
    ],
)
def test_what_is_waited_for_is_said(past: Past, said: str) -> None:
    assert triggered.pending("invoices", triggered.fate_of(RUN, past), NOW) == said
