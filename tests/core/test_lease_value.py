"""What stands under a lease key is read as a lease or counts as absent; nothing else can come of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.nouns import LeaseValue, NodeName, Token, parse_lease_value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "|",
        "||",
        "17",
        "17|a",
        "17||a1",
        "17|a|",
        "|a|a1",
        "-17|a|a1",
        "+17|a|a1",
        "1_7|a|a1",
        "1.7e3|a|a1",
        " 17|a|a1",
        "17 |a|a1",
        "٣|a|a1",
        "²|a|a1",
        "1234567890123456|a|a1",
        "host:4711",
        '{"node":"a"}',
        "\0" * 40,
    ],
)
def test_what_is_no_lease_value_counts_as_absent(text: str) -> None:
    assert parse_lease_value(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17|a|a1", LeaseValue(Token(17), NodeName("a"), "a1")),
        ("123456789012345|a|a1", LeaseValue(Token(123_456_789_012_345), NodeName("a"), "a1")),
        ("17|rack|a|a1", LeaseValue(Token(17), NodeName("rack|a"), "a1")),
        ("17|nœud à|a1", LeaseValue(Token(17), NodeName("nœud à"), "a1")),
    ],
    ids=["plain", "the longest token", "a bar in the node's name", "a name in another script"],
)
def test_a_lease_value_is_read_back(text: str, value: LeaseValue) -> None:
    assert parse_lease_value(text) == value
    assert str(value) == text


@given(
    token=st.integers(1, 10**15 - 1),
    node=st.text(min_size=1),
    incarnation=st.text(st.characters(exclude_characters="|"), min_size=1),
)
def test_every_value_that_is_written_is_read_as_it_was(token: int, node: str, incarnation: str) -> None:
    value = LeaseValue(Token(token), NodeName(node), incarnation)

    assert parse_lease_value(str(value)) == value


@given(st.text())
def test_no_text_whatever_is_an_error(text: str) -> None:
    value = parse_lease_value(text)

    assert value is None or str(value).lstrip("0") == text.lstrip("0")
