"""The streams of a command, whatever the shell made of them: closed, on a full disk, read by nobody.

Knows descriptors; must never know what is written.
"""

import os
import sys
from typing import TextIO

_OF_A_CLOSED_ONE = (os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)
"""How /dev/null stands in for stdin, stdout and stderr. For the first two it is the wrong way round: who reads
nothing or writes into nothing is told so (EBADF), as by every other command. Talk may get lost."""


def open_what_is_closed() -> None:
    """Open the streams that the command was started without; else sockets would get their numbers."""
    for descriptor, flags in enumerate(_OF_A_CLOSED_ONE):
        try:
            os.fstat(descriptor)
        except OSError:
            # The kernel gives the lowest number that is free, and all lower ones are taken by now.
            os.set_inheritable(os.open(os.devnull, flags), True)
    # Python has None for a stream that was closed when it began.
    sys.stdin = sys.stdin or os.fdopen(0, "r", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", buffering=1, closefd=False)
    for stream in (sys.stdout, sys.stderr):
        # A glyph that the terminal's encoding does not know must not end a command with a traceback.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")


def settle(stream: TextIO) -> OSError | None:
    """Write what a stream still holds; return why that cannot be, and drop it then."""
    try:
        stream.flush()
    except OSError as error:
        # Else the interpreter would try again at its end, complain, and end with 120 (see the signal module's notes).
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        return error
    return None
