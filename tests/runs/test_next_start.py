"""A main dies in whatever company: the next start of its node leaves nothing of its runs, nor of what held them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator import clock
from orchestrator.core.messages import Say, StartRun
from orchestrator.core.nouns import RunId, Token
from orchestrator.runs import leftovers, linux
from orchestrator.runs.ledger import Ledger
from tests.runs.node import Node, fresh_tag, job, nasty, send, soon, survivors, until

ROOT = Path(__file__).parents[2]
KILL, STOP = signal.SIGKILL, signal.SIGSTOP
LEASE_S = 60.0
"""No deadline strikes in these tests: only the death of main does."""
SLACK_S = 5.0
"""What a busy machine may add."""
GENTLE = "trap 'sleep 0.3; echo in order > \"$0\"; exit' TERM; while :; do sleep 0.02; done"
"""A job that needs a moment to end, and says that it had it; its argument is the file."""


async def _hold(directory: Path, command: tuple[str, ...]) -> None:
    """Be a main with one run, and print its processes."""
    node = Node(directory)
    await node.runs.open()
    run, spec = RunId(uuid.uuid4().hex), job(command)
    environ = {"ORCHESTRATOR_RUN_ID": run}  # the core's doing
    node.runs.start(spec, StartRun(spec.name, run, Token(1), soon(LEASE_S, LEASE_S), environ))
    await node.started(run)
    sys.stdout.write(json.dumps({"launcher": node.launcher(), "leash": node.leash(run)}) + "\n")
    sys.stdout.flush()
    await asyncio.sleep(LEASE_S)


@dataclass(frozen=True, slots=True)
class Holders:
    """A main, its launcher, and the leash of its run."""

    main: int
    launcher: int
    leash: int

    def living(self) -> list[int]:
        """Return which of them live."""
        return [pid for pid in (self.main, self.launcher, self.leash) if linux.state(pid) not in {"", "Z"}]


@contextmanager
def a_main(directory: Path, *command: str) -> Iterator[Holders]:
    """Start one in a process of its own; it is dead and reaped afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.runs.test_next_start", str(directory)],
        cwd=ROOT,
        env={**os.environ, "COMMAND": json.dumps(command)},  # its own command line must not bear the tag
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield Holders(process.pid, **json.loads(process.stdout.readline()))
        finally:
            process.kill()


async def grown(tag: str, size: int) -> None:
    """Wait until a tree has grown."""
    await until(lambda: len(survivors(tag)) >= size, "the tree grows")


async def strike(holders: Holders, faults: dict[str, signal.Signals]) -> None:
    """Freeze all of them first, so that none sees another one die; let go what is not struck.

    Until main is dead, all the others are below this process: then nobody would look at them.
    """
    for pid in holders.living():
        send(pid, STOP)
    for who, signum in faults.items():
        send(getattr(holders, who), signum)
    for who in {"launcher", "leash"} - faults.keys():
        send(getattr(holders, who), signal.SIGCONT)
    dead = {getattr(holders, who) for who, signum in faults.items() if signum is KILL}
    await until(lambda: dead.isdisjoint(holders.living()), "what was killed is dead")


def sweep(directory: Path) -> list[Say]:
    """Do what the next start of the node does first; return what it says."""
    said: list[Say] = []
    ledger = Ledger(directory, say=said.append)
    ledger.sweep()
    ledger.close()
    return said


@pytest.mark.parametrize(
    "faults",
    [
        {"main": KILL, "launcher": STOP},
        {"main": KILL, "leash": STOP},
        {"main": KILL, "launcher": STOP, "leash": STOP},
        {"main": KILL, "launcher": KILL, "leash": STOP},
        {"main": KILL, "launcher": STOP, "leash": KILL},
        {"main": KILL, "launcher": KILL, "leash": KILL},
    ],
    ids=lambda faults: " and ".join(f"{signum.name} of {who}" for who, signum in faults.items()),
)
@pytest.mark.parametrize("mode", ["mix", "hydra"])
async def test_nothing_is_left_when_the_next_start_goes_on(
    tmp_path: Path, faults: dict[str, signal.Signals], mode: str
) -> None:
    tag = fresh_tag()
    with a_main(tmp_path, *nasty(mode, tag)) as holders:
        await grown(tag, 5)
        await strike(holders, faults)

        *waits, said = sweep(tmp_path)

        assert survivors(tag) == []
        assert set(holders.living()) <= {holders.main}
        assert [(wait.event, dict(wait.fields)) for wait in waits] in ([], [("leftovers.found", {"runs": 1})])
        assert (said.event, said.fields["runs"]) == ("leftovers.killed", 1)


@pytest.mark.parametrize("mode", ["envclear", "hopper"])
async def test_a_frozen_leash_still_holds_what_no_trace_leads_to(tmp_path: Path, mode: str) -> None:
    tag = fresh_tag()
    with a_main(tmp_path, *nasty(mode, tag)) as holders:
        await grown(tag, 1)
        await strike(holders, {"main": KILL, "launcher": STOP, "leash": STOP})

        sweep(tmp_path)

        assert survivors(tag) == []
        assert set(holders.living()) <= {holders.main}


async def test_a_leash_at_work_is_left_to_it(tmp_path: Path) -> None:
    """The job was asked to end when main died, and has its grace: the next start does not cut that short."""
    tag = fresh_tag()
    ended = tmp_path / f"ended-{tag}"
    with a_main(tmp_path, "sh", "-c", GENTLE, str(ended)) as holders:
        await grown(tag, 1)
        await strike(holders, {"main": KILL})

        sweep(tmp_path)

        assert survivors(tag) == []
        assert ended.read_text() == "in order\n"


async def test_a_leash_that_takes_too_long_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = fresh_tag()
    monkeypatch.setattr(leftovers, "LEASH_GRACE_S", 0.2)
    monkeypatch.setattr(leftovers, "_HOLDERS_GO_AFTER_S", 0.2)
    with a_main(tmp_path, *nasty("mix", tag)) as holders:
        await grown(tag, 5)
        await strike(holders, {"main": KILL, "launcher": STOP, "leash": STOP})
        began = clock.boot()

        sweep(tmp_path)

        assert clock.boot() - began < SLACK_S
        assert survivors(tag) == []


if __name__ == "__main__":
    asyncio.run(_hold(Path(sys.argv[1]), tuple(json.loads(os.environ["COMMAND"]))))
