"""A place to type commands in: an empty directory, an empty environment, a real server, nodes that are played."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path

import pytest

import orchestrator
from orchestrator import cli
from tests.cli.stage import Played, Result
from tests.servers import BINARIES, Server

JOBS_YAML = """\
cluster: shop
redis: {url}
jobs:
  beat: {{command: sleep 60, lease: {{ttl: 10s}}}}
  invoices: {{command: "true", cron: "0 3 * * *", timezone: Europe/Berlin}}
  worker: {{command: sleep 60, instances: 2}}
  off: {{command: "true", enabled: false}}
"""

Run = Callable[..., Coroutine[None, None, Result]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, with sockets and state of its own."""
    for name in os.environ:
        if name.startswith(("ORCHESTRATOR_", "COLUMNS", "LINES")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ORCHESTRATOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ORCHESTRATOR_RUNTIME_DIR", str(tmp_path / "run"))
    # A child finds the package where we did, however that was, and from any directory.
    monkeypatch.setenv("PYTHONPATH", str(Path(orchestrator.__file__).parents[1]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command to its end, in this process but not in this event loop."""

    async def run_command(*args: str) -> Result:
        capsys.readouterr()
        status = await asyncio.to_thread(cli.main, args)
        said = capsys.readouterr()
        return Result(status, said.out, said.err)

    return run_command


@pytest.fixture(scope="module")
def module_server() -> Iterator[Server]:
    """One server for the tests of a module; take `server`, which empties it."""
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as directory:
        started = Server(BINARIES["valkey"], Path(directory)).start()
        yield started
        started.stop()


@pytest.fixture
def server(module_server: Server) -> Server:
    """Return an empty server."""
    module_server.client.flushall()
    return module_server


@pytest.fixture
def own_server() -> Iterator[Server]:
    """Return a server that the test may stop."""
    directory = Path(tempfile.mkdtemp(prefix="orchestrator-"))
    started = Server(BINARIES["valkey"], directory).start()
    yield started
    started.stop()
    shutil.rmtree(directory)


@pytest.fixture
def jobs_yaml(here: Path, server: Server) -> Path:
    """Write a jobs.yaml that names the server."""
    file = here / "jobs.yaml"
    file.write_text(JOBS_YAML.format(url=server.url))
    return file


@pytest.fixture
async def play(here: Path) -> AsyncIterator[Callable[..., Played]]:
    """Play nodes: real members of the cluster with real leases and a real socket, but nothing that runs."""
    played: list[Played] = []

    def begin(server: Server, name: str = "n1") -> Played:
        played.append(Played(server, name, runtime=here / "run"))
        return played[-1]

    yield begin
    for node in played:
        await node.close()
