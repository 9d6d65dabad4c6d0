"""The live picture: one screen of the status table, with the selected job's details at the bottom.

    headline                      cluster, nodes, Redis, counts; a banner where Redis does not answer
    table                         only the rows that fit
    rule, details of one job      its full why, last run, lease
    the keys there are

Knows a window's size and where in the list its user stands; `cli/top.py` reads keys and owns the terminal.
"""

from dataclasses import dataclass
from typing import Literal

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.core.snapshot import ClusterView, JobView
from orchestrator.view import phrases, table

Move = Literal["up", "down", "page_up", "page_down", "first", "last"]

DETAIL_LINES = 6
"""A rule and five facts."""
_FRAME_LINES = 3
"""The headline, the table's titles, the line of keys."""
_SHORTEST_WITH_DETAILS = 16
_KEYS = "↑↓ or j k: choose   PgUp PgDn   g G: first, last   q: quit"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the list of jobs the user stands.

    Attributes:
        selected: Index of the chosen row.
        top: Index of the first row drawn.
    """

    selected: int = 0
    top: int = 0


def moved(place: Place, move: Move | None, *, rows: int, height: int) -> Place:
    """Return the place after a move, or after the list or the window changed (`None`).

    Args:
        place: Where the user stood.
        move: What was asked for.
        rows: How many jobs there are now.
        height: Lines of the window now.
    """
    page = rows_that_fit(height)
    step = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "first": -rows, "last": rows}
    selected = place.selected + (step[move] if move else 0)
    selected = max(0, min(rows - 1, selected))
    top = max(0, min(place.top, selected, rows - page))
    return Place(selected, max(top, selected - page + 1))


def rows_that_fit(height: int) -> int:
    """Return how many jobs a window shows."""
    details = DETAIL_LINES if height >= _SHORTEST_WITH_DETAILS else 0
    return max(1, height - _FRAME_LINES - details)


def frame(
    view: ClusterView, place: Place, *, now_utc: float, width: int, height: int, note: str = ""
) -> RenderableType:
    """Return one screen.

    Args:
        view: What is shown.
        place: Where the user stands; made to fit by `moved`.
        now_utc: The time.
        width: Columns of the window.
        height: Its lines.
        note: Why the picture is old, "" if it is not.
    """
    page = rows_that_fit(height)
    shown = view.jobs[place.top : place.top + page]
    drawn = table.table(view, shown, now_utc=now_utc, width=width, selected=place.selected - place.top)
    parts: list[RenderableType] = [_one_line(table.headline(view)), drawn]
    parts += [Text()] * (page - len(shown))
    if height >= _SHORTEST_WITH_DETAILS:
        selected = view.jobs[place.selected] if place.selected < len(view.jobs) else None
        parts += [Text("─" * width, style="bright_black"), *_details(selected, view.node, now_utc)]
    parts.append(_foot(note, len(view.jobs), place))
    return Group(*parts)


def _details(row: JobView | None, node: str | None, now_utc: float) -> list[Text]:
    if row is None:
        return [_one_line(Text("no job"))] + [Text()] * (DETAIL_LINES - 2)
    title = Text.assemble(phrases.glyph(row.state), " ", (phrases.clean(row.name), "bold"), "  ")
    title.append_text(phrases.state_word(row.state)).append(f"  {phrases.up_or_next(row, now_utc)}")
    lease = Text.assemble(
        f"lease   {phrases.holder(row, node)}  token {phrases.NOTHING if row.token is None else row.token}  ",
        phrases.lease_bar(row),
        f" {phrases.lease_left(row)}",
    )
    facts = [
        title,
        Text(f"why     {phrases.clean(row.why) or phrases.NOTHING}"),
        Text(f"last    {phrases.last_end(row, now_utc)}"),
        lease,
        Text(f"key     {phrases.clean(row.key) or phrases.NOTHING}"),
    ]
    return [_one_line(fact) for fact in facts]


def _foot(note: str, rows: int, place: Place) -> Text:
    if note:
        return _one_line(Text(phrases.clean(note), style="bold red"))
    where = f"{place.selected + 1}/{rows}   " if rows else ""
    return _one_line(Text(where + _KEYS, style="bright_black"))


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
