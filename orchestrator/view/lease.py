"""The lease inspector: who holds what, under which token, for how long still."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.core.snapshot import JobView, LeaseReading, iso_utc
from orchestrator.view import phrases

CARD_BAR_CELLS = 30
_LAST_READABLE_TOKEN_MS = 253_402_300_799_999
"""The end of the year 9999. A token is a server time in ms; one that somebody wrote by hand need not be."""


@dataclass(frozen=True, slots=True)
class LeaseView:
    """One lease; the documented shape of `lease --json`. Times are ISO 8601 UTC texts.

    Attributes:
        holder: None: nobody.
        incarnation: Random name of the holder's process; None where Redis was not read.
        issued: When the token was issued: since when this holder has it.
        left_ms: Until it runs out if it is not renewed; -1: never, somebody wrote it by hand.
        since: When the present run began, None between runs.
        key: Full name of the key, "" where Redis was not read.
        last_token: The newest token ever issued, also of holders long gone; None where Redis was not read.
        released_token: The token that was last given back in order; None: none is known.
    """

    job: str
    state: str
    holder: str | None
    incarnation: str | None
    token: int | None
    issued: str | None
    left_ms: int | None
    ttl_ms: int | None
    since: str | None
    key: str
    last_token: int | None
    released_token: int | None
    why: str

    def to_json(self) -> dict[str, object]:
        """Return the documented shape."""
        return asdict(self)


def lease_of(row: JobView, reading: LeaseReading | None) -> LeaseView:
    """Join the row of a job with what Redis says of its lease, if it was read."""
    holds = reading is not None and reading.value is not None and reading.value.token == row.token
    return LeaseView(
        job=row.name,
        state=row.state,
        holder=row.holder,
        incarnation=reading.value.incarnation if holds and reading and reading.value else None,
        token=row.token,
        issued=issued_at(row.token),
        left_ms=row.lease_ms,
        ttl_ms=row.ttl_ms,
        since=row.since,
        key=reading.key if reading else row.key,
        last_token=(reading.token or None) if reading else None,
        released_token=(reading.released or None) if reading else None,
        why=row.why,
    )


def issued_at(token: int | None) -> str | None:
    """Return when a token was issued: it is the server's time in milliseconds."""
    return None if token is None or not 0 < token <= _LAST_READABLE_TOKEN_MS else iso_utc(token / 1000)


def leases(rows: Sequence[tuple[JobView, LeaseView]], *, node: str | None, now_utc: float) -> Table:
    """Return the table of all leases, for a terminal."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    drawn.add_column("")
    for title in _TITLES:
        # rich takes room from columns that may wrap first: a key's beginning says nothing new.
        drawn.add_column(title, no_wrap=title != "KEY", overflow="ellipsis")
    for row, lease in rows:
        left = Text.assemble(phrases.lease_bar(row), " ", phrases.lease_left(row))
        job, holder, token, _, held, key = _cells(row, lease, node, now_utc)
        texts = (Text(job), Text(holder), Text(token), left, Text(held), Text(key, no_wrap=True))
        drawn.add_row(phrases.glyph(row.state), *texts)
    return drawn


def plain_leases(rows: Sequence[tuple[JobView, LeaseView]], *, node: str | None, now_utc: float) -> str:
    """Return the table of all leases, for a pipe."""
    cells = [_TITLES, *(_cells(row, lease, node, now_utc) for row, lease in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = (zip(line, widths, strict=True) for line in cells)
    return "\n".join(
        "  ".join(text + " " * (width - cell_len(text)) for text, width in line).rstrip() for line in lines
    )


def card(row: JobView, lease: LeaseView, *, node: str | None, now_utc: float) -> RenderableType:
    """Return all that is known of one lease, for a terminal."""
    lines: list[RenderableType] = [Text.assemble(phrases.glyph(row.state), " ", (phrases.clean(row.name), "bold"))]
    for title, value in _facts(row, lease, node, now_utc):
        line = Text.assemble((f"  {title:<{_TITLE_WIDTH}}", "bright_black"), value)
        if title == "left":
            line = Text.assemble(line, "  ", phrases.lease_bar(row, CARD_BAR_CELLS))
        lines.append(line)
    return Group(*lines)


def plain_card(row: JobView, lease: LeaseView, *, node: str | None, now_utc: float) -> str:
    """Return all that is known of one lease, for a pipe."""
    facts = [("job", phrases.clean(row.name)), *_facts(row, lease, node, now_utc)]
    return "\n".join(f"{title:<{_TITLE_WIDTH}}{value}" for title, value in facts)


_TITLES = ("JOB", "HOLDER", "TOKEN", "LEASE", "HELD FOR", "KEY")
_TITLE_WIDTH = 16


def _cells(row: JobView, lease: LeaseView, node: str | None, now_utc: float) -> tuple[str, ...]:
    issued = phrases.utc_of(lease.issued)
    return (
        phrases.clean(row.name),
        phrases.holder(row, node),
        phrases.NOTHING if row.token is None else str(row.token),
        phrases.lease_left(row),
        phrases.NOTHING if issued is None else phrases.span(now_utc - issued),
        phrases.clean(lease.key) or phrases.NOTHING,
    )


def _facts(row: JobView, lease: LeaseView, node: str | None, now_utc: float) -> list[tuple[str, str]]:
    return [
        ("state", phrases.clean(row.state) + (f": {phrases.clean(row.why)}" if row.why else "")),
        ("holder", phrases.holder(row, node)),
        ("incarnation", phrases.clean(lease.incarnation or phrases.NOTHING)),
        ("token", phrases.NOTHING if lease.token is None else str(lease.token)),
        ("issued", phrases.ago(lease.issued, now_utc)),
        ("left", phrases.lease_left(row)),
        ("run since", phrases.ago(row.since, now_utc)),
        ("key", phrases.clean(lease.key) or phrases.NOTHING),
        ("newest token", phrases.NOTHING if lease.last_token is None else str(lease.last_token)),
        ("last released", phrases.NOTHING if lease.released_token is None else str(lease.released_token)),
    ]
