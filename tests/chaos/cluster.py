"""A cluster for faults: a real server, nodes that are real processes, and a job that is its own witness.

    def test_a_crash_is_taken_over(cluster: Cluster) -> None:
        a, b = cluster.two_nodes()                      # a runs the witness job, b stands by
        run, pids = cluster.run(), a.pids()             # as the witness sees it, and as the kernel does
        a.send(signal.SIGKILL)
        cluster.next_run(run, within_s=TTL_S + 0.5)
        assert cluster.left_of(pids) == []
        cluster.judge(runs=2)

It knows the command line, /proc and the witness; it must never look into the product. Whatever it starts
bears its tag in the environment, so that what outlives a test is found. The nodes' logs are printed at the
end: pytest shows them of a test that failed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from orchestrator import clock
from orchestrator.embedded import find_server
from tests.chaos.witness import SeenRun, Witness
from tests.servers import Server

ROOT = Path(__file__).parents[2]
TTL_S = 3.0
HEARTBEAT_S = TTL_S / 5
STEP_DOWN_GRACE_S = TTL_S / 3
PATIENCE_S = 15.0
"""How long a test waits for what must come at some time, on a busy machine."""

JOB = "ticker"
_Found = TypeVar("_Found")


def until(holds: Callable[[], _Found | None], what: str, within_s: float = PATIENCE_S) -> _Found:
    """Wait until something holds; return what was found."""
    give_up_at = clock.boot() + within_s
    while not (found := holds()):
        assert clock.boot() < give_up_at, f"{what}: not within {within_s:g} s"
        time.sleep(0.01)
    return found


@dataclass(frozen=True, slots=True)
class Pids:
    """The processes of a node that runs one job.

    Attributes:
        run_id: Stands in the environment of all that belongs to the run.
    """

    main: int
    launcher: int
    leash: int
    job: int
    run_id: str


class Node:
    """One `orchestrator up`, and its directory.

    Attributes:
        log: What it said on stderr, over all its starts.
    """

    def __init__(self, name: str, directory: Path, command: list[str], environ: Mapping[str, str]) -> None:
        """Start it."""
        self.name = name
        self.state = directory / name
        self._log = directory / f"{name}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--node", name, "--state-dir", str(self.state)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                cwd=directory,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """Everything it said, in logfmt."""
        return self._log.read_text()

    @property
    def alive(self) -> bool:
        """Whether main has not ended."""
        return self.process.poll() is None

    def send(self, signum: signal.Signals) -> float:
        """Send main a signal; return when, on the boot clock."""
        at = clock.boot()
        self.process.send_signal(signum)
        return at

    def exit_status(self, within_s: float = PATIENCE_S) -> int:
        """Wait for the end of main."""
        return self.process.wait(within_s)

    def says(self, words: str, *, times: int = 1, within_s: float = PATIENCE_S) -> None:
        """Wait until words stand so often in its log."""
        until(lambda: self.log.count(words) >= times, f"{self.name} says `{words}`", within_s)

    def pids(self) -> Pids:
        """Return the processes of a node that runs exactly one job."""
        leash = self._below("orch-leash")
        job = leash.children()[0]
        return Pids(
            self.process.pid, self._below("orch-launcher").pid, leash.pid, job.pid, job.environ()["ORCHESTRATOR_RUN_ID"]
        )

    def has_launcher(self, *, other_than: int) -> bool:
        """Tell whether it has another launcher than a dead or frozen one."""
        return any(process.pid != other_than for process in self._all_below("orch-launcher"))

    def _below(self, name: str) -> psutil.Process:
        return self._all_below(name)[0]

    def _all_below(self, name: str) -> list[psutil.Process]:
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in below if _name(process) == name]


class Cluster:
    """A server, nodes, the file they read, and the witness."""

    def __init__(self, *server_options: str) -> None:
        """Start the server; the witness job alone stands in the file."""
        # Not tmp_path: a unix socket's path may have 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="orchestrator-chaos-"))
        self.tag = self.directory.name
        self.witness = Witness(self.directory / "witness")
        self.file = self.directory / "jobs.yaml"
        self.nodes: dict[str, Node] = {}
        (self.directory / "server").mkdir()
        self.server = Server(find_server(), self.directory / "server", *server_options, port=0).start()
        self.write()

    def write(self, jobs: Mapping[str, object] | None = None, *, ttl_s: float = TTL_S, **job: object) -> None:
        """Write the file: `jobs`, or the witness job with more keys of its own."""
        jobs = jobs if jobs is not None else {JOB: {"command": self.witness.command(), **job}}
        defaults = {"lease": {"ttl": f"{round(1000 * ttl_s)}ms"}, "stop": {"timeout": "2s"}}
        self.file.write_text(json.dumps({"cluster": "chaos", "defaults": defaults, "jobs": jobs}, indent=1))

    # --- nodes ------------------------------------------------------------------------------------

    def up(self, name: str, *, url: str | None = None, new_cluster: bool = True, joins: bool = True) -> Node:
        """Start a node, or start it again, and wait until it has joined.

        Args:
            name: Its name, and that of its state directory.
            url: Of Redis, where it is not the server's (a `Hole`).
            new_cluster: It need not wait for whoever may have held leases before its time.
            joins: False: do not wait.
        """
        command = [sys.executable, "-m", "orchestrator", "up", str(self.file), "--redis", url or self.server.url]
        command += ["--log-format", "logfmt", *(["--new-cluster"] if new_cluster else [])]
        earlier = self.nodes.get(name)
        joined = earlier.log.count("event=node.joined") if earlier else 0
        assert earlier is None or earlier.exit_status() is not None, "it ended, and is reaped"
        node = self.nodes[name] = Node(name, self.directory, command, self.environ())
        if joins:
            node.says("event=node.joined", times=joined + 1)
        return node

    def two_nodes(self, *, url: str | None = None) -> tuple[Node, Node]:
        """Start a, which runs the witness job (its Redis is at `url`), and b, which stands by."""
        a = self.up("a", url=url)
        self.run()
        b = self.up("b")  # who has joined has seen the leases too: one heartbeat asks for both
        return a, b

    def assert_all_alive(self) -> None:
        """Assert that no node has ended, and that each is a member of the cluster."""
        assert [node.name for node in self.nodes.values() if not node.alive] == []
        names = sorted(self.nodes)
        until(lambda: sorted(node["name"] for node in self.status()["nodes"]) == names, "all are members")

    def status(self, *args: str, node: Node | None = None) -> Any:
        """Return `status --json`, told by Redis, or by a node (for when Redis is away).

        Any: what JSON holds.
        """
        where = ["--state-dir", str(node.state)] if node else ["--file", str(self.file), "--redis", self.server.url]
        return json.loads(self.command("status", "--json", *args, *where).stdout)

    def lease_key(self, job: str = JOB) -> str:
        """Return the key of a job's lease, as `status` shows it."""
        (row,) = self.status(job)["jobs"]
        return str(row["key"])

    def command(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        argv = [sys.executable, "-m", "orchestrator", *args]
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, env=self.environ(), cwd=ROOT, timeout=PATIENCE_S
        )

    def environ(self) -> dict[str, str]:
        """Return the environment of everything that is started: ours, nothing of another installation, the tag."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "PYTHON"))}
        return ours | {"PYTHONPATH": str(ROOT), "CHAOS_TAG": self.tag}

    # --- what the witness saw -----------------------------------------------------------------------

    def run(self) -> SeenRun:
        """Wait until the witness job runs."""
        return until(self.witness.running, "the job runs")

    def next_run(self, run: SeenRun, within_s: float = PATIENCE_S) -> SeenRun:
        """Wait for the first tick of the run that follows."""
        return until(lambda: self.witness.newer_than(run), f"a run after the one on {run.node}", within_s)

    def undisturbed(self, run: SeenRun, for_s: float) -> None:
        """Assert that for so long a run goes on, and no other begins."""
        since = clock.boot()
        until(lambda: self.witness.now(run).last >= since + for_s, "the same run goes on", for_s + 1.0)
        assert self.witness.newer_than(run) is None

    def judge(self, *, runs: int) -> None:
        """Assert that no two ran at once, no token went back, and at least so many runs were seen."""
        self.witness.judge(runs=runs)

    # --- processes ----------------------------------------------------------------------------------

    def processes(self, *words: str) -> list[int]:
        """Return every living process of this cluster whose environment holds all these words."""
        wanted = [f"CHAOS_TAG={self.tag}", *words]
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and set(wanted) <= _environ(entry)
        ]

    def left_of(self, pids: Pids) -> list[int]:
        """Return what still lives of a run: its leash, and whatever bears its id."""
        leash = {pids.leash} & set(self.processes())
        return sorted(leash | set(self.processes(f"ORCHESTRATOR_RUN_ID={pids.run_id}")))

    def story(self) -> str:
        """Return what every node said and the witness saw, for people."""
        parts = [f"--- node {node.name}, pid {node.process.pid}\n{node.log}" for node in self.nodes.values()]
        runs = [f"{run.node} token {run.token}: {run.first:.2f}..{run.last:.2f}" for run in self.witness.runs()]
        return "\n".join([*parts, "--- the witness", *runs])

    def close(self) -> None:
        """Kill every main, and assert that launchers and leashes clear everything away by themselves."""
        for pid in self.processes():
            _send(pid, signal.SIGCONT)
        for node in self.nodes.values():
            node.process.kill()
            node.process.wait()
        try:
            until(lambda: not self.processes(), "nothing outlives main")
        finally:
            for pid in self.processes():
                _send(pid, signal.SIGKILL)
            self.server.stop()
            shutil.rmtree(self.directory)


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _environ(entry: Path) -> set[str]:
    try:
        return set((entry / "environ").read_bytes().decode(errors="replace").split("\0"))
    except OSError:  # it ended meanwhile, or it is somebody else's
        return set()


def _send(pid: int, signum: signal.Signals) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return
