"""What belongs to another user: killed where the run has a cgroup, named where it has none, and never given up.

Such a process comes from a set-uid program. Here it is the other way round, which needs no such file: the node is
root without CAP_KILL, and the member of the tree has become somebody else.
"""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.messages import RunEnded, RunStuck
from orchestrator.runs import cgroups
from tests.runs.cgroup_tree import NEEDS_CGROUPS, ROOT, delegated
from tests.runs.node import Node, fresh_tag, job, survivors, until

NOBODY = 65534
TREE = f"""
import os, signal, sys, time
if not os.fork():
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
    signal.alarm(60)
time.sleep(60)
"""
QUIET_S = 2.5
"""A leash goes through its kill loop at least once in a second."""

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="a process of another user needs root to be made"),
]


async def _hold(directory: Path, tag: str) -> None:
    """Run the tree, kill it, and print what is told of it: a line each for what is stuck, and for the end."""
    node = Node(directory, cgroup=cgroups.own())
    await node.runs.open()
    run = node.start(job((sys.executable, "-c", TREE, tag)))
    await node.started(run)
    await until(lambda: any(_uid(pid) == NOBODY for pid in survivors(tag)), "a member has become somebody else")
    node.kill(run)
    await until(lambda: node.seen(run, RunStuck) or node.seen(run, RunEnded), "stuck, or ended")
    if stuck := node.seen(run, RunStuck):
        assert isinstance(stuck, RunStuck)
        _tell(stuck=list(stuck.pids), why=stuck.why)
    _tell(ended=(await node.ended(run)).cause)
    await node.runs.close()


def _tell(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _uid(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except FileNotFoundError:
        return -1


class Main:
    """The process of `_hold`, and what it tells."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Listen to it."""
        assert process.stdout is not None
        self._output = process.stdout

    def tells(self) -> dict[str, Any]:
        """Return what it tells next. Any: what JSON holds."""
        told: dict[str, Any] = json.loads(self._output.readline())
        return told

    def is_silent_for(self, seconds: float) -> bool:
        """Tell whether it says nothing for so long."""
        return not select.select([self._output], [], [], seconds)[0]


@contextmanager
def a_main_that_may_not_kill_others(directory: Path, tag: str) -> Iterator[Main]:
    """Start it; whatever it leaves behind ends with it."""
    argv = ["setpriv", "--bounding-set=-kill", sys.executable, "-m", "tests.runs.test_other_users", str(directory)]
    with subprocess.Popen(
        argv, cwd=ROOT, env={**os.environ, "TREE_TAG": tag}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Main(process)
        finally:
            for pid in survivors(tag):
                os.kill(pid, signal.SIGKILL)
            process.wait(20)


def test_without_a_cgroup_it_is_named_and_the_run_has_not_ended_while_it_lives(tmp_path: Path) -> None:
    tag = fresh_tag()
    with a_main_that_may_not_kill_others(tmp_path, tag) as main:
        stuck = main.tells()
        (left,) = survivors(tag)
        assert stuck == {"stuck": [left], "why": f"not permitted to kill pid {left} (uid {NOBODY})"}
        assert main.is_silent_for(QUIET_S)

        os.kill(left, signal.SIGKILL)

        assert main.tells() == {"ended": "killed"}


@NEEDS_CGROUPS
def test_in_a_cgroup_of_its_own_it_dies_with_the_others(tmp_path: Path) -> None:
    tag = fresh_tag()
    with delegated() as ours, ExitStack() as stack:
        with ours.inside():
            main = stack.enter_context(a_main_that_may_not_kill_others(tmp_path, tag))

        assert main.tells() == {"ended": "killed"}
        assert survivors(tag) == []
        assert list(ours.path.glob("run-*")) == []


if __name__ == "__main__":
    asyncio.run(_hold(Path(sys.argv[1]), os.environ["TREE_TAG"]))
