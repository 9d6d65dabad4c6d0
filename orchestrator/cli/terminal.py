"""Owns the terminal while a live view is on: keys come in one by one, and it is given back as it was found.

Knows escape sequences and terminal modes; must never know what is shown.
The mode is restored on every way out: the end of the `with`, an exception, and (by `released`) a suspension.
"""

import contextlib
import os
import signal
import termios
import tty
from collections.abc import Iterator
from typing import Self

_KEYS = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"k": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"j": "down",
    b"\x1b[5~": "page_up",
    b"\x1b[6~": "page_down",
    b" ": "page_down",
    b"\x1b[H": "first",
    b"\x1bOH": "first",
    b"\x1b[1~": "first",
    b"g": "first",
    b"\x1b[F": "last",
    b"\x1bOF": "last",
    b"\x1b[4~": "last",
    b"G": "last",
    b"q": "quit",
    b"Q": "quit",
    b"\x03": "quit",
    b"\x04": "quit",
}
"""What terminals send (xterm's and vt220's way), and what it means."""

_LONGEST_READ_BYTES = 1024


class Keyboard:
    """Keys of a terminal, without waiting for the end of a line and without echo."""

    def __init__(self, descriptor: int) -> None:
        """Remember which terminal; nothing is changed before `with`."""
        self._descriptor = descriptor
        self._found: list[object] = []
        self._rest = b""

    def __enter__(self) -> Self:
        """Take the terminal."""
        self._found = termios.tcgetattr(self._descriptor)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back as it was found."""
        self._give_back()

    def read(self) -> list[str] | None:
        """Return the keys that were typed, known ones only; None: the terminal is gone. Called when readable."""
        try:
            typed = os.read(self._descriptor, _LONGEST_READ_BYTES)
        except OSError:
            return None
        if not typed:
            return None
        keys, self._rest = split_keys(self._rest + typed)
        return keys

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Give the terminal back for a while, and take it again."""
        self._give_back()
        try:
            yield
        finally:
            self._take()

    def _take(self) -> None:
        # TCSADRAIN: the default throws away what was typed meanwhile.
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)

    def _give_back(self) -> None:
        # From the background the kernel would stop us here, before we are done (SIGTTOU, termios(3)).
        ignored = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(termios.error):  # a terminal that was closed needs nothing any more
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._found)  # type: ignore[arg-type] # its own list
        signal.signal(signal.SIGTTOU, ignored)


def split_keys(typed: bytes) -> tuple[list[str], bytes]:
    """Split what a terminal sent into known keys, and the beginning of a sequence that is not complete yet."""
    keys: list[str] = []
    while typed:
        length = _length_of_first(typed)
        if length == 0:
            return keys, typed
        key = _KEYS.get(typed[:length])
        if key is not None:
            keys.append(key)
        typed = typed[length:]
    return keys, b""


def _length_of_first(typed: bytes) -> int:
    """Return how many bytes the first key has, 0 if its sequence is not complete."""
    if not typed.startswith((b"\x1b[", b"\x1bO")):
        return 0 if typed == b"\x1b" else 1
    if typed[1:2] == b"O":
        return 3 if len(typed) > 2 else 0  # noqa: PLR2004 - ESC O and one letter
    for index, byte in enumerate(typed[2:], start=3):
        if 0x40 <= byte <= 0x7E:  # noqa: PLR2004 - the final byte of a control sequence (ECMA-48)
            return index
    return 0
