"""What a node keeps across restarts, in its own directory.

node.lock      held while the node lives: two nodes never share a directory
state_id       random, as old as the directory: tells a restart of this node from a stranger with its name
tokens.json    the highest token ever seen for each job: the floor below which no new token may be issued
"""

import contextlib
import errno
import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from orchestrator.core.nouns import JobName, Token
from orchestrator.errors import OrchestratorError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a write into a full disk, quota or limit ends with."""


class StateDirectory:
    """One node's directory, locked for as long as this process lives."""

    def __init__(self, path: Path) -> None:
        """Remember where; nothing is touched before `open`."""
        self.path = path
        self.state_id = ""
        self.floors: dict[JobName, Token] = {}
        self._lock: int | None = None

    def open(self) -> None:
        """Lock the directory and read what is in it; a broken file is put aside and said by name.

        Raises:
            OrchestratorError: Another process lives in it, or it cannot be written; it is not locked then.
        """
        try:
            self._open()
        except OSError as error:
            cure = "make room there, or choose" if error.errno in FULL else "choose"
            self.close()
            raise OrchestratorError(
                f"the state directory {self.path} cannot be used: {error.strerror}; {cure} another with --state-dir"
            ) from error
        except OrchestratorError:
            self.close()
            raise

    def _open(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self.path / "node.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "?"
            raise OrchestratorError(
                f"this node already runs here (pid {pid}, {self.path}); for a second one choose another --node"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        self.state_id = self._read_or_make_id()
        self.floors = self._read_floors()

    def remember(self, tokens: Mapping[JobName, Token]) -> None:
        """Keep the tokens of one turn; written at once, whole or not at all.

        All of a turn together, since the file is written anew each time: the first turn of a node with 1,000 jobs
        brings 1,000 tokens, and one by one they took a second.
        A full disk must not stop a job: it only weakens the floor.
        """
        for job, token in tokens.items():
            self.floors[job] = max(self.floors.get(job, Token(0)), token)
        with contextlib.suppress(OSError):
            self._write("tokens.json", json.dumps(self.floors))

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _read_or_make_id(self) -> str:
        file = self.path / "state_id"
        if file.exists() and (known := file.read_text(errors="replace").strip()):
            return known
        state_id = secrets.token_hex(8)
        self._write("state_id", state_id + "\n")
        return state_id

    def _write(self, name: str, text: str) -> None:
        """Write a file whole or not at all: half an identity would be another one."""
        fresh = self.path / f"{name}.new"
        fresh.write_text(text)
        fresh.replace(self.path / name)

    def _read_floors(self) -> dict[JobName, Token]:
        file = self.path / "tokens.json"
        try:
            data = json.loads(file.read_text())
            return {JobName(str(job)): Token(int(token)) for job, token in data.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError):
            file.replace(self.path / "tokens.json.broken")
            return {}
