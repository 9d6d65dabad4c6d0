"""What an earlier main left behind is found and killed before anything is started, and nothing else is."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.core.messages import Say
from orchestrator.runs import ledger as module
from orchestrator.runs import linux
from orchestrator.runs.ledger import COMPACT_AT_BYTES, Ledger
from tests.runs.cgroup_tree import NEEDS_CGROUPS, Delegated, delegated
from tests.runs.node import fresh_tag, nasty, survivors

ROOT = Path(__file__).parents[2]


def orphan(*argv: str, env: Mapping[str, str] | None = None) -> int:
    """Start a process in a session of its own that is nobody's child; return its pid."""
    done = subprocess.run(
        ["sh", "-c", 'setsid "$@" >/dev/null 2>&1 & echo $!', "sh", *argv],
        env={**os.environ, **(env or {})},
        capture_output=True,
        check=True,
    )
    return int(done.stdout)


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds; for what no event tells of."""
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError(what)


def lives(pid: int) -> bool:
    """Tell whether a process runs."""
    return linux.state(pid) not in {"", "Z"}


@pytest.fixture
def tag() -> Iterator[str]:
    """A word on the command line of whatever a test starts; that dies with the test."""
    word = fresh_tag()
    yield word
    while survivors(word):
        for signum in (signal.SIGSTOP, signal.SIGKILL):  # frozen first: a hydra grows faster than one can look
            for pid in survivors(word):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum)


@pytest.fixture
def run() -> str:
    """A run's id, as main makes them."""
    return uuid.uuid4().hex


def opened(directory: Path) -> Ledger:
    """Return a ledger that is ready for its main's runs."""
    ledger = Ledger(directory)
    ledger.sweep()
    return ledger


def the_next_start_sweeps(directory: Path) -> list[Say]:
    """Sweep as the next start of the node does; return what it says."""
    said: list[Say] = []
    ledger = Ledger(directory, say=said.append)
    ledger.sweep()
    ledger.close()
    return said


def a_tree(directory: Path, mode: str, tag: str, run: str, size: int = 2) -> int:
    """Start a tree that nobody holds, and wait until it has grown; return its first process."""
    leader = orphan(*nasty(mode, tag), env={"ORCHESTRATOR_RUN_ID": run, "NASTY_DIR": str(directory)})
    wait_until(lambda: len(survivors(tag)) >= size, "the tree grows")
    return leader


@pytest.mark.parametrize("mode", ["plain", "ignterm", "setsid", "daemon", "stopped", "mix", "hydra"])
def test_a_run_that_nobody_closed_is_killed_whole(tmp_path: Path, tag: str, run: str, mode: str) -> None:
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)
    leader = a_tree(tmp_path, mode, tag, run)
    ledger.opened(run, 1, 0, leader)

    *waits, said = the_next_start_sweeps(tmp_path)

    assert survivors(tag) == []
    assert [(wait.event, dict(wait.fields)) for wait in waits] in ([], [("leftovers.found", {"runs": 1})])
    assert (said.event, said.level, said.fields["runs"]) == ("leftovers.killed", "warning", 1)
    assert isinstance(said.fields["count"], int)
    assert said.fields["count"] >= 2


@pytest.mark.parametrize("mode", ["setsid", "daemon", "mix", "hydra"])
def test_its_daemons_are_found_when_the_first_process_is_dead(tmp_path: Path, tag: str, run: str, mode: str) -> None:
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)
    leader = a_tree(tmp_path, mode, tag, run)
    ledger.opened(run, 1, 0, leader)
    os.kill(leader, signal.SIGKILL)

    the_next_start_sweeps(tmp_path)

    assert survivors(tag) == []


def test_what_cleared_its_environment_is_found_by_its_session(tmp_path: Path, tag: str, run: str) -> None:
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)
    leader = orphan("sh", "-c", f'env -i sh -c "sleep 60; :" {tag} & exec sleep 60')
    wait_until(lambda: survivors(tag), "the child runs")
    ledger.opened(run, 1, 0, leader)
    os.kill(leader, signal.SIGKILL)

    the_next_start_sweeps(tmp_path)

    assert survivors(tag) == []


def test_a_daemon_that_hides_altogether_gets_away_where_there_is_no_cgroup(tmp_path: Path, tag: str, run: str) -> None:
    """It left its session, cleared its environment, and nobody that lives leads to it."""
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)
    leader = a_tree(tmp_path, "envclear", tag, run)
    ledger.opened(run, 1, 0, leader)

    the_next_start_sweeps(tmp_path)

    assert len(survivors(tag)) == 1


@pytest.mark.root
@NEEDS_CGROUPS
@pytest.mark.parametrize("mode", ["envclear", "mix", "hopper"])
def test_nothing_gets_away_from_a_cgroup(tmp_path: Path, tag: str, run: str, mode: str) -> None:
    with delegated() as ours:
        group = ours.path / "run-1-1"
        group.mkdir()
        ledger = opened(tmp_path)
        ledger.opened(run, 1, 0, 0, str(group))
        with Delegated(group).inside():
            a_tree(tmp_path, mode, tag, run, size=1)

        the_next_start_sweeps(tmp_path)

        assert survivors(tag) == []
        assert not group.exists()


@pytest.mark.root
@NEEDS_CGROUPS
def test_a_cgroup_that_no_ledger_knows_of_is_swept_too(tmp_path: Path, tag: str, run: str) -> None:
    with delegated() as ours:
        group = ours.path / "run-1-4194305"
        group.mkdir()
        with Delegated(group).inside():
            a_tree(tmp_path, "envclear", tag, run)

        Ledger(tmp_path, cgroup=str(ours.path)).sweep()

        assert survivors(tag) == []
        assert not group.exists()


# What is not touched.


def test_a_run_that_was_closed_is_not_looked_for(tmp_path: Path, tag: str, run: str) -> None:
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)
    leader = a_tree(tmp_path, "plain", tag, run, size=5)
    ledger.opened(run, 1, 0, leader)
    ledger.closed(1)

    said = the_next_start_sweeps(tmp_path)

    assert (said, len(survivors(tag))) == ([], 5)


def test_an_environment_alone_condemns_nobody(tmp_path: Path, tag: str, run: str) -> None:
    """Somebody's terminal multiplexer was killed by a sweeper that believed it."""
    ledger = opened(tmp_path)
    ledger.opened(f"{run}0", 1, 0, 0)
    a_tree(tmp_path, "plain", tag, run, size=5)

    said = the_next_start_sweeps(tmp_path)

    assert (said, len(survivors(tag))) == ([], 5)


def test_what_is_older_than_the_run_is_not_its(tmp_path: Path, tag: str, run: str) -> None:
    leader = a_tree(tmp_path, "plain", tag, run, size=5)
    time.sleep(0.03)  # a process's start is known to a hundredth of a second
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)

    said = the_next_start_sweeps(tmp_path)

    assert (said, len(survivors(tag)), lives(leader)) == ([], 5, True)


@pytest.mark.parametrize("who", ["leader", "leash", "launcher"])
def test_a_pid_that_was_given_to_another_process_is_not_hit(tmp_path: Path, tag: str, run: str, who: str) -> None:
    """Nor is the session that this one founded."""
    ledger = opened(tmp_path)
    ledger.opened(f"{run}0", 1, 0, 0)
    stranger = a_tree(tmp_path, "plain", tag, run, size=5)
    ledger.opened(f"{run}0", 1, 0, stranger)
    ledger.close()
    mark = json.loads((tmp_path / "ledger").read_bytes().splitlines()[-1].removeprefix(b"+ "))
    pid, start = mark.pop("leader")
    (tmp_path / "ledger").write_text("+ " + json.dumps({**mark, "leader": [0, 0], who: [pid, start - 1]}) + "\n")

    said = the_next_start_sweeps(tmp_path)

    assert (said, len(survivors(tag))) == ([], 5)


def test_a_node_that_a_job_started_anew_does_not_kill_itself(tmp_path: Path, tag: str, run: str) -> None:
    """Its environment, and that of the shell above it, are the run's."""
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)
    a_tree(tmp_path, "plain", tag, run, size=5)
    script = f"from tests.runs.test_ledger import *; the_next_start_sweeps(Path({str(tmp_path)!r})); print('alive')"

    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{script}"; echo "so am I"'],
        cwd=ROOT,
        env={**os.environ, "ORCHESTRATOR_RUN_ID": run},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == ["alive", "so am I"]
    assert survivors(tag) == []


def test_a_run_of_an_earlier_boot_is_void(tmp_path: Path, tag: str, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as then:
        then.setattr(module, "boot_id", lambda: "00000000-0000-0000-0000-000000000000")
        ledger = opened(tmp_path)
        ledger.opened(run, 1, 0, 0)
        ledger.opened(run, 1, 0, a_tree(tmp_path, "plain", tag, run, size=5))

    said = the_next_start_sweeps(tmp_path)

    assert (said, len(survivors(tag))) == ([], 5)


# The file.


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"\x00\xff\n",
        b"[]\n- \n- seven\n+\n+ 7\n+ {}\n",
        b'+ {"boot": null}\n',
        b'+ {"boot": "BOOT", "run": "x", "serial": 7, "since": "now"}\n',
        b'+ {"boot": "BOOT", "run": "x", "serial": 7, "since": 0, "leash": [1, 2, 3], "launcher": 0, "leader": {}}\n',
        b"+ " + b"[" * 200_000 + b"\n",
    ],
    ids=["nothing", "no text", "other words", "no boot", "no number", "no process", "too deep"],
)
def test_a_line_that_means_nothing_is_passed_over(tmp_path: Path, tag: str, run: str, rubbish: bytes) -> None:
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)
    a_tree(tmp_path, "plain", tag, run, size=5)
    good = (tmp_path / "ledger").read_bytes()
    rubbish = rubbish.replace(b"BOOT", module.boot_id().encode())
    (tmp_path / "ledger").write_bytes(rubbish + good + rubbish + good[: len(good) // 2])

    the_next_start_sweeps(tmp_path)

    assert survivors(tag) == []


def test_what_is_no_ordinary_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ledger")

    said = the_next_start_sweeps(tmp_path)

    assert [say.event for say in said] == []
    assert (tmp_path / "ledger").is_file()


def test_the_next_start_begins_with_an_empty_file(tmp_path: Path, run: str) -> None:
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)

    assert (the_next_start_sweeps(tmp_path), (tmp_path / "ledger").read_bytes()) == ([], b"")


def test_the_file_stays_small_however_many_runs_there_were(tmp_path: Path, run: str) -> None:
    ledger = opened(tmp_path)
    ledger.opened(run, 1, os.getpid(), 0)
    sizes = []
    for serial in range(2, 3000):
        ledger.opened(f"{run}{serial}", serial, os.getpid(), 0)
        ledger.closed(serial)
        sizes.append((tmp_path / "ledger").stat().st_size)

    assert max(sizes) < COMPACT_AT_BYTES + 1024
    assert sorted(sizes) != sizes, "it was written anew"
    assert [trace.run for trace in Ledger(tmp_path)._read()] == [run]


def test_a_full_disk_is_said_once_and_made_up_for_later(tmp_path: Path) -> None:
    """The limit of a file's size stands for the disk: the kernel refuses the write in the same way."""
    script = f"""
import resource
from tests.runs.test_ledger import *
said = []
ledger = Ledger(Path({str(tmp_path)!r}), say=said.append)
ledger.sweep()
ledger.opened("first", 1, 0, 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
for serial in range(2, 6):
    ledger.opened(f"run {{serial}}", serial, 0, 0)
    ledger.closed(3)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
time.sleep(module._RETRY_S)
ledger.opened("last", 6, 0, 0)
print(len(said), said[0].event, said[0].fields["why"], sep="|")
print(*(trace.run for trace in Ledger(Path({str(tmp_path)!r}))._read()), sep="|")
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    first, second = done.stdout.splitlines()
    assert first == f"1|ledger.failed|{tmp_path}/ledger: File too large"
    assert second == "first|run 2|run 4|run 5|last"


# What cannot be killed.


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a process of another user needs root to be made")
def test_a_node_does_not_start_beside_what_it_cannot_kill(tmp_path: Path, tag: str, run: str) -> None:
    """Root without CAP_KILL may not kill another user's process."""
    ledger = opened(tmp_path)
    ledger.opened(run, 1, 0, 0)
    leader = orphan("setpriv", "--reuid=65534", "sh", "-c", "sleep 60; :", tag, env={"ORCHESTRATOR_RUN_ID": run})
    wait_until(lambda: survivors(tag), "it runs")
    ledger.opened(run, 1, 0, leader)
    script = f"""
from tests.runs.test_ledger import *
from orchestrator.errors import OrchestratorError
from orchestrator.runs import leftovers
leftovers.LEASH_GRACE_S, leftovers.KILL_LIMIT_S = 0.0, 0.2
try:
    the_next_start_sweeps(Path({str(tmp_path)!r}))
except OrchestratorError as error:
    print(error)
"""
    done = subprocess.run(
        ["setpriv", "--bounding-set=-kill", sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith(
        "an earlier start of this node left processes behind, and they live on after SIGKILL:"
    )
    assert f"not permitted to kill pid {leader} (uid 65534)" in done.stdout
    assert f"`kill -9 {leader}" in done.stdout
    assert lives(leader)
    assert [trace.run for trace in Ledger(tmp_path)._read()] == [run], "the next start tries again"
    the_next_start_sweeps(tmp_path)
    assert survivors(tag) == []
