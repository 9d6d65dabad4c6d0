"""The status table: one row a job, in as many columns as the terminal has room for.

| width          | columns                                                             |
|----------------|---------------------------------------------------------------------|
| 140 and more   | job kind state holder token lease (bar, seconds) pid up/next last why |
| 100 and more   | job state holder lease (bar, seconds) up/next why                   |
| less           | job state holder lease (seconds); below the table why, where it matters |
| not a terminal | all of them, one line a job, whatever the width                     |
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.core.snapshot import ClusterView, JobView, State
from orchestrator.view import phrases

FULL_WIDTH = 140
CONDENSED_WIDTH = 100

TROUBLED = frozenset({State.FAILED, State.BLOCKED, State.UNHELD})
"""States of an enabled job that make a cluster degraded: it ought to run, and no node sees to it."""

_WORTH_A_WORD = TROUBLED | {State.BACKOFF, State.STOPPED, State.PAUSED}


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cell: Callable[[JobView], str | Text]
    right: bool = False
    may_shrink: bool = False


def status(view: ClusterView, *, now_utc: float, width: int) -> RenderableType:
    """Return the whole picture for a terminal: the headline, the table, and what needs a word."""
    parts: list[RenderableType] = [headline(view), table(view, view.jobs, now_utc=now_utc, width=width)]
    if width < CONDENSED_WIDTH:
        parts += reasons(view.jobs)
    return Group(*parts)


def plain_status(view: ClusterView, *, now_utc: float) -> str:
    """Return the whole picture for a pipe: no colour, no glyph, no box, the same columns always."""
    return "\n".join([headline(view).plain, *plain_table(_columns(view, now_utc, FULL_WIDTH, plain=True), view.jobs)])


def headline(view: ClusterView) -> Text:
    """Return one line: the cluster, its live nodes, Redis, and how many jobs are in which state."""
    line = Text.assemble((phrases.clean(view.cluster), "bold"), f"  nodes {len(view.nodes)}")
    if view.nodes:
        names = (phrases.clean(node.name) + ("*" if node.name == view.node else "") for node in view.nodes)
        line.append(": " + " ".join(names))
    line.append("  ").append_text(redis_word(view))
    counts = Counter(row.state for row in view.jobs)
    line.append(f"  jobs {len(view.jobs)}")
    line.append(": " + ", ".join(f"{counts[state]} {state}" for state in State if counts[state]) if counts else "")
    return line


def redis_word(view: ClusterView) -> Text:
    """Return whether Redis answers."""
    if view.redis.get("ok", True):
        return Text("redis ok")
    return Text(f"redis unreachable: {phrases.clean(view.redis.get('problem', ''))}", style="bold red")


def table(
    view: ClusterView, rows: Sequence[JobView], *, now_utc: float, width: int, selected: int | None = None
) -> Table:
    """Return the table of some rows; `selected` is the index of the one drawn in reverse."""
    columns = _columns(view, now_utc, width, plain=False)
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    drawn.add_column("", no_wrap=True)
    for column in columns:
        # rich takes room from columns that may wrap before it touches the others; their cells do not wrap anyway.
        justify: Literal["left", "right"] = "right" if column.right else "left"
        drawn.add_column(column.title, justify=justify, no_wrap=not column.may_shrink, overflow="ellipsis")
    for index, row in enumerate(rows):
        style = "reverse" if index == selected else None
        drawn.add_row(phrases.glyph(row.state), *(_text(column.cell(row)) for column in columns), style=style)
    return drawn


def plain_table(columns: Sequence[_Column], rows: Iterable[JobView]) -> list[str]:
    """Return one line a row, columns two spaces apart, the title line first."""
    cells = [[column.title for column in columns]]
    cells += [[_text(column.cell(row)).plain for column in columns] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(_padded(*pair) for pair in zip(line, widths, strict=True)).rstrip() for line in cells]


def reasons(rows: Iterable[JobView]) -> list[Text]:
    """Return why, one line for each job whose state calls for it."""
    told = [row for row in rows if row.why and row.state in _WORTH_A_WORD]
    return [
        Text.assemble(phrases.glyph(row.state), f" {phrases.clean(row.name)}: {phrases.clean(row.why)}") for row in told
    ]


def _columns(view: ClusterView, now_utc: float, width: int, *, plain: bool) -> list[_Column]:
    def lease(row: JobView) -> str | Text:
        left = phrases.lease_left(row)
        return left if plain or width < CONDENSED_WIDTH else Text.assemble(phrases.lease_bar(row), " ", left)

    columns = [
        _Column("JOB", lambda row: row.name, may_shrink=True),
        _Column("STATE", lambda row: phrases.state_word(row.state)),
        _Column("HOLDER", lambda row: phrases.holder(row, view.node)),
        _Column("LEASE", lease),
    ]
    if width >= CONDENSED_WIDTH:
        columns += [
            _Column("UP/NEXT", lambda row: phrases.up_or_next(row, now_utc)),
            _Column("WHY", lambda row: row.why, may_shrink=True),
        ]
    if width >= FULL_WIDTH:
        columns.insert(1, _Column("KIND", lambda row: row.kind))
        columns.insert(4, _Column("TOKEN", lambda row: _number(row.token), right=not plain))
        columns.insert(6, _Column("PID", lambda row: _number(row.pid), right=not plain))
        columns.insert(8, _Column("LAST", lambda row: phrases.last_end(row, now_utc), may_shrink=True))
    return columns


def _number(value: int | None) -> str:
    return phrases.NOTHING if value is None else str(value)


def _text(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(phrases.clean(cell) or phrases.NOTHING, no_wrap=True)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
