"""A cgroup per run: which directory is ours to divide, and what the kernel does for us in it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.runs import cgroups
from tests.runs.cgroup_tree import NEEDS_CGROUPS, ROOT, Delegated, delegated

pytestmark = [pytest.mark.root, NEEDS_CGROUPS]

NOBODY = 65534
AS_NOBODY = "import os; from orchestrator.runs import cgroups; os.setresuid(*3 * [65534]); print(cgroups.own())"


@pytest.fixture
def ours() -> Iterator[Delegated]:
    """A delegated cgroup, as systemd makes one for a service with Delegate=yes."""
    with delegated() as made:
        yield made


@contextlib.contextmanager
def a_member(path: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that joins a cgroup and stays there."""
    script = "import sys, time; from orchestrator.runs import cgroups; print(cgroups.join(sys.argv[1])); "
    argv = [sys.executable, "-u", "-c", script + "time.sleep(60)", path]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == b"True\n"
        yield member
        member.kill()


def own_inside(ours: Delegated) -> str | None:
    """Return what a process that lives there takes for its own."""
    return ours.ask("from orchestrator.runs import cgroups; print(cgroups.own() or '')") or None


def test_a_delegated_cgroup_is_ours(ours: Delegated) -> None:
    assert own_inside(ours) == str(ours.path)


def test_a_cgroup_that_was_not_delegated_is_left_alone(ours: Delegated) -> None:
    """To root everything is writable: only the mark tells."""
    os.removexattr(ours.path, "user.delegate")

    assert own_inside(ours) is None


def test_the_mark_of_older_systemd_counts_too(ours: Delegated) -> None:
    os.removexattr(ours.path, "user.delegate")
    os.setxattr(ours.path, "trusted.delegate", b"1")

    assert own_inside(ours) == str(ours.path)


def test_a_mark_on_a_directory_that_is_not_writable_does_not_help(ours: Delegated) -> None:
    assert ours.ask(AS_NOBODY) == "None"


def test_a_process_of_another_user_may_divide_what_was_given_to_it(ours: Delegated) -> None:
    ours.give_to(NOBODY)

    assert ours.ask(AS_NOBODY) == str(ours.path)


def test_a_run_s_cgroup_is_made_joined_killed_and_removed(ours: Delegated) -> None:
    path = f"{ours.path}/run-1-2"
    assert cgroups.make(path)
    assert cgroups.make(path), "twice is no error"
    assert not cgroups.populated(path)

    with a_member(path) as sleeper:
        assert cgroups.processes(path) == {sleeper.pid}
        assert not cgroups.remove(path), "something lives in it"
        assert cgroups.kill(path)
        assert sleeper.wait(10) == -signal.SIGKILL

    assert not cgroups.populated(path)
    assert cgroups.remove(path)
    assert not Path(path).exists()


def test_what_a_run_divided_further_dies_and_goes_too(ours: Delegated) -> None:
    path, deep = f"{ours.path}/run-1-2", f"{ours.path}/run-1-2/its/own"
    for each in (path, f"{path}/its", deep):
        cgroups.make(each)

    with a_member(deep) as sleeper:
        assert cgroups.populated(path)
        assert cgroups.processes(path) == {sleeper.pid}
        cgroups.kill(path)
        sleeper.wait(10)

    assert cgroups.remove(path)
    assert not Path(path).exists()


def test_what_is_not_there_is_no_trouble(ours: Delegated) -> None:
    path = f"{ours.path}/run-1-2"

    assert not cgroups.kill(path)
    assert not cgroups.populated(path)
    assert cgroups.processes(path) == set()
    assert cgroups.remove(path)
    assert not cgroups.join(path)
    assert not cgroups.make(f"{path}/below")


def test_the_runs_of_a_main_that_lives_elsewhere_or_nowhere_are_left_over(ours: Delegated) -> None:
    """Two nodes may share a delegated cgroup: what belongs to the living one is not ours."""
    with a_member(str(ours.path)) as neighbour:
        for name in (f"run-7-{neighbour.pid}", "run-8-4194305", f"run-9-{os.getpid()}", "something"):
            cgroups.make(f"{ours.path}/{name}")

        found = cgroups.left_over(str(ours.path))
    assert found == [f"{ours.path}/run-8-4194305", f"{ours.path}/run-9-{os.getpid()}"]


def test_what_is_no_cgroup_is_never_removed_nor_anything_below_it(tmp_path: Path) -> None:
    (tmp_path / "run-1-2" / "empty").mkdir(parents=True)

    assert not cgroups.remove(str(tmp_path))
    assert not cgroups.remove(str(tmp_path / "run-1-2"))

    assert (tmp_path / "run-1-2" / "empty").is_dir()
