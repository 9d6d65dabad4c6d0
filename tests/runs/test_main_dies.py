"""Main killed or frozen, alone and together with launcher or leash: nothing of a run outlives its lease."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator import clock
from orchestrator.runs import linux
from tests.runs.host import KILL_IN_S
from tests.runs.node import LEASE, fresh_tag, send, survivors, until

ROOT = Path(__file__).parents[2]
SLACK_S = 2.0
"""What a busy machine may add."""
KILL, STOP = signal.SIGKILL, signal.SIGSTOP


@dataclass(frozen=True, slots=True)
class Host:
    """A main of the test's own, and the processes of its one run."""

    main: int
    launcher: int
    leash: int


@asynccontextmanager
async def hosted(directory: Path, mode: str, tag: str) -> AsyncIterator[Host]:
    """Start a main with one run; whatever happened to it, it and its launcher and leash are gone afterwards."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.runs.host", str(directory), mode),
        cwd=ROOT,
        env={**os.environ, "TREE_TAG": tag},
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    async with asyncio.timeout(20):
        line = await process.stdout.readline()
    host = Host(process.pid, **json.loads(line))
    try:
        await until(lambda: len(survivors(tag)) >= 5, "the tree grows")
        yield host
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        for pid in (host.leash, host.launcher):
            if is_ours(pid):
                send(pid, signal.SIGCONT)
                await until(lambda pid=pid: not is_ours(pid), "launcher and leash go when main is gone")  # type: ignore[misc]  # mypy cannot infer a lambda's default


def is_ours(pid: int) -> bool:
    """Tell whether the pid is a launcher or a leash that lives."""
    return linux.state(pid) not in {"", "Z"} and linux.read_file(f"/proc/{pid}/comm").startswith(b"orch-")


@pytest.mark.parametrize(
    "faults",
    [
        {"main": KILL},
        {"main": KILL, "launcher": KILL},
        {"launcher": KILL, "main": KILL},
        {"main": STOP},
        {"main": STOP, "launcher": KILL},
        {"main": STOP, "launcher": STOP},
        {"main": STOP, "leash": STOP},
        {"main": STOP, "leash": KILL},
        {"leash": STOP, "main": KILL},
        {"leash": KILL, "main": KILL},
        {"launcher": STOP, "main": KILL},
    ],
    ids=lambda faults: " and ".join(f"{signum.name} of {who}" for who, signum in faults.items()),
)
async def test_nothing_outlives_the_lease(tmp_path: Path, faults: dict[str, signal.Signals]) -> None:
    tag = fresh_tag()
    async with hosted(tmp_path, "mix", tag) as host:
        for who, signum in faults.items():
            send(getattr(host, who), signum)
        struck_at = clock.boot()

        await until(lambda: not survivors(tag), "the tree is gone", KILL_IN_S + LEASE.margin_s / 2 + SLACK_S)

        # Once main is dead nothing waits for the lease to run out, only for the step-down grace.
        if faults == {"main": KILL}:
            assert clock.boot() - struck_at < LEASE.step_down_grace_s + SLACK_S
