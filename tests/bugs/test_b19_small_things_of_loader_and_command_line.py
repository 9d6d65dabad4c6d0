"""B19: F1bonacc1/process-compose#63, #120; Supervisor/supervisor#886; docker-library/official-images#1699.

`$NAME` in a command was replaced by nothing when the file was loaded, before the job's own variables existed; to
restart a program that does not exist ended with status 0; after a kill -9 nothing started any more, because a pid
file held the number of a process that was somebody else's by then. Here the shell sees a command as it is written,
a command that did nothing says so and ends with another status than 0, and what a dead node left is known by its
lock and its socket, not by numbers.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.bugs.scene import kill_tree
from tests.chaos.cluster import JOB, Cluster, Node

pytestmark = pytest.mark.chaos

AS_REPORTED = (
    'echo $A $$ $HOME; echo "a b" | awk "{print \\$2}"; date +%F; find . -name "*.x" -exec echo {} \\;;'
    " echo ${A:-x} ${NOWHERE:-x} '${A}' %s '%(here)s' #no;comment"
)
HOME = "/the job's"
OF_NO_JOB = (
    "stop nosuch",
    f"stop {JOB} nosuch",
    "start nosuch",
    "status nosuch",
    "status nosuch --json",
    "lease nosuch",
    "lease nosuch --json",
    "next nosuch",
)
OF_REDIS = ("status", "status --json", "lease", "lease --json", f"lease {JOB}", f"stop {JOB}", f"start {JOB}")
"""Commands that cannot do without it."""


def own_log(node: Node, job: str) -> str:
    """Return what a job's runs wrote."""
    path = node.state / "chaos" / node.name / "logs" / f"{job}.log"
    return path.read_text() if path.exists() else ""


def test_the_shell_sees_a_command_as_it_is_written(cluster: Cluster) -> None:
    (cluster.directory / "found.x").touch()
    once = {"command": AS_REPORTED, "env": {"A": "5", "HOME": HOME}, "restart": "never"}
    cluster.write(jobs={"text": once | {"cwd": str(cluster.directory)}})
    node = cluster.up("a")

    node.says("event=run.ended job=text")

    (pid,) = re.findall(r"event=run.started job=text .*pid=(\d+)", node.log)
    first, second, date, *rest = own_log(node, "text").splitlines()
    assert (first, second) == (f"5 {pid} {HOME}", "b")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    assert rest == ["./found.x", "5 x ${A} %s %(here)s"]


def test_an_unknown_job_is_a_sentence_and_status_4(cluster: Cluster) -> None:
    told = {command: answer(cluster, command) for command in OF_NO_JOB}

    assert told == dict.fromkeys(OF_NO_JOB, (4, "", "orchestrator: no such job `nosuch`\n"))


def test_the_start_of_a_job_whose_program_is_missing_fails_with_the_reason(cluster: Cluster) -> None:
    slowly = {"delay": "60s", "max_delay": "60s"}
    cluster.write(jobs={"missing": {"command": ["/no/such/program"], "backoff": slowly}, JOB: {"command": "sleep 300"}})
    node = cluster.up("a")
    node.says("event=run.ended job=missing")

    status, data, talk = answer(cluster, "start missing")

    assert (status, data) == (1, "")
    assert re.fullmatch(
        r"orchestrator: failed: missing \(started on a: no such file: '/no/such/program'; try \d+ follows, .* s\)\n",
        talk,
    )
    rows = {row["name"]: row for row in cluster.status()["jobs"]}
    assert (rows["missing"]["state"], rows[JOB]["state"]) == ("backoff", "running")
    assert "Traceback" not in node.log


def test_where_no_node_is_alive_every_answer_says_so(cluster: Cluster) -> None:
    shown, seen, _ = answer(cluster, "status --json")
    started, *said = answer(cluster, f"start {JOB}")

    (row,) = json.loads(seen)["jobs"]
    assert (shown, row["state"]) == (3, "unheld")
    assert row["why"].startswith("no node is alive")
    assert started == 1
    assert "no node is alive" in "".join(said)


def test_where_redis_is_down_every_command_ends_with_69_and_a_sentence(cluster: Cluster) -> None:
    cluster.server.stop()
    told = {command: answer(cluster, command) for command in OF_REDIS}

    sentence = f"orchestrator: Redis at {cluster.server.url}: connection refused\n"
    assert told == dict.fromkeys(OF_REDIS, (69, "", sentence))


def test_where_nothing_runs_and_no_file_is_there_the_cure_is_named(cluster: Cluster) -> None:
    done = cluster.command("status", "--json", "--state-dir", str(cluster.directory / "nothing"))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("orchestrator: which cluster? ")
    assert "name one with --file FILE" in done.stderr


@pytest.mark.parametrize("taken", [False, True], ids=["and nothing else", "and another process has its pids"])
def test_after_a_kill_9_a_node_starts_again_without_a_hand(
    cluster: Cluster, stranger: subprocess.Popen[bytes], *, taken: bool
) -> None:
    first = cluster.up("a")
    run = cluster.run()
    pids = all_pids(first)
    kill_tree(first)
    if taken:
        give_pids_to(stranger.pid, pids, first.state)

    again = cluster.up("a")

    assert cluster.next_run(run).node == "a"
    assert cluster.status(node=again)["node"] == "a"
    assert stranger.poll() is None
    cluster.judge(runs=2)


@pytest.mark.parametrize("taken", [False, True], ids=["and nothing else", "and another process has its pids"])
def test_after_a_kill_9_of_the_embedded_server_too(
    cluster: Cluster, stranger: subprocess.Popen[bytes], *, taken: bool
) -> None:
    up = [sys.executable, "-m", "orchestrator", "up", str(cluster.file), "--log-format", "logfmt"]
    first = cluster.nodes["a"] = Node("a", cluster.directory, up, cluster.environ())
    first.says("event=node.joined")
    run = cluster.run()
    pids = all_pids(first)
    kill_tree(first)
    if taken:
        give_pids_to(stranger.pid, pids, first.state)

    again = cluster.nodes["a"] = Node("a", cluster.directory, up, cluster.environ())

    assert cluster.next_run(run).node == "a"
    assert stranger.poll() is None
    again.send(signal.SIGTERM)
    assert again.exit_status() == 0
    cluster.judge(runs=2)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that has nothing to do with us."""
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


def answer(cluster: Cluster, command: str) -> tuple[int, str, str]:
    """Run a command on the cluster; return its exit status, its data and its talk."""
    done = cluster.command(*command.split(), "--file", str(cluster.file), "--redis", cluster.server.url)
    return done.returncode, done.stdout, done.stderr


def all_pids(node: Node) -> list[int]:
    """Return the pids of a node and of everything below it."""
    return [node.process.pid, *(child.pid for child in psutil.Process(node.process.pid).children(recursive=True))]


def give_pids_to(stranger: int, pids: list[int], directory: Path) -> None:
    """Make every number of a dead process that was written down the pid of one that lives."""
    numbers = re.compile(rb"\b(" + b"|".join(b"%d" % pid for pid in pids) + rb")\b")
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # a socket
                path = Path(folder, name)
                path.write_bytes(numbers.sub(b"%d" % stranger, path.read_bytes()))
