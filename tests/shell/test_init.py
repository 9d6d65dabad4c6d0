"""A node as process 1 of a container: orphans, signals, the terminal, the exit status."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.init import stand_in_as_init
from orchestrator.runs import linux

ROOT = Path(__file__).parents[2]
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]
HEAD = """
import os, signal, sys, time
from orchestrator.init import stand_in_as_init
stand_in_as_init()
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""
COUNTING = """
def count(number, frame):
    say("heard", signal.Signals(number).name)
    if number == signal.SIGTERM:
        say("the end")
        sys.exit(7)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH):
    signal.signal(number, count)
say("ready")
while True:
    signal.pause()
"""


def _can_unshare() -> bool:
    return (
        os.geteuid() == 0
        and shutil.which("unshare") is not None
        and subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode == 0
    )


in_a_namespace = pytest.mark.skipif(not _can_unshare(), reason="a pid namespace of its own needs root and unshare")


def as_init(script: str) -> subprocess.CompletedProcess[str]:
    """Run a node that is process 1, to its end."""
    argv = [*NAMESPACE, sys.executable, "-c", HEAD + script]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)


@contextmanager
def living_init(script: str, terminal: int | None = None) -> Iterator[tuple[int, int]]:
    """Start one, on a terminal or a pipe; yield its output, and the pid of its process 1 as it is called out here."""
    output, theirs = os.pipe() if terminal is None else (-1, os.dup(terminal))
    argv = [*NAMESPACE, "--kill-child", sys.executable, "-u", "-c", HEAD + script]
    if terminal is not None:
        argv = ["setsid", "--ctty", *argv]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield output, until(lambda: linux.children(process.pid))[0]
    finally:
        process.kill()
        process.wait()
        if output >= 0:
            os.close(output)


def read_until(output: int, words: bytes) -> bytes:
    """Read what it says until these words stand there, and the line is over."""
    said = b""
    while words not in said or not said.endswith(b"\n"):
        assert select.select([output], [], [], 20)[0], f"it said only {said!r}"
        said += os.read(output, 4096)
    return said


def until(found: Callable[[], list[int]]) -> list[int]:
    """Wait until something is found."""
    for _ in range(1000):
        if result := found():
            return result
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_where_this_is_not_process_1_nothing_happens() -> None:
    before = linux.own_children()

    stand_in_as_init()

    assert linux.own_children() == before


@pytest.mark.root
@in_a_namespace
def test_the_node_is_not_process_1_and_has_the_signals_it_was_started_with() -> None:
    done = as_init("say(os.getpid() > 1, os.getppid(), len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))")

    assert (done.stdout.split(), done.returncode) == (["True", "1", "0"], 0)


@pytest.mark.root
@in_a_namespace
@pytest.mark.parametrize(
    ("end", "status"),
    [("sys.exit(0)", 0), ("sys.exit(78)", 78), ("os.kill(os.getpid(), 9)", 137), ("os.abort()", 134)],
    ids=["in order", "a wrong file", "SIGKILL", "a crash"],
)
def test_process_1_ends_as_the_node_ends(end: str, status: int) -> None:
    assert as_init(end).returncode == status


@pytest.mark.root
@in_a_namespace
def test_orphans_are_reaped_and_never_become_the_node_s_children() -> None:
    done = as_init("""
for _ in range(3):
    if not os.fork():
        if not os.fork():
            time.sleep(0.1)
            os._exit(3)
        os._exit(0)
    os.wait()
deadline = time.monotonic() + 10
while time.monotonic() < deadline and len(pids := [int(name) for name in os.listdir("/proc") if name.isdigit()]) > 2:
    time.sleep(0.01)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    say("no children;", len(pids), "processes")
""")

    assert done.stdout == "no children; 2 processes\n"


@pytest.mark.root
@in_a_namespace
def test_what_process_1_is_sent_reaches_the_node_once() -> None:
    sent = (signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    with living_init(COUNTING) as (output, init):
        for number in sent:
            read_until(output, b"ready" if number is sent[0] else b"heard")
            os.kill(init, number)

        assert read_until(output, b"the end").split() == [b"heard", b"SIGTERM", b"the", b"end"]


@pytest.mark.root
@in_a_namespace
def test_one_ctrl_c_is_one_order() -> None:
    """The terminal sends it to the whole foreground group: to process 1 and to the node."""
    ours, theirs = pty.openpty()
    with living_init(COUNTING, terminal=theirs) as (_, init):
        read_until(ours, b"ready")
        os.kill(init, signal.SIGSTOP)  # or a second one could come before the first was taken, and be one with it
        os.write(ours, b"\x03")
        heard = read_until(ours, b"heard SIGINT")
        os.kill(init, signal.SIGCONT)
        os.kill(init, signal.SIGWINCH)  # sent by a process it is handed on: what came before it has been heard by now
        heard += read_until(ours, b"heard SIGWINCH")
        os.kill(init, signal.SIGTERM)
        heard += read_until(ours, b"the end")

    os.close(ours)
    os.close(theirs)
    assert heard.count(b"SIGINT") == 1
    assert heard.count(b"SIGWINCH") == 1
