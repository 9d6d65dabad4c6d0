from dataclasses import replace

import pytest

from orchestrator.core.snapshot import ClusterView, JobView
from orchestrator.view import top
from orchestrator.view.top import Place
from tests.view.picture import NOW, SHOP, drawn

HEIGHT = 20
PAGE = top.rows_that_fit(HEIGHT)
MANY = replace(SHOP, jobs=tuple(JobView(f"job{number:03}", "service", "running") for number in range(100)))


def test_one_screen_shows_the_table_and_the_selected_job() -> None:
    shown = drawn(top.frame(SHOP, Place(selected=2), now_utc=NOW, width=100, height=HEIGHT), 100)

    assert len(shown) == HEIGHT
    assert shown[0].startswith("shop  nodes 2: n1* n2  redis ok")
    assert shown[4].startswith("▲  bot")
    assert shown[-6:] == [
        "▲ bot  backoff  retry 23s",
        "why     exit 1; try 4 follows",
        "last    -",
        "lease   n1*  token 1789999000002  ▮▮▯▯▯▯ 5.0s/15s",
        "key     -",
        "3/4   ↑↓ or j k: choose   PgUp PgDn   g G: first, last   q: quit",
    ]


@pytest.mark.parametrize("height", [1, 4, 10, 16, 50])
@pytest.mark.parametrize("view", [SHOP, MANY, ClusterView("empty")], ids=["a few jobs", "many jobs", "no job"])
def test_a_screen_is_never_longer_than_the_window(view: ClusterView, height: int) -> None:
    place = top.moved(Place(99, 99), None, rows=len(view.jobs), height=height)

    shown = drawn(top.frame(view, place, now_utc=NOW, width=60, height=height), 60)

    assert len(shown) == max(height, 4)


def test_only_the_rows_that_fit_are_drawn() -> None:
    shown = drawn(top.frame(MANY, Place(50, 45), now_utc=NOW, width=100, height=HEIGHT), 100)

    assert [line[3:9] for line in shown[2 : 2 + PAGE]] == [f"job{number:03}" for number in range(45, 45 + PAGE)]


@pytest.mark.parametrize(
    ("place", "move", "expected"),
    [
        pytest.param(Place(0, 0), "up", Place(0, 0), id="not above the first"),
        pytest.param(Place(0, 0), "down", Place(1, 0), id="one down"),
        pytest.param(Place(PAGE - 1, 0), "down", Place(PAGE, 1), id="the list follows at the end of the page"),
        pytest.param(Place(5, 5), "up", Place(4, 4), id="and at its beginning"),
        pytest.param(Place(0, 0), "page_down", Place(PAGE, 1), id="a page down"),
        pytest.param(Place(3, 0), "last", Place(99, 100 - PAGE), id="to the last"),
        pytest.param(Place(99, 100 - PAGE), "first", Place(0, 0), id="to the first"),
        pytest.param(Place(99, 100 - PAGE), "down", Place(99, 100 - PAGE), id="not below the last"),
    ],
)
def test_a_move_keeps_the_selected_row_in_sight(place: Place, move: top.Move, expected: Place) -> None:
    assert top.moved(place, move, rows=100, height=HEIGHT) == expected


def test_the_place_survives_a_list_that_got_shorter() -> None:
    assert top.moved(Place(99, 90), None, rows=3, height=HEIGHT) == Place(2, 0)
    assert top.moved(Place(99, 90), None, rows=0, height=HEIGHT) == Place(0, 0)


def test_a_redis_that_does_not_answer_is_said_in_the_headline_and_an_old_picture_at_the_foot() -> None:
    away = replace(SHOP, redis={"ok": False, "problem": "connection refused"})

    shown = drawn(top.frame(away, Place(), now_utc=NOW, width=100, height=HEIGHT, note="the picture is 3s old"), 100)

    assert "redis unreachable: connection refused" in shown[0]
    assert shown[-1] == "the picture is 3s old"
