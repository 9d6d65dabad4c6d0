"""What the launcher and a leash cost: one of them runs beside every job."""

import subprocess
import sys
from pathlib import Path

from orchestrator.runs import linux
from orchestrator.runs.spares import MEMORY_BYTES
from tests.runs.node import Node, job

ROOT = Path(__file__).parents[2]
MAX_LEASH_KIB = 1536
LEASHES = 20


def pss_kib(pid: int) -> int:
    """Proportional set size: shared pages divided among those who share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise AssertionError(pid)


def open_files(pid: int) -> list[Path]:
    """What the descriptors of a process lead to."""
    return [entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir()]


async def test_a_leash_costs_little(node: Node) -> None:
    runs = [node.start(job(("sleep", "20"))) for _ in range(LEASHES)]
    for run in runs:
        await node.started(run)

    mean_kib = sum(pss_kib(node.leash(run)) for run in runs) / LEASHES

    assert mean_kib <= MAX_LEASH_KIB
    for run in runs:
        node.kill(run)
    for run in runs:
        await node.ended(run)


async def test_a_spare_costs_no_more_than_is_reckoned_with(node: Node) -> None:
    waiting = await node.spares(LEASHES)

    mean_kib = sum(pss_kib(pid) for leash in waiting for pid in (leash, *linux.children(leash))) / LEASHES

    assert mean_kib <= MEMORY_BYTES / 1024


async def test_the_rehearsal_leaves_nothing_open(node: Node) -> None:
    run = node.start(job(("sleep", "20")))
    await node.started(run)

    links = open_files(node.launcher())
    kinds = sorted(str(link).partition(":")[0] for link in links if not link.is_absolute())

    # The page and what mmap keeps of it, the timer, the wake-ups, and the way to main.
    assert kinds == ["anon_inode", "pipe", "pipe", "socket"]
    assert sum(str(link).startswith("/memfd:") for link in links) == 2
    node.kill(run)
    await node.ended(run)


def test_the_launcher_imports_only_the_standard_library_and_its_own_light_files() -> None:
    script = (
        f"import sys; sys.path.append({str(ROOT)!r}); import orchestrator.runs.launcher; print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())

    own = {name.removeprefix("orchestrator.runs.") for name in loaded if name.startswith("orchestrator.runs.")}
    running = {
        "ending",
        "errands",
        "killing",
        "launcher",
        "leash",
        "page",
        "ready",
        "rehearsal",
        "tree",
        "wakeups",
        "wire",
    }
    beginning = {"cgroups", "env_file", "first_process", "identity"}
    writing = {"journal", "logs", "output", "pump", "stamps"}
    assert own <= running | beginning | writing | {"linux"}
    assert not any(name.startswith(("orchestrator.core", "psutil", "redis")) for name in loaded)
    assert loaded.isdisjoint({"asyncio", "dataclasses", "logging", "pathlib", "subprocess", "threading"})
