"""A stream that is full, closed or read by nobody costs one sentence at most, and never a traceback."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import control
from tests.cli.stage import Played
from tests.servers import Server

LIMIT_S = 20.0


def command(streams: str, *args: str) -> list[str]:
    """Return a command with some of its streams redirected as a shell does it."""
    return ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "orchestrator", *args]


def end_of(streams: str, *args: str) -> tuple[int, str]:
    """Run it; return its exit status and what it said on stderr."""
    done = subprocess.run(
        command(streams, *args), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        check=False, timeout=LIMIT_S,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "at once"])
@pytest.mark.parametrize("args", [["version"], ["schema"], ["status"], ["status", "--json"], ["--help"]], ids=" ".join)
@pytest.mark.parametrize(
    ("streams", "why"),
    [
        pytest.param(">/dev/full", "No space left on device", id="a full disk"),
        pytest.param(">&-", "Bad file descriptor", id="a closed one"),
    ],
)
async def test_data_that_cannot_be_written_is_one_sentence(
    server: Server,
    play: Callable[..., Played],
    monkeypatch: pytest.MonkeyPatch,
    streams: str,
    why: str,
    args: list[str],
    unbuffered: str,
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    await play(server).join()

    assert end_of(streams, *args) == (1, f"orchestrator: {why}\n")


@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", "<&-", "<&- >/dev/null 2>&-"])
def test_talk_that_nobody_can_read_changes_nothing(streams: str) -> None:
    assert end_of(streams, "version")[0] == 0
    assert end_of(streams, "statsu")[0] == 2
    assert end_of(streams, "validate", "nofile.yaml")[0] == 78


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_node_lives_without_its_streams(here: Path, server: Server, streams: str) -> None:
    (here / "idle.yaml").write_text(f"cluster: shop\nredis: {server.url}\njobs: {{}}\n")
    with subprocess.Popen(command(streams, "up", "idle.yaml", "--node", "n1"), stderr=subprocess.DEVNULL) as node:
        try:
            asyncio.run(answers(here / "run/shop.n1.sock", node))
            node.send_signal(signal.SIGTERM)

            assert node.wait(LIMIT_S) == 0
        finally:
            node.kill()


async def answers(socket: Path, node: subprocess.Popen[bytes]) -> None:
    """Wait until a node answers on its socket."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            assert node.poll() is None
            try:
                control.ask(socket, "where")
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize(
    "module", ["click", "orchestrator.cli", "orchestrator.cli.status", "rich.console", "redis.asyncio"]
)
@pytest.mark.usefixtures("jobs_yaml")
def test_control_c_during_the_first_imports_ends_without_a_traceback(here: Path, module: str) -> None:
    (here / "sitecustomize.py").write_text(INTERRUPTING)
    environ = os.environ | {"PYTHONPATH": f"{here}:{os.environ['PYTHONPATH']}", "INTERRUPT_AT": module}

    done = subprocess.run(
        command("", "status"), env=environ, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )

    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


INTERRUPTING = """\
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""
