"""The text that keeps an open run: read back as it was written, and never trusted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.nouns import NodeName, OpenRun, RunId, Token
from orchestrator.core.open_runs import LAST_MS, MOST_ATTEMPTS, mark_of, parse_mark

ms = st.integers(0, LAST_MS)
open_runs = st.builds(
    OpenRun,
    run=st.builds(RunId, st.text(min_size=1)),
    tick_ms=st.none() | ms,
    token=st.builds(Token, ms),
    node=st.builds(NodeName, st.text()),
    attempt=st.integers(1, MOST_ATTEMPTS),
    reason=st.text(),
    retry_ms=ms,
    rerun=st.booleans(),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
RIGHT = {
    "tick": 5,
    "token": 7,
    "node": "n1",
    "attempt": 1,
    "reason": "schedule",
    "retry": 0,
    "rerun": False,
    "reruns": 0,
}


@given(open_runs)
def test_an_open_run_is_read_back_as_it_was_written(run: OpenRun) -> None:
    assert parse_mark(run.run, mark_of(run)) == run


@given(open_runs)
def test_a_mark_is_one_line_of_plain_letters(run: OpenRun) -> None:
    """It goes through scripts that look for its token, and over wires that count bytes."""
    text = mark_of(run)

    assert text.isascii()
    assert text.isprintable()
    assert f'"token":{run.token},' in text


@given(st.text() | st.builds(json.dumps, values))
def test_any_text_is_an_open_run_or_none(text: str) -> None:
    assert isinstance(parse_mark("r", text), OpenRun | None)


@given(st.dictionaries(st.sampled_from(sorted(RIGHT)), values))
def test_any_value_of_any_word_is_an_open_run_or_none(forged: dict[str, object]) -> None:
    found = parse_mark("r", json.dumps(RIGHT | forged))

    if found is not None:
        assert parse_mark("r", mark_of(found)) == found


@pytest.mark.parametrize("missing", sorted(RIGHT))
def test_a_mark_without_one_of_its_words_is_none(missing: str) -> None:
    assert parse_mark("r", json.dumps({word: said for word, said in RIGHT.items() if word != missing})) is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("[" * 100_000, id="nested deeply"),
        pytest.param(json.dumps(RIGHT | {"attempt": 0}), id="no attempt"),
        pytest.param(json.dumps(RIGHT | {"reruns": 1}), id="more reruns than attempts"),
        pytest.param(json.dumps(RIGHT | {"tick": LAST_MS + 1}), id="a tick that no calendar has"),
        pytest.param(json.dumps(RIGHT | {"retry": 10**18}), id="another attempt that no calendar has"),
        pytest.param(json.dumps(RIGHT | {"tick": -1}), id="a tick before all clocks"),
        pytest.param(json.dumps(RIGHT | {"attempt": MOST_ATTEMPTS + 1}), id="too many attempts"),
        pytest.param(json.dumps(RIGHT).replace("5", "1e999"), id="an instant beyond all numbers"),
        pytest.param(json.dumps(RIGHT).replace("5", "9" * 5000), id="more digits than Python reads"),
        pytest.param(json.dumps(RIGHT).replace("5", "NaN"), id="no number"),
    ],
)
def test_what_nobody_would_write_is_none(text: str) -> None:
    assert parse_mark("r", text) is None
