"""B17: Supervisor/supervisor#1154, #504.

`update` restarted every program of a group for a change in one, and two instances were killed to become four.
Here one verb compares every field, touches what differs, and a broken file changes nothing.
"""

import json
import signal
from typing import Any

import pytest

from tests.bugs.scene import row_of
from tests.chaos.cluster import Cluster, Node, until

pytestmark = pytest.mark.chaos

SLEEP = ["sleep", "600"]
BEFORE: dict[str, dict[str, Any]] = {
    "a": {"command": SLEEP},
    "b": {"command": SLEEP, "env": {"COLOUR": "red"}},
    "c": {"command": SLEEP},
    "w": {"command": SLEEP, "instances": 2},
}
AFTER: dict[str, dict[str, Any]] = {
    "a": {"command": SLEEP},
    "b": {"command": SLEEP, "env": {"COLOUR": "blue"}},
    "w": {"command": SLEEP, "instances": 4},
    "d": {"command": SLEEP},
}


def pids(cluster: Cluster) -> dict[str, int]:
    """Return the pid of each job that runs."""
    return {job["name"]: job["pid"] for job in cluster.status()["jobs"] if job["state"] == "running" and job["pid"]}


def running(cluster: Cluster, *names: str) -> dict[str, int]:
    """Wait until exactly these run, and return their pids."""
    return until(lambda: found if set(found := pids(cluster)) == set(names) else None, f"{names} run")


def started(cluster: Cluster) -> tuple[Node, dict[str, int]]:
    cluster.write(BEFORE)
    return cluster.up("n1"), running(cluster, "a", "b", "c", "w", "w.1")


def reload(cluster: Cluster, node: Node, *args: str) -> Any:
    return cluster.command("reload", *args, "--file", str(cluster.file), "--state-dir", str(node.state))


@pytest.mark.parametrize("how", ["command", "SIGHUP"])
def test_only_what_changed_is_touched(cluster: Cluster, how: str) -> None:
    node, before = started(cluster)
    old_b = before["b"]

    cluster.write(AFTER)
    if how == "command":
        said = reload(cluster, node)
        assert said.returncode == 0, said.stderr
    else:
        node.send(signal.SIGHUP)

    after = running(cluster, "a", "b", "d", "w", "w.1", "w.2", "w.3")
    assert {name: after[name] for name in ("a", "w", "w.1")} == {name: before[name] for name in ("a", "w", "w.1")}
    until(lambda: pids(cluster).get("b") not in (old_b, None), "b runs anew")
    assert node.log.count("event=run.started job=b ") == 2
    until(lambda: "event=job.removed job=c" in node.log, "c is gone")
    until(lambda: "c" not in {job["name"] for job in cluster.status()["jobs"]}, "c is no longer shown")
    assert cluster.server.client.keys("*:c:lease") == []


def test_a_dry_run_shows_every_field_that_differs_and_changes_nothing(cluster: Cluster) -> None:
    node, before = started(cluster)
    cluster.write(AFTER | {"a": {"command": SLEEP, "tags": ["x"]}})

    said = reload(cluster, node, "--dry-run")

    assert said.returncode == 0
    assert said.stdout.splitlines() == [
        "n1: 6 of its jobs would change",
        "  = a    taken over, nothing is restarted",
        "      tags: - -> x",
        "  ~ b    restarted under its lease (a cron: by its next run)",
        "      env.COLOUR: (not shown) -> (not shown)",
        "  + w.2  new",
        "  + w.3  new",
        "  + d    new",
        "  - c    removed: it is stopped, and its lease given back",
    ]
    told = json.loads(reload(cluster, node, "--dry-run", "--json").stdout)["n1"]
    assert [change["effect"] for change in told["changes"]] == [
        *("applied", "restarted", "added", "added", "added", "removed"),
    ]
    assert pids(cluster) == before


@pytest.mark.parametrize(
    "text",
    ["jobs:\n\ta: {command: x}\n", 'cluster: chaos\njobs: {a: {commnad: "x"}}\n', "cluster: other\njobs: {}\n", ""],
    ids=["a tab", "an unknown key", "another cluster", "an empty file"],
)
def test_a_broken_file_changes_nothing(cluster: Cluster, text: str) -> None:
    node, before = started(cluster)

    cluster.file.write_text(text)
    said = cluster.command("reload", "--cluster", "chaos", "--state-dir", str(node.state))
    assert said.returncode == 78
    assert said.stderr.strip()
    node.send(signal.SIGHUP)
    node.says("event=file.refused", times=2)

    assert pids_of(node, cluster) == before


def test_comments_and_another_order_of_keys_touch_nothing(cluster: Cluster) -> None:
    node, before = started(cluster)
    data = json.loads(cluster.file.read_text())

    data["jobs"] = dict(reversed(data["jobs"].items()))
    cluster.file.write_text("# edited by hand\n" + json.dumps(data, indent=3))
    said = reload(cluster, node)

    assert (said.returncode, said.stdout) == (0, "n1: nothing changes\n")
    assert pids(cluster) == before


def test_two_nodes_with_different_files_never_run_one_twice_and_say_so(cluster: Cluster) -> None:
    cluster.write(command=[*cluster.witness.command()])
    a, b = cluster.two_nodes()
    run = cluster.run()
    cluster.write(command=[*cluster.witness.command()], tags=["later"], env={"EDITED": "1"})

    assert reload(cluster, b).returncode == 0

    a.says("event=file.differs")
    b.says("event=file.differs")
    assert "another definition" in row_of(cluster, "ticker", a)["why"]
    cluster.undisturbed(run, 1.0)
    a.send(signal.SIGTERM)
    cluster.next_run(run)
    cluster.judge(runs=2)


def pids_of(node: Node, cluster: Cluster) -> dict[str, int]:
    """Return what a node says of its own jobs; the file is of no help while it is broken."""
    told = json.loads(cluster.command("status", "--json", "--cluster", "chaos", "--state-dir", str(node.state)).stdout)
    return {job["name"]: job["pid"] for job in told["jobs"] if job["state"] == "running"}
