"""The node's own socket: its truth when Redis is away, and how clients on this machine find it.

One JSON line in, one JSON line out, then the connection ends. The socket is 0600: whoever can open it
could read the file, change it and signal the node anyway.

    status      the node's view of its jobs          where       how to reach the cluster
    reload      read the file anew, or only compare  reloading   which jobs still run by what it said before
    reload_job  tell a running job to read its own configuration
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from orchestrator.paths import LONGEST_UNIX_PATH

LONGEST_ANSWER_BYTES = 64_000_000
"""100,000 rows of status are about 30 MB; anything larger is not ours."""

Answer = Callable[[Mapping[str, object]], Awaitable[Mapping[str, object]]]
"""Answers a question, whose fields it is given."""


def ask(path: Path, op: str, *, timeout_s: float = 1.0, **fields: object) -> dict[str, object]:
    """Ask a node one question.

    Args:
        path: Its socket.
        op: What is asked, see the module's head.
        timeout_s: For the whole exchange to make progress; a hung node must not hang its clients.
        fields: What belongs to the question.

    Raises:
        OSError: Nobody answers there in time.
        ValueError: What answers is not a node.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        with _short(path) as address:
            connection.connect(address)
        connection.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
        answer = bytearray()
        while chunk := connection.recv(65536):
            answer += chunk
            if len(answer) > LONGEST_ANSWER_BYTES:
                raise ValueError("the answer is too long")
    data = json.loads(answer)
    if not isinstance(data, dict):
        raise ValueError("the answer is no object")  # noqa: TRY004 - the caller catches one kind
    return data


class ControlServer:
    """Answers on the node's socket; never delays the node by more than one JSON dump."""

    def __init__(self, path: Path, answers: Mapping[str, Answer]) -> None:
        """Remember where to listen and what to say to which question."""
        self._path = path
        self._answers = answers
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; a stale socket is replaced (the caller holds the node's lock, so nobody lives there).

        Raises:
            OSError: The directory cannot be made or written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.unlink(missing_ok=True)
        with _short(self._path) as address:
            self._server = await asyncio.start_unix_server(self._serve, address)
            os.chmod(address, 0o600)  # noqa: PTH101 - the short address may be a /proc path

    async def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            line = await asyncio.wait_for(reader.readline(), timeout=5)
            question = json.loads(line)
            op = question.get("op") if isinstance(question, dict) else None
            answer = self._answers.get(str(op))
            reply = await answer(question) if answer else {"error": f"unknown question: {op}"}
            writer.write(json.dumps(reply).encode())
            await asyncio.wait_for(writer.drain(), timeout=5)
        writer.close()


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield an address of the socket that fits into sun_path, however deep the directory."""
    if len(os.fsencode(path)) <= LONGEST_UNIX_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
