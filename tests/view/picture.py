"""A cluster to be drawn, and a terminal without colour to draw it on."""

from rich.console import Console, RenderableType

from orchestrator.core.snapshot import ClusterView, JobView, NodeView, iso_utc

NOW = 1_790_000_000.0

BEAT = JobView(
    "beat",
    "service",
    "running",
    holder="n1",
    token=1_789_999_000_000,
    lease_ms=12_400,
    ttl_ms=15_000,
    pid=4711,
    since=iso_utc(NOW - 3 * 86_400 - 4 * 3600),
    key="orchestrator:{shop:3}:beat:lease",
)
INVOICES = JobView(
    "invoices",
    "cron",
    "waiting",
    holder="n2",
    token=1_789_999_000_001,
    lease_ms=14_900,
    ttl_ms=15_000,
    next=iso_utc(NOW + 751),
    last={"outcome": "ok", "elapsed_s": 41.2, "ended": iso_utc(NOW - 7200)},
)
BOT = JobView(
    "bot",
    "service",
    "backoff",
    holder="n1",
    token=1_789_999_000_002,
    lease_ms=5_000,
    ttl_ms=15_000,
    next=iso_utc(NOW + 23),
    why="exit 1; try 4 follows",
)
IMPORT = JobView("import", "cron", "unheld", ttl_ms=15_000, why="no node holds the lease")

SHOP = ClusterView("shop", "n1", (NodeView("n1"), NodeView("n2")), (BEAT, INVOICES, BOT, IMPORT), {"ok": True})


def drawn(what: RenderableType, width: int) -> list[str]:
    """Return what a terminal of a width shows, line by line, without the blanks at the ends."""
    console = Console(width=width, color_system=None, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(what)
    return [line.rstrip() for line in capture.get().splitlines()]
