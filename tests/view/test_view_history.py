import json
import re
from collections.abc import Mapping

import pytest

from orchestrator.core.nouns import NodeName, OpenRun, RunId, Token
from orchestrator.core.past import Past
from orchestrator.core.snapshot import iso_utc
from orchestrator.view import history
from orchestrator.view.entries import EntryView, history_of, newest
from tests.view.picture import NOW, drawn

TOKEN = 1_789_999_000_000
SINCE_MS = round(1000 * (NOW - 86_400))

MISSED: dict[str, object] = {
    "node": "n2",
    "token": TOKEN,
    "ended": iso_utc(NOW - 7200),
    "outcome": "missed",
    "why": "later than misfire_grace",
    "first": iso_utc(NOW - 36_000),
    "last": iso_utc(NOW - 10_800),
    "count": 8,
}
OK: dict[str, object] = {
    "run": f"invoices@{iso_utc(NOW - 7200)}",
    "node": "n1",
    "token": TOKEN,
    "tick": iso_utc(NOW - 7200),
    "attempt": 1,
    "reason": "schedule",
    "started": iso_utc(NOW - 7199.6),
    "ended": iso_utc(NOW - 7158.4),
    "elapsed_s": 41.2,
    "outcome": "ok",
    "exit_code": 0,
    "output": ["42 invoices sent"],
}
FAILED = OK | {
    "tick": iso_utc(NOW - 3600),
    "started": iso_utc(NOW - 3599.9),
    "elapsed_s": 0.3,
    "outcome": "failed",
    "exit_code": 1,
    "why": "ordered by ann@desk: once more",
    "output": ["Traceback (most recent call last):", '  File "send.py", line 3', "    send()", "OSError: no route"],
}
RETRY = OpenRun(
    RunId(f"invoices@{iso_utc(NOW - 3600)}"),
    round(1000 * (NOW - 3600)),
    Token(TOKEN),
    NodeName("n1"),
    1,
    "schedule",
    retry_ms=round(1000 * (NOW + 23)),
)
RUNS = OpenRun(RunId("invoices@manual-1"), None, Token(TOKEN), NodeName("n2"), 1, "manual")
PAST = Past(
    entries=(FAILED, OK, MISSED),
    since_ms=SINCE_MS,
    settled_ms=round(1000 * (NOW - 3600)),
    ran=1430,
    skipped=2,
    missed=8,
    open=(RETRY,),
)
VIEW = history_of("invoices", PAST)


def cells(line: str) -> list[str]:
    """Return the cells of a drawn row."""
    return re.split(" {2,}", line.strip())


def test_the_newest_is_the_last_line_as_in_a_log_and_a_failure_shows_what_it_wrote() -> None:
    titles, missed, why, ok, failed, *output, retry, sums = drawn(history.table(VIEW, now_utc=NOW, width=160), 160)

    columns = ["WHEN (UTC)", "STARTED", "LATE", "OUTCOME", "TOOK", "END", "NODE", "TOKEN", "TRY", "REASON", "WHY"]
    token = str(TOKEN)
    assert cells(titles) == columns
    assert cells(missed) == ["◌", "2026-09-21 11:13:20", "-", "-", "missed x8", "-", "-", "n2", token, "-", "-"]
    assert why == "     from 2026-09-21 04:13:20 on; later than misfire_grace"
    assert cells(ok)[:7] == ["●", "2026-09-21 12:13:20", "2026-09-21 12:13:20.400", "0.4s", "ok", "41s", "exit 0"]
    assert cells(ok)[7:] == ["n1", token, "1", "schedule", "-"]
    assert cells(failed)[:7] == [
        "✘",
        "2026-09-21 13:13:20",
        "2026-09-21 13:13:20.100",
        "0.1s",
        "failed",
        "0.3s",
        "exit 1",
    ]
    assert cells(failed)[-1] == "ordered by ann@desk: once more"
    assert output == ['     │   File "send.py", line 3', "     │     send()", "     │ OSError: no route"]
    assert cells(retry)[:6] == ["▲", "2026-09-21 13:13:20", "-", "-", "retry in 23s", "-"]
    assert cells(retry)[-3:] == ["2", "schedule", "the attempt before failed"]
    assert sums == "ticks 1,440 since 2026-09-20 14:13:20 UTC: 1,430 ran, 2 skipped, 8 missed"


def test_a_terminal_of_medium_width_does_without_token_and_start_and_says_below_a_row_what_has_no_room() -> None:
    assert drawn(history.table(VIEW, now_utc=NOW, width=120), 120)[:4] == [
        "   WHEN (UTC)           LATE  OUTCOME       TOOK  END     NODE  TRY  REASON    WHY",
        "◌  2026-09-21 11:13:20  -     missed x8     -     -       n2    -    -",
        "     from 2026-09-21 04:13:20 on; later than misfire_grace",
        "●  2026-09-21 12:13:20  0.4s  ok            41s   exit 0  n1    1    schedule  -",
    ]


def test_a_narrow_terminal_has_what_matters_most() -> None:
    shown = drawn(history.table(VIEW, now_utc=NOW, width=70), 70)

    assert shown[:4] == [
        "   WHEN (UTC)           LATE  OUTCOME       TOOK  END",
        "◌  2026-09-21 11:13:20  -     missed x8     -     -",
        "     from 2026-09-21 04:13:20 on; later than misfire_grace",
        "●  2026-09-21 12:13:20  0.4s  ok            41s   exit 0",
    ]
    assert max(map(len, shown)) <= 70


def test_a_pipe_gets_all_columns_without_glyphs() -> None:
    titles, missed, ok, *rest = history.plain_table(VIEW, now_utc=NOW).splitlines()

    assert titles.split("  ")[0] == "WHEN (UTC)"
    assert missed.startswith("2026-09-21 11:13:20  -  ")
    assert missed.endswith("from 2026-09-21 04:13:20 on; later than misfire_grace")
    assert ok.split()[:6] == ["2026-09-21", "12:13:20", "2026-09-21", "12:13:20.400", "0.4s", "ok"]
    assert rest[1:4] == ['    |   File "send.py", line 3', "    |     send()", "    | OSError: no route"]
    assert rest[-1] == "ticks 1,440 since 2026-09-20 14:13:20 UTC: 1,430 ran, 2 skipped, 8 missed"


def test_a_run_that_goes_on_is_the_last_row_with_its_start_where_that_is_known() -> None:
    began = iso_utc(NOW - 12)
    view = history_of("invoices", Past(entries=(OK,), open=(RUNS,)), since=began)
    row = history.plain_table(view, now_utc=NOW).splitlines()[-1]

    assert view.open[0].started == began
    assert row.split()[:8] == ["2026-09-21", "14:13:08", "2026-09-21", "14:13:08.000", "-", "running", "12s", "-"]
    assert row.endswith("manual    -")


def test_of_several_open_runs_none_is_given_the_start_of_another() -> None:
    view = history_of("invoices", Past(open=(RUNS, RUNS)), since=iso_utc(NOW))

    assert [run.started for run in view.open] == [None, None]


def test_the_newest_entries_are_kept_and_those_of_failures_where_they_are_asked_for() -> None:
    assert [run.outcome for run in newest(VIEW, 2, failed=False).runs] == ["failed", "ok"]
    assert [run.outcome for run in newest(VIEW, 2, failed=True).runs] == ["failed"]
    assert newest(VIEW, 1, failed=True).ticks == 1440


def test_a_service_has_runs_and_no_sum_of_ticks() -> None:
    view = history_of("beat", Past(entries=(OK,)))

    assert (view.since, view.settled, history.sums(view)) == (None, None, "")
    assert len(history.plain_table(view, now_utc=NOW).splitlines()) == 2


def test_every_entry_has_the_same_keys() -> None:
    told = json.loads(json.dumps(VIEW.to_json()))

    assert list(told) == ["job", "since", "settled", "ticks", "ran", "skipped", "missed", "open", "runs"]
    assert [list(run) for run in told["runs"]] == 3 * [list(EntryView.__dataclass_fields__)]
    assert told["open"][0]["retry"] == iso_utc(NOW + 23)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({}, id="nothing at all"),
        pytest.param({"outcome": ["ok"], "token": "7", "output": "x", "count": True}, id="other kinds"),
        pytest.param({"elapsed_s": float("inf"), "exit_code": 1e300, "started": 7}, id="numbers that are none"),
        pytest.param({"tick": "9999-12-31T23:59:59.999Z", "started": "0001-01-01T00:00:00Z"}, id="far instants"),
        pytest.param({"tick": "\x1b[2J", "outcome": "failed", "output": ["\x1b]0;title\x07"]}, id="control characters"),
    ],
)
def test_an_entry_that_nobody_of_ours_wrote_breaks_nothing_and_moves_no_cursor(entry: Mapping[str, object]) -> None:
    view = history_of("invoices", Past(entries=(entry,), since_ms=10**17, settled_ms=-1, ran=10**30))

    json.dumps(view.to_json(), allow_nan=False)
    assert view.since is None
    assert len(drawn(history.table(view, now_utc=NOW, width=160), 160)) >= 2
    assert "\x1b" not in history.plain_table(view, now_utc=NOW)
