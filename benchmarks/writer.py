"""Writes numbered lines of 100 bytes as fast as the other end takes them: `writer.py LINES GO`.

It waits until somebody opens the FIFO `GO`, and stays when it is done: the end of a service is not measured.
Run by a bare `python -I -S`, so nothing is imported but the standard library.
"""

import os
import signal
import sys

LINE_BYTES = 100
LINES_A_BLOCK = 1000
_MARK = b"@" * 9
_BLOCK = b"".join(b"%s%03d %s\n" % (_MARK, number, b"x" * 86) for number in range(LINES_A_BLOCK))


def block(number: int) -> bytes:
    """Return the lines from `number` x LINES_A_BLOCK on; each begins with its own number, of 12 digits."""
    return _BLOCK.replace(_MARK, b"%09d" % number)


def _write(lines: int) -> None:
    for number in range(lines // LINES_A_BLOCK):
        left = memoryview(block(number))
        while left:
            left = left[os.write(1, left) :]


if __name__ == "__main__":
    with open(sys.argv[2], "rb") as go:  # noqa: PTH123 - a bare interpreter starts faster
        go.read()
    _write(int(sys.argv[1]))
    while True:
        signal.pause()
