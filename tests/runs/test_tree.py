"""Signals to whole trees, reaping, and what cannot be killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.runs import linux, tree

ROOT = Path(__file__).parents[2]


def in_a_subreaper(script: str) -> str:
    """Run a script as a process of its own (a sub-reaper, single-threaded) and return what it prints."""
    head = "import os, signal, time\nfrom orchestrator.runs import linux, tree\nlinux.become_subreaper()\n"
    done = subprocess.run(
        [sys.executable, "-c", head + script], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout.strip()


def test_ended_children_are_collected_until_none_is_left() -> None:
    printed = in_a_subreaper(
        """
pids = [os.fork() or os._exit(number) for number in range(3)]
found, nothing_left = [], False
while not nothing_left:
    ended, nothing_left = tree.reap()
    found += ended
print(sorted(os.waitstatus_to_exitcode(status) for _, status in found), sorted(pid for pid, _ in found) == sorted(pids))
"""
    )

    assert printed == "[0, 1, 2] True"


def test_descendants_come_after_their_parents() -> None:
    printed = in_a_subreaper(
        """
read, write = os.pipe()
child = os.fork()
if not child:
    grandchild = os.fork()
    if not grandchild:
        os.write(write, b"x")
    time.sleep(60)
os.read(read, 1)
found = linux.descendants(os.getpid())
print(found[0] == child, len(found))
tree.kill_below(os.getpid())
while not tree.reap()[1]:
    tree.kill_below(os.getpid())
"""
    )

    assert printed == "True 2"


def test_a_stopped_process_is_asked_to_end_too() -> None:
    printed = in_a_subreaper(
        """
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)
os.waitpid(child, os.WUNTRACED)
tree.ask_to_end(os.getpid())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )

    assert printed == str(-signal.SIGTERM)


def test_strays_are_told_from_what_is_known() -> None:
    printed = in_a_subreaper(
        """
def sleeper():
    pid = os.fork()
    if not pid:
        time.sleep(60)
    return pid
known, stray = sleeper(), sleeper()
print(tree.kill_strays({known}) == ([stray], []))
os.waitpid(stray, 0)
print(tree.kill_strays({known}) == ([], []))
os.kill(known, signal.SIGKILL)
"""
    )

    assert printed.split() == ["True", "True"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a process of another user needs root to be made")
def test_what_must_not_be_killed_is_named() -> None:
    printed = in_a_subreaper(
        """
child = os.fork()
if not child:
    time.sleep(60)
os.setresuid(65534, 65534, 0)
refused = tree.kill_below(os.getpid())
print(refused == [child], tree.why_alive([child], refused) == f"not permitted to kill pid {child} (uid 0)")
os.setresuid(0, 0, 0)
os.kill(child, signal.SIGKILL)
"""
    )

    assert printed == "True True"


def test_a_process_without_a_trace_has_no_state() -> None:
    child = subprocess.Popen(["true"])
    child.wait()

    assert (linux.state(os.getpid()), linux.state(child.pid)) == ("R", "")


def test_without_the_children_file_one_pass_over_proc_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 20 & echo ready; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        with_file = linux.descendants(shell.pid)

        monkeypatch.setattr(linux, "HAS_CHILDREN_FILE", False)

        assert len(with_file) == 1
        assert linux.descendants(shell.pid) == with_file
        assert linux.children(shell.pid) == with_file
        assert shell.pid in linux.own_children()
        tree.kill_below(shell.pid)
        shell.kill()
