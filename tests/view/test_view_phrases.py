import pytest

from orchestrator.core.snapshot import JobView, State
from orchestrator.view import phrases

NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("beat", "beat", id="plain text stays"),
        pytest.param("Zürich ✓ 東京", "Zürich ✓ 東京", id="letters of the world stay"),
        pytest.param("a\x1b[2Jb", r"a\x1b[2Jb", id="escape cannot move the cursor"),
        pytest.param("a\rb\nc\td", r"a\x0db\x0ac\x09d", id="line ends stay on the line"),
        pytest.param("a\x9bb", r"a\x9bb", id="the one-byte control sequence introducer"),
        pytest.param("a\u202eb\u2066c", r"a\u202eb\u2066c", id="reversed text is not reversed"),
        pytest.param("a\u2028b\u200b", r"a\u2028b\u200b", id="separators and zero-width marks are seen"),
        pytest.param("\ud800", r"\ud800", id="a lone surrogate can be printed"),
        pytest.param("\U000e0041", r"\U000e0041", id="invisible tags are seen"),
    ],
)
def test_what_came_from_strangers_can_only_be_read(text: str, shown: str) -> None:
    assert phrases.clean(text) == shown


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3.0, "0.0s"),
        (0.44, "0.4s"),
        (9.9, "9.9s"),
        (41.7, "41s"),
        (751, "12m31s"),
        (3 * 3600 + 240, "3h04m"),
        (3 * 86400 + 4 * 3600, "3d04h"),
    ],
)
def test_a_duration_is_said_in_at_most_two_units(seconds: float, said: str) -> None:
    assert phrases.span(seconds) == said


def test_every_state_has_a_glyph_and_a_colour_never_stands_alone() -> None:
    colours: dict[str, set[str]] = {}
    for mark, colour in phrases.GLYPHS.values():
        colours.setdefault(colour, set()).add(mark)

    assert set(phrases.GLYPHS) == set(State)
    assert not any(one & other for name, one in colours.items() for twin, other in colours.items() if name != twin)


@pytest.mark.parametrize(
    ("left_ms", "bar", "colour"),
    [
        (15_000, "▮▮▮▮▮▮", "green"),
        (7_600, "▮▮▮▯▯▯", "green"),
        (7_400, "▮▮▮▯▯▯", "yellow"),
        (3_000, "▮▯▯▯▯▯", "red"),
        (-1, "▮▮▮▮▮▮", "green"),
    ],
)
def test_the_lease_bar_is_green_above_a_half_yellow_above_a_quarter_red_below(
    left_ms: int, bar: str, colour: str
) -> None:
    drawn = phrases.lease_bar(JobView("beat", "service", holder="n1", lease_ms=left_ms, ttl_ms=15_000))

    assert (drawn.plain, drawn.style) == (bar, colour)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        pytest.param(
            JobView("a", "service", holder="n1", lease_ms=12_400, ttl_ms=15_000), "12.4s/15s", id="a held lease"
        ),
        pytest.param(JobView("a", "service", ttl_ms=15_000), "-/15s", id="nobody holds it"),
        pytest.param(JobView("a", "service", holder="n1", lease_ms=900), "0.9s", id="its ttl is unknown"),
        pytest.param(
            JobView("a", "service", holder="n1", lease_ms=-1, ttl_ms=2500), "never ends/2.5s", id="written by hand"
        ),
        pytest.param(JobView("a", "service"), "-", id="nothing is known"),
    ],
)
def test_a_lease_is_said_with_its_ttl(row: JobView, said: str) -> None:
    assert phrases.lease_left(row) == said


@pytest.mark.parametrize(
    ("row", "said"),
    [
        pytest.param(
            JobView("a", "service", "running", pid=7, since="2026-09-21T14:00:00.000Z"), "up 13m20s", id="running"
        ),
        pytest.param(JobView("a", "cron", "waiting", next="2026-09-21T14:25:51.000Z"), "in 12m31s", id="waiting"),
        pytest.param(JobView("a", "service", "backoff", next="2026-09-21T14:13:43.000Z"), "retry 23s", id="backoff"),
        pytest.param(JobView("a", "cron", "waiting", next="2026-09-21T14:00:00.000Z"), "in now", id="overdue"),
        pytest.param(JobView("a", "cron", "waiting", next="soon"), "-", id="no instant at all"),
    ],
)
def test_a_row_says_how_long_it_is_up_or_when_it_is_due(row: JobView, said: str) -> None:
    assert phrases.up_or_next(row, NOW) == said


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (None, "-"),
        (
            {"outcome": "ok", "exit_code": 0, "elapsed_s": 41.2, "ended": "2026-09-21T12:13:20.000Z"},
            "ok 41s, 2h00m ago",
        ),
        ({"outcome": "failed", "exit_code": 1, "elapsed_s": 0.3, "ended": None}, "exit 1 0.3s"),
        ({"outcome": "lost", "signal": 9, "elapsed_s": 3}, "signal 9 3.0s"),
        ({"outcome": "failed", "error": "no such file: \x1b[2J"}, r"no such file: \x1b[2J"),
        ({"outcome": 7, "elapsed_s": "long"}, "it never started"),
    ],
)
def test_the_end_of_the_last_run_is_said_in_one_phrase(last: dict[str, object] | None, said: str) -> None:
    assert phrases.last_end(JobView("a", "service", last=last), NOW) == said
