"""A delegated cgroup as tests make one: what systemd does for a service with Delegate=yes, without systemd."""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.runs import cgroups

ROOT = Path(__file__).parents[2]


def _top() -> Path | None:
    """Return where the cgroup2 tree is mounted, if this process may divide it and the kernel has cgroup.kill."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    top = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    if top is None or os.geteuid() != 0:
        return None
    probe = top / f"orchestrator-probe-{uuid.uuid4().hex[:8]}"
    try:
        probe.mkdir()
    except OSError:
        return None
    try:
        os.setxattr(probe, "user.delegate", b"1")
        return top if (probe / "cgroup.kill").exists() else None
    except OSError:
        return None
    finally:
        probe.rmdir()


TOP = _top()
NEEDS_CGROUPS = pytest.mark.skipif(TOP is None, reason="a cgroup2 tree of Linux 5.14 that root may divide is needed")


@dataclass(frozen=True, slots=True)
class Delegated:
    """A delegated cgroup.

    Attributes:
        path: Its directory.
    """

    path: Path

    def give_to(self, uid: int) -> None:
        """Give it to a user, as systemd does for a service with User=."""
        for each in (self.path, self.path / "cgroup.procs", self.path / "cgroup.subtree_control"):
            os.chown(each, uid, uid)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Live in it, so that whatever is started begins there, and go back."""
        line = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        (self.path / "cgroup.procs").write_text("0")
        try:
            yield
        finally:
            assert TOP is not None, "there would be no such cgroup"
            (TOP / line.removeprefix("0::/") / "cgroup.procs").write_text("0")

    def ask(self, script: str) -> str:
        """Run a script as a process that lives in it, and return what it prints."""
        with self.inside():
            done = subprocess.run(
                [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True
            )
        return done.stdout.strip()


@contextlib.contextmanager
def delegated() -> Iterator[Delegated]:
    """Make one, and remove it with all that is in it."""
    assert TOP is not None, "see NEEDS_CGROUPS"
    path = TOP / f"orchestrator-test-{uuid.uuid4().hex[:12]}"
    path.mkdir()
    try:
        os.setxattr(path, "user.delegate", b"1")
        yield Delegated(path)
    finally:
        cgroups.kill(str(path))
        while cgroups.populated(str(path)):
            time.sleep(0.01)
        cgroups.remove(str(path))
