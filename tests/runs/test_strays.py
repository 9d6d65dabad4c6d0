"""What main inherits is killed; what main started, or was there before, never."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.runs import linux
from orchestrator.runs.leftovers import look_at
from orchestrator.runs.strays import Strays

ROOT = Path(__file__).parents[2]


class Children:
    """Children of this process: sleepers, in its session or in one of their own."""

    def __init__(self) -> None:
        """Have none."""
        self._all: list[subprocess.Popen[bytes]] = []

    def make(self, *, own_session: bool = True) -> int:
        """Start one."""
        self._all.append(subprocess.Popen(["sleep", "60"], start_new_session=own_session))
        return self._all[-1].pid

    def close(self) -> None:
        """Kill and reap all."""
        for child in self._all:
            child.kill()
            child.wait()


@pytest.fixture
def children() -> Iterator[Children]:
    """Children to be made in a test; they end with it."""
    made = Children()
    yield made
    made.close()


def lives(pid: int) -> bool:
    """Tell whether a process runs."""
    return linux.state(pid) not in {"", "Z"}


def swept(strays: Strays) -> list[int]:
    """Sweep until no stray is left; return those of the first pass."""
    found = strays.kill(set())[0]
    while strays.kill(set())[0]:
        pass
    return found


def test_a_child_in_a_session_of_its_own_is_killed_and_reaped(children: Children) -> None:
    strays = Strays()
    pid = children.make()

    assert swept(strays) == [pid]
    assert linux.state(pid) == ""


def test_what_main_started_in_its_own_session_is_left_alone(children: Children) -> None:
    strays = Strays()
    pid = children.make(own_session=False)

    assert swept(strays) == []
    assert lives(pid)


def test_what_was_there_before_is_left_alone(children: Children) -> None:
    pid = children.make()
    strays = Strays()

    assert swept(strays) == []
    assert lives(pid)


def test_what_main_spared_is_left_alone_however_often_it_sweeps(children: Children) -> None:
    strays = Strays()
    server, stray = children.make(), children.make()
    strays.spare(server)

    assert swept(strays) == [stray]
    assert swept(strays) == []
    assert lives(server)


def test_a_later_process_with_the_pid_of_a_spared_one_is_a_stray(children: Children) -> None:
    """Or a long life of spared servers would blind the proof that nothing is left."""
    strays = Strays()
    pid = children.make()
    child = look_at(pid)
    assert child is not None
    strays._spared.add(child._replace(start=child.start - 1).identity)

    assert swept(strays) == [pid]


def test_what_the_launcher_is_known_by_is_left_alone(children: Children) -> None:
    strays = Strays()
    launcher = children.make()

    assert strays.kill({launcher}) == ([], [])
    assert lives(launcher)


def test_whatever_is_below_a_stray_dies_with_it() -> None:
    script = """
import subprocess
from orchestrator.runs import linux
from orchestrator.runs.strays import Strays
linux.become_subreaper()
strays = Strays()
argv = ["sh", "-c", "setsid sh -c 'sleep 60; :' & sleep 60 & echo; wait"]
with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as tree:
    tree.stdout.readline()
    while len(linux.descendants(tree.pid)) < 3:
        pass
    while strays.kill(set())[0]:
        pass
    print(linux.own_children())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n", os.linesep.join((done.stdout, done.stderr))
