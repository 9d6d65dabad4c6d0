from dataclasses import replace

import pytest

from orchestrator.core.snapshot import ClusterView, JobView, NodeView
from orchestrator.view import table
from tests.view.picture import BEAT, NOW, SHOP, drawn

HEADLINE = "shop  nodes 2: n1* n2  redis ok  jobs 4: 1 waiting, 1 running, 1 backoff, 1 unheld"

FULL = [
    HEADLINE,
    "   JOB       KIND     STATE    HOLDER          TOKEN  LEASE              PID  UP/NEXT    LAST               WHY",
    "●  beat      service  running  n1*     1789999000000  ▮▮▮▮▮▯ 12.4s/15s  4711  up 3d04h   -                  -",
    "○  invoices  cron     waiting  n2      1789999000001  ▮▮▮▮▮▮ 14.9s/15s     -  in 12m31s  ok 41s, 2h00m ago  -",
    (
        "▲  bot       service  backoff  n1*     1789999000002  ▮▮▯▯▯▯ 5.0s/15s      -  retry 23s  -                  "
        "exit 1; try 4 follows"
    ),
    (
        "◌  import    cron     unheld   -                   -         -/15s         -  -          -                  "
        "no node holds the lease"
    ),
]
CONDENSED = [
    HEADLINE,
    "   JOB       STATE    HOLDER  LEASE             UP/NEXT    WHY",
    "●  beat      running  n1*     ▮▮▮▮▮▯ 12.4s/15s  up 3d04h   -",
    "○  invoices  waiting  n2      ▮▮▮▮▮▮ 14.9s/15s  in 12m31s  -",
    "▲  bot       backoff  n1*     ▮▮▯▯▯▯ 5.0s/15s   retry 23s  exit 1; try 4 follows",
    "◌  import    unheld   -              -/15s      -          no node holds the lease",
]
MINI = [
    "shop  nodes 2: n1* n2  redis ok  jobs 4: 1 waiting, 1 running, 1 backoff, 1",
    "unheld",
    "   JOB       STATE    HOLDER  LEASE",
    "●  beat      running  n1*     12.4s/15s",
    "○  invoices  waiting  n2      14.9s/15s",
    "▲  bot       backoff  n1*     5.0s/15s",
    "◌  import    unheld   -       -/15s",
    "▲ bot: exit 1; try 4 follows",
    "◌ import: no node holds the lease",
]
PLAIN = [
    HEADLINE,
    "JOB       KIND     STATE    HOLDER  TOKEN          LEASE      PID   UP/NEXT    LAST               WHY",
    "beat      service  running  n1*     1789999000000  12.4s/15s  4711  up 3d04h   -                  -",
    "invoices  cron     waiting  n2      1789999000001  14.9s/15s  -     in 12m31s  ok 41s, 2h00m ago  -",
    (
        "bot       service  backoff  n1*     1789999000002  5.0s/15s   -     retry 23s  -                  "
        "exit 1; try 4 follows"
    ),
    (
        "import    cron     unheld   -       -              -/15s      -     -          -                  "
        "no node holds the lease"
    ),
]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        pytest.param(150, FULL, id="a wide terminal shows everything"),
        pytest.param(139, CONDENSED, id="a middling one what changes"),
        pytest.param(99, MINI, id="a small one the least, and why below"),
    ],
)
def test_the_width_decides_which_columns_are_shown(width: int, expected: list[str]) -> None:
    shown = drawn(table.status(SHOP, now_utc=NOW, width=width), 80 if width == 99 else width)

    assert shown == expected


def test_a_pipe_gets_every_column_without_glyph_and_box() -> None:
    assert table.plain_status(SHOP, now_utc=NOW).splitlines() == PLAIN


def test_why_gives_way_before_anything_else_is_cut() -> None:
    long = replace(SHOP, jobs=(replace(BEAT, why="because " * 40),))

    lines = drawn(table.status(long, now_utc=NOW, width=140), 140)

    assert len(lines) == 3
    assert lines[2].startswith("●  beat  service  running  n1*     1789999000000  ▮▮▮▮▮▯ 12.4s/15s  4711  up 3d04h")
    assert lines[2].endswith("…")


def test_a_hostile_name_neither_moves_the_cursor_nor_becomes_markup() -> None:
    row = JobView("[red]x[/red]\x1b[2J", "service", "\x1b[0m", holder="n\x07", why="[/]\x1b]0;owned\x07")
    hostile = ClusterView("s\x1bc", None, (NodeView("n\r2"),), (row,), {"ok": False, "problem": "\x1b[1m"})

    shown = "\n".join(drawn(table.status(hostile, now_utc=NOW, width=160), 160))
    plain = table.plain_status(hostile, now_utc=NOW)

    for text in (shown, plain):
        assert not set(text) & {"\x1b", "\x07", "\r"}
        assert r"[red]x[/red]\x1b[2J" in text
        assert r"redis unreachable: \x1b[1m" in text


def test_an_empty_cluster_has_a_headline_and_titles() -> None:
    assert table.plain_status(ClusterView("shop"), now_utc=NOW).splitlines()[0] == "shop  nodes 0  redis ok  jobs 0"
