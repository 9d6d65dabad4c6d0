import os
import pty
import termios
from collections.abc import Iterator

import pytest

from orchestrator.cli.terminal import Keyboard, split_keys


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Return both ends of a terminal: whoever types, and the program."""
    user, program = pty.openpty()
    yield user, program
    for end in (user, program):
        os.close(end)


@pytest.mark.parametrize(
    ("typed", "keys", "rest"),
    [
        pytest.param(b"jjk", ["down", "down", "up"], b"", id="letters"),
        pytest.param(b"\x1b[A\x1bOB\x1b[5~\x1b[6~", ["up", "down", "page_up", "page_down"], b"", id="arrows"),
        pytest.param(b"\x1b[H\x1b[4~gG", ["first", "last", "first", "last"], b"", id="home and end"),
        pytest.param(b"xyz\xc3\xa4\x1b[15~\x1b[1;5Aq", ["quit"], b"", id="keys that mean nothing"),
        pytest.param(b"j\x1b", ["down"], b"\x1b", id="an escape that may begin a key"),
        pytest.param(b"j\x1b[1;", ["down"], b"\x1b[1;", id="a key that is not complete"),
        pytest.param(b"\x1b\x1b[A", ["up"], b"", id="an escape alone before a key"),
    ],
)
def test_what_a_terminal_sends_is_split_into_keys(typed: bytes, keys: list[str], rest: bytes) -> None:
    assert split_keys(typed) == (keys, rest)


def test_a_key_may_come_in_two_pieces(terminal: tuple[int, int]) -> None:
    user, program = terminal

    with Keyboard(program) as keyboard:
        os.write(user, b"\x1b[")
        first = keyboard.read()
        os.write(user, b"A")

        assert (first, keyboard.read()) == ([], ["up"])


def test_keys_come_without_return_and_the_terminal_is_given_back_as_it_was(terminal: tuple[int, int]) -> None:
    _, program = terminal
    found = termios.tcgetattr(program)

    with Keyboard(program) as keyboard:
        taken = termios.tcgetattr(program)[3]
        with keyboard.released():
            released = termios.tcgetattr(program)
        taken_again = termios.tcgetattr(program)[3]

    assert not taken & (termios.ICANON | termios.ECHO)
    assert taken & termios.ISIG
    assert taken_again == taken
    assert released == found
    assert termios.tcgetattr(program) == found


def test_a_terminal_that_is_gone_is_no_error() -> None:
    user, program = pty.openpty()
    with Keyboard(program) as keyboard:
        os.close(user)

        assert keyboard.read() is None
    os.close(program)
