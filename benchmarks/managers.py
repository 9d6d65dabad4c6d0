"""The two managers that are compared, each with a fresh directory and the settings people would choose.

What is the same for both: the commands, one log file a service (stderr merged), its size and its backups,
the Python that runs them. What is not: ours takes a lease a service in a Redis of its own, and proves at the
end that nothing of a tree is left.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orchestrator
from orchestrator.clock import boot
from orchestrator.embedded import find_server

MAX_LOG_BYTES = 50_000_000
"""Supervisor's default, and ours for this comparison."""
LOG_BACKUPS = 40
"""Enough for all that a trial writes: what is missing at the end was lost by the manager."""

_END_LIMIT_S = 60.0
_LAST_WORDS = 2000
_SOURCE = Path(orchestrator.__file__).parents[1]
_ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {"LC_ALL": "C"}
"""Without the one every start of a Python may compile its modules anew; without the other every `sleep` reads thirty
files of its locale, and that is nobody's business here."""


@dataclass(frozen=True, slots=True)
class Service:
    """A command that runs until it is told to go."""

    name: str
    argv: Sequence[str]


class Manager(ABC):
    """A manager with its own directory, started once."""

    def __init__(self, directory: Path) -> None:
        """Prepare; nothing is started.

        Args:
            directory: Empty, with a short path: unix sockets go below it.
        """
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepare(self, services: Sequence[Service]) -> None:
        """Write its configuration, and start what must be there before it."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the manager's command."""

    @abstractmethod
    def log_of(self, service: Service) -> Path:
        """Return the newest log file of a service; older ones have `.1`, `.2` ... appended."""

    def start(self) -> float:
        """Start it; return the instant just before."""
        with (self.directory / "said").open("wb") as said:
            began = boot()
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=_SOURCE, env=_ENVIRON
            )
        return began

    @property
    def pid(self) -> int:
        """Of the manager's first process."""
        assert self.process is not None  # noqa: S101 - asked only after `start`
        return self.process.pid

    def check(self) -> None:
        """Notice that it has ended by itself.

        Raises:
            RuntimeError: It has; says what it said last.
        """
        if self.process is not None and self.process.poll() is not None:
            said = (self.directory / "said").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{self.command()[0]} ended with {self.process.returncode}: {said[-_LAST_WORDS:]}")

    def tell_to_go(self) -> float:
        """Send SIGTERM; return the instant just before."""
        began = boot()
        os.kill(self.pid, signal.SIGTERM)
        return began

    def close(self) -> None:
        """End it, in order if it obeys, and remove its directory."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(_END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def extra_pids(self) -> list[int]:
        """Return processes that it needs and that are counted apart."""
        return []


_SUPERVISORD = """\
[supervisord]
nodaemon=true
silent=true
user={uid}
minfds=16384
logfile={directory}/supervisord.log
pidfile={directory}/pid
childlogdir={directory}
[unix_http_server]
file={directory}/s
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
"""
_PROGRAM = """\
[program:{name}]
command={command}
redirect_stderr=true
stdout_logfile={log}
stdout_logfile_maxbytes={max_bytes}
stdout_logfile_backups={backups}
"""


class Supervisord(Manager):
    """`supervisord` from PyPI."""

    def __init__(self, directory: Path, binary: str) -> None:
        """Prepare to run that binary."""
        super().__init__(directory)
        self._binary = binary

    def prepare(self, services: Sequence[Service]) -> None:
        """Write supervisord.conf: one program a service."""
        programs = [
            _PROGRAM.format(
                name=service.name,
                command=" ".join(service.argv),
                log=self.log_of(service),
                max_bytes=MAX_LOG_BYTES,
                backups=LOG_BACKUPS,
            )
            for service in services
        ]
        text = _SUPERVISORD.format(directory=self.directory, uid=os.getuid()) + "".join(programs)
        (self.directory / "supervisord.conf").write_text(text, encoding="utf-8")

    def command(self) -> list[str]:
        """Return how it is started in the foreground."""
        return [self._binary, "-n", "-c", str(self.directory / "supervisord.conf")]

    def log_of(self, service: Service) -> Path:
        """Return what `stdout_logfile` says."""
        return self.directory / f"{service.name}.log"


_AS_DURABLE_AS_EMBEDDED = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}


class Orchestrator(Manager):
    """One node of ours, with a server of its own on a unix socket, started before."""

    def __init__(self, directory: Path) -> None:
        """Prepare."""
        super().__init__(directory)
        self._server: subprocess.Popen[bytes] | None = None

    def prepare(self, services: Sequence[Service]) -> None:
        """Write jobs.yaml (JSON is YAML) and start the server, as durable as the embedded one."""
        jobs = {
            service.name: {
                "command": list(service.argv),
                "log": {"file": str(self.log_of(service)), "max_size": f"{MAX_LOG_BYTES}B", "backups": LOG_BACKUPS},
            }
            for service in services
        }
        text = json.dumps({"cluster": "bench", "jobs": jobs}, indent=1)
        (self.directory / "jobs.yaml").write_text(text, encoding="utf-8")
        options = {"port": "0", "unixsocket": str(self._socket), "dir": str(self.directory), **_AS_DURABLE_AS_EMBEDDED}
        self._server = subprocess.Popen(
            [find_server(), *(word for name, value in options.items() for word in (f"--{name}", value))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        while not self._socket.exists():
            time.sleep(0.01)

    @property
    def _socket(self) -> Path:
        return self.directory / "redis"

    def command(self) -> list[str]:
        """Return `orchestrator up` for a cluster that never was before."""
        up = [sys.executable, "-m", "orchestrator", "up", str(self.directory / "jobs.yaml"), "--node", "bench"]
        return [*up, "--redis", f"unix://{self._socket}", "--state-dir", str(self.directory / "state"), "--new-cluster"]

    def log_of(self, service: Service) -> Path:
        """Return what `log.file` says."""
        return self.directory / f"{service.name}.log"

    def extra_pids(self) -> list[int]:
        """Return the server's."""
        return [self._server.pid] if self._server is not None else []

    def close(self) -> None:
        """End the node, then its server."""
        try:
            super().close()
        finally:
            if self._server is not None:
                self._server.kill()
                self._server.wait()
