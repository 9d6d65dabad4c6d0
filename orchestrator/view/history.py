"""The past of one job, drawn: its entries like the lines of a log, and its ticks as a sum.

| width          | columns                                                                      |
|----------------|------------------------------------------------------------------------------|
| 140 and more   | when started late outcome took end node token try reason why                 |
| 100 and more   | when late outcome took end node try reason why                               |
| less           | when late outcome took end                                                   |
| not a terminal | all of them, whatever the width                                              |

Where `why` has no room and matters, it stands below its row.
`when` is the tick, or the start of a run that has none. The newest entry is the last line, as in a log; runs that
have not ended come after it. Below a run that failed stand the last lines it wrote.
Knows how an entry reads; must never know Redis, nor when the job is due. What there is to draw says `entries.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.view import phrases
from orchestrator.view.entries import FAILURES, EntryView, HistoryView, OpenView
from orchestrator.view.table import CONDENSED_WIDTH, FULL_WIDTH

OUTPUT_LINES = 3
"""Shown of what a failed run wrote last; a traceback ends with them. JSON has all that is kept."""

_WORTH_A_WORD = FAILURES | {"stopped", "skipped", "missed"}

_LOOKS: Mapping[str, tuple[str, str]] = {
    "ok": ("●", "green"),
    "failed": ("✘", "red"),
    "timeout": ("✘", "red"),
    "lost": ("✘", "red"),
    "stopped": ("■", "bright_black"),
    "skipped": ("◌", "yellow"),
    "missed": ("◌", "red"),
    "running": ("◐", "cyan"),
    "retry": ("▲", "yellow"),
}
"""Glyph and colour of each outcome, and of runs that have none yet."""
_UNKNOWN_LOOK = ("?", "red")


def table(view: HistoryView, *, now_utc: float, width: int) -> RenderableType:
    """Return the past for a terminal."""
    rows = _rows(view, now_utc)
    lines = _drawn(rows, width)
    return Group(*lines, *([_one_line(Text(said))] if (said := sums(view)) else []))


def plain_table(view: HistoryView, *, now_utc: float) -> str:
    """Return the past for a pipe: no colour, no glyph, the same columns always."""
    rows = _rows(view, now_utc)
    cells = [[title for title, _ in _COLUMNS], *([getattr(row, name) for _, name in _COLUMNS] for row in rows)]
    widths = _widths(cells)
    lines = [_glued(cells[0], widths)]
    for row, line in zip(rows, cells[1:], strict=True):
        lines += [_glued(line, widths), *(f"    | {text}" for text in row.output)]
    return "\n".join([*lines, *([said] if (said := sums(view)) else [])])


def sums(view: HistoryView) -> str:
    """Return what became of all ticks, "" where none are counted."""
    since = phrases.utc_of(view.since)
    if since is None:
        return ""
    told = f"{view.ran:,} ran, {view.skipped:,} skipped, {view.missed:,} missed"
    return f"ticks {view.ticks:,} since {_instant(since)} UTC: {told}"


@dataclass(frozen=True, slots=True)
class _Row:
    """One entry as it is said; every text can only be read."""

    look: tuple[str, str]
    when: str
    outcome: str
    node: str
    token: str
    attempt: str
    reason: str
    why: str
    started: str = phrases.NOTHING
    late: str = phrases.NOTHING
    took: str = phrases.NOTHING
    end: str = phrases.NOTHING
    worth_a_word: bool = False
    output: tuple[str, ...] = ()


_COLUMNS = (
    ("WHEN (UTC)", "when"),
    ("STARTED", "started"),
    ("LATE", "late"),
    ("OUTCOME", "outcome"),
    ("TOOK", "took"),
    ("END", "end"),
    ("NODE", "node"),
    ("TOKEN", "token"),
    ("TRY", "attempt"),
    ("REASON", "reason"),
    ("WHY", "why"),
)
_INDENT = "   "
"""Room for the glyph."""
_CONDENSED = frozenset({"when", "late", "outcome", "took", "end", "node", "attempt", "reason", "why"})
_NARROW = frozenset({"when", "late", "outcome", "took", "end"})


def _drawn(rows: Sequence[_Row], width: int) -> list[Text]:
    """Return the title and the rows; they are laid out here, since what a run wrote goes below its row."""
    shown = _CONDENSED if width < FULL_WIDTH else {name for _, name in _COLUMNS}
    shown = _NARROW if width < CONDENSED_WIDTH else shown
    columns = [(title, name) for title, name in _COLUMNS if name in shown]
    cells = [[title for title, _ in columns], *([getattr(row, name) for _, name in columns] for row in rows)]
    widths = _widths(cells)
    lines = [Text(_INDENT + _glued(cells[0], widths), style="bold")]
    for row, line in zip(rows, cells[1:], strict=True):
        said = _INDENT + _glued(line, widths)
        below = row.worth_a_word and row.why != phrases.NOTHING and ("why" not in shown or cell_len(said) > width)
        if below and "why" in shown:
            said = _INDENT + _glued([*line[:-1], ""], widths)
        glyph, colour = row.look
        text = Text.assemble((glyph, colour), said[len(glyph) :])
        if row.worth_a_word and (start := said.find(row.outcome)) >= 0:
            text.stylize(colour, start, start + len(row.outcome))
        lines += [text, *([Text(f"     {row.why}")] if below else [])]
        lines += [Text(f"     │ {output}", style="dim") for output in row.output]
    return [_one_line(line) for line in lines]


def _rows(view: HistoryView, now_utc: float) -> list[_Row]:
    """Return all rows, oldest first."""
    return [*map(_of_entry, reversed(view.runs)), *(_of_open(run, now_utc) for run in view.open)]


def _of_entry(entry: EntryView) -> _Row:
    several = entry.count is not None and entry.count > 1
    failed = entry.outcome in FAILURES
    return _Row(
        look=_LOOKS.get(entry.outcome, _UNKNOWN_LOOK),
        when=_when(entry.tick or entry.last, entry.started or entry.ended),
        started=_said(entry.started, "milliseconds"),
        late=_late(entry.tick, entry.started),
        outcome=_cell(f"{entry.outcome} x{entry.count:,}" if several else entry.outcome),
        took=phrases.NOTHING if entry.elapsed_s is None else phrases.span(entry.elapsed_s),
        end=_end(entry),
        node=_cell(entry.node),
        token=_cell(entry.token),
        attempt=_cell(entry.attempt),
        reason=_cell(entry.reason),
        why=_why(entry, several=several),
        worth_a_word=entry.outcome in _WORTH_A_WORD,
        output=tuple(map(phrases.clean, entry.output[-OUTPUT_LINES:])) if failed else (),
    )


def _of_open(run: OpenView, now_utc: float) -> _Row:
    retry, began = phrases.utc_of(run.retry), phrases.utc_of(run.started)
    due = "now" if retry is None or retry <= now_utc else f"in {phrases.span(retry - now_utc)}"
    return _Row(
        look=_LOOKS["running" if run.retry is None else "retry"],
        when=_when(run.tick, run.started),
        started=_said(run.started, "milliseconds"),
        late=_late(run.tick, run.started),
        outcome="running" if run.retry is None else f"{'rerun' if run.rerun else 'retry'} {due}",
        took=phrases.NOTHING if began is None else phrases.span(now_utc - began),
        node=_cell(run.node),
        token=_cell(run.token),
        attempt=_cell(run.attempt + (run.retry is not None)),
        reason=_cell(run.reason),
        why=_cell("the run before was lost" if run.rerun else "the attempt before failed" if run.retry else ""),
    )


def _end(entry: EntryView) -> str:
    if entry.signal:
        return f"signal {entry.signal}"
    return phrases.NOTHING if entry.exit_code is None else f"exit {entry.exit_code}"


def _why(entry: EntryView, *, several: bool) -> str:
    # How long the span is stands before the reason: a day without a node reads otherwise than two minutes.
    span = f"from {_said(entry.first, 'auto')} on" if several and entry.first else ""
    return _cell("; ".join(text for text in (span, entry.error, entry.why) if text))


def _late(tick: str | None, started: str | None) -> str:
    due, began = phrases.utc_of(tick), phrases.utc_of(started)
    return phrases.NOTHING if due is None or began is None else phrases.span(began - due)


def _when(tick: str | None, otherwise: str | None) -> str:
    # A tick is told exactly: by it `trigger --tick` finds it again. A start has a column of its own.
    return _said(otherwise, "seconds") if tick is None else _said(tick, "auto")


def _said(instant: str | None, precision: str) -> str:
    """Return an instant of an entry as a cell; as it was written if it is none."""
    if instant is None:
        return phrases.NOTHING
    utc = phrases.utc_of(instant)
    return _cell(instant) if utc is None else _instant(utc, precision)


def _instant(utc: float, precision: str = "auto") -> str:
    """Return an instant in UTC, in seconds or milliseconds; `auto`: milliseconds where it has any."""
    try:
        moment = datetime.fromtimestamp(round(utc, 3), UTC)
    except (ValueError, OverflowError):  # a year that no calendar has, in an entry that nobody of ours wrote
        return phrases.NOTHING
    if precision == "auto":
        precision = "milliseconds" if moment.microsecond else "seconds"
    return moment.replace(tzinfo=None).isoformat(" ", precision)


def _cell(value: object) -> str:
    return phrases.NOTHING if value is None else phrases.clean(value) or phrases.NOTHING


def _widths(cells: Iterable[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*cells, strict=True)]


def _glued(line: Sequence[str], widths: Sequence[int]) -> str:
    padded = (text + " " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True))
    return "  ".join(padded).rstrip()


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
