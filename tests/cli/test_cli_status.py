import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.snapshot import ClusterView, JobView, NodeView, State
from tests.cli.conftest import JOBS_YAML, Run
from tests.cli.screen import Screen
from tests.cli.stage import JOBS, Played
from tests.servers import Server
from tests.store.node import KEYS

Play = Callable[..., Played]


async def hold_all(node: Played) -> None:
    """Let a node hold everything that ought to run."""
    await node.join()
    for job in JOBS[:-1]:
        await node.hold(job, state="waiting" if job == "invoices" else "running")


@pytest.mark.usefixtures("jobs_yaml")
async def test_every_job_is_one_row_with_holder_token_and_lease(run: Run, server: Server, play: Play) -> None:
    await hold_all(play(server))

    done = await run("status")

    head, titles, beat, invoices, *_, off = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert head == "shop  nodes 1: n1  redis ok  jobs 5: 1 waiting, 3 running, 1 stopped"
    assert titles.split() == ["JOB", "KIND", "STATE", "HOLDER", "TOKEN", "LEASE", "PID", "UP/NEXT", "LAST", "WHY"]
    assert beat.split()[:4] == ["beat", "service", "running", "n1"]
    assert beat.split()[5].endswith("s/10s")
    assert invoices.split()[:4] == ["invoices", "cron", "waiting", "n1"]
    assert off.split()[:4] == ["off", "service", "stopped", "-"]
    assert off.endswith("it is disabled in the file")


@pytest.mark.usefixtures("jobs_yaml")
async def test_json_is_the_whole_picture(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    held = await node.hold("beat")

    done = await run("status", "--json")

    told = json.loads(done.out)
    assert json.loads(json.dumps(ClusterView.from_json(told).to_json())) == told
    assert set(told) == {"cluster", "node", "nodes", "jobs", "redis"}
    beat = told["jobs"][0]
    assert set(beat) == set(JobView.__dataclass_fields__)
    assert (beat["holder"], beat["token"], beat["ttl_ms"], beat["pid"]) == ("n1", held.token, 10_000, 4711)
    assert beat["key"].endswith("}:beat:lease")


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize("state", [State.FAILED, State.BLOCKED])
async def test_a_job_in_trouble_makes_it_degraded(run: Run, server: Server, play: Play, state: str) -> None:
    node = play(server)
    await node.join()
    await node.hold("beat", state=state, why="exit 1; 3 failures in a row")

    assert (await run("status", "beat")).status == 3


@pytest.mark.usefixtures("jobs_yaml")
async def test_an_enabled_job_that_nobody_holds_makes_it_degraded(run: Run, server: Server, play: Play) -> None:
    await play(server).join()

    assert (await run("status", "beat")).status == 3
    assert (await run("status", "off")).status == 0


@pytest.mark.usefixtures("jobs_yaml")
async def test_some_jobs_are_told_where_some_are_named(run: Run, server: Server, play: Play) -> None:
    await hold_all(play(server))

    done = await run("status", "worker", "--json")

    assert [row["name"] for row in json.loads(done.out)["jobs"]] == ["worker", "worker.1"]


@pytest.mark.usefixtures("jobs_yaml")
async def test_an_unknown_job_is_said_on_stderr_and_json_stays_empty(run: Run) -> None:
    done = await run("status", "baet", "--json")

    assert (done.status, done.out) == (4, "")
    assert done.err == "orchestrator: no such job `baet`; did you mean `beat`?\n"


async def test_without_a_file_the_nodes_say_which_jobs_there_are(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join({"beat": "beat", "invoices": "other"})
    await node.hold("beat")

    done = await run("status", "--redis", server.url, "--cluster", "shop", "--json")

    rows = {row["name"]: row for row in json.loads(done.out)["jobs"]}
    assert (rows["beat"]["holder"], rows["beat"]["kind"]) == ("n1", "service")
    assert rows["invoices"]["kind"] == "cron"
    assert rows["invoices"]["key"].endswith("}:other:lease")


async def test_a_job_is_looked_for_under_the_key_that_the_nodes_run_it_under(
    run: Run, here: Path, server: Server, play: Play
) -> None:
    (here / "jobs.yaml").write_text(f"cluster: shop\nredis: {server.url}\njobs: {{beat: {{command: x}}}}\n")
    await play(server).join({"beat": "renamed", "gone": "gone"})

    done = await run("status", "--json")

    rows = {row["name"]: row["key"].split(":")[-2] for row in json.loads(done.out)["jobs"]}
    assert rows == {"beat": "renamed", "gone": "gone"}


@pytest.mark.usefixtures("jobs_yaml")
async def test_the_node_on_this_machine_is_marked_and_its_word_counts_for_what_it_holds(
    run: Run, server: Server, play: Play
) -> None:
    node = play(server)
    await node.join()
    held = await node.hold("beat", state="starting")
    own = JobView("beat", "service", "running", "n1", held.token, 9_000, 10_000, 5000, why="fresher")
    await node.listen(ClusterView("shop", "n1", (NodeView("n1"),), (own,), {"ok": True}), redis=server.url)

    done = await run("status", "beat")

    assert "nodes 1: n1*" in done.out
    assert done.out.splitlines()[2].split()[2:4] == ["running", "n1*"]
    assert done.out.endswith("fresher\n")


async def test_redis_away_leaves_the_node_on_this_machine_to_tell(
    run: Run, here: Path, own_server: Server, play: Play
) -> None:
    (here / "jobs.yaml").write_text(JOBS_YAML.format(url=own_server.url))
    rows = (JobView("beat", "service", "running", "n1", 7, 9_000, 10_000, 5000), JobView("worker", "service"))
    view = ClusterView("shop", "n1", (NodeView("n1"),), rows, {"ok": False, "problem": "connection refused"})
    await play(own_server).listen(view, redis=own_server.url)
    other = (replace(rows[0], holder=None), replace(rows[1], state="running", holder="n2", token=8))
    await play(own_server, "n2").listen(replace(view, node="n2", jobs=other), redis=own_server.url)
    own_server.stop()

    done = await run("status", "--json")

    told = json.loads(done.out)
    assert done.status == 3
    assert done.err == f"redis unreachable: Redis at {own_server.url}?db=0: connection refused\n"
    assert [(row["name"], row["holder"]) for row in told["jobs"]] == [("beat", "n1"), ("worker", "n2")]
    assert told["redis"] == {"ok": False, "problem": "connection refused"}


async def test_nobody_who_answers_is_said_in_one_line(run: Run, here: Path, own_server: Server) -> None:
    (here / "jobs.yaml").write_text(JOBS_YAML.format(url=own_server.url))
    own_server.stop()

    done = await run("status", "--json")

    assert (done.status, done.out) == (69, "")
    assert done.err.startswith("orchestrator: Redis at unix://")
    assert len(done.err.splitlines()) == 1


async def test_an_embedded_server_that_does_not_run_is_said_with_the_cure(run: Run, here: Path) -> None:
    (here / "jobs.yaml").write_text("jobs: {beat: {command: x}}")

    done = await run("status")

    assert done.status == 69
    assert "start a node with `orchestrator up`" in done.err


@pytest.mark.usefixtures("jobs_yaml")
def test_watching_prints_one_picture_a_line_until_control_c() -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "status", "--watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
        text=True,
    )
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())

    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=20)

    assert first["cluster"] == "shop"
    assert (watching.returncode, err.strip()) == (130, "")


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize("no_color", ["", "1"], ids=["in colour", "where colour is not wanted"])
def test_a_terminal_gets_glyphs_to_its_width_and_colour_if_it_likes(
    no_color: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    screen = Screen("status", "beat")
    try:
        status = screen.wait()
    finally:
        screen.close()

    assert status == 3
    assert "◌".encode() in screen.seen
    assert b"JOB" in screen.seen
    assert b"TOKEN" not in screen.seen
    assert (b"\x1b[31m" in screen.seen) == (not no_color)


async def test_a_node_that_cannot_reach_redis_though_we_can_is_degraded(
    run: Run, here: Path, server: Server, play: Play
) -> None:
    (here / "jobs.yaml").write_text(f"cluster: shop\nredis: {server.url}\njobs: {{beat: {{command: x}}}}\n")
    node = play(server)
    await node.join()
    await node.hold("beat")
    away = ClusterView("shop", "n1", redis={"ok": False, "problem": "no route to host"})
    await node.listen(away, redis=server.url)

    done = await run("status", "beat")

    assert done.status == 3
    assert "redis unreachable: no route to host" in done.out


@pytest.mark.usefixtures("jobs_yaml")
async def test_where_no_node_is_alive_what_was_published_once_is_not_trusted(
    run: Run, server: Server, play: Play
) -> None:
    node = play(server)
    await hold_all(node)
    server.client.delete(KEYS.nodes)

    done = await run("status")

    assert done.status == 3
    for row in done.out.splitlines()[2:-1]:
        assert row.endswith("no node is alive, or Redis refuses their writes")
    assert done.out.endswith("it is disabled in the file\n")


@pytest.mark.usefixtures("jobs_yaml")
async def test_where_no_node_is_alive_it_is_degraded_though_every_job_is_stopped(run: Run) -> None:
    assert (await run("status", "off")).status == 3


@pytest.mark.parametrize("nonsense", [["x"], {"x": 1}, 7, None, True, "", "\ud800"], ids=ascii)
async def test_a_key_that_is_no_text_is_nobody_s_word(
    run: Run, here: Path, server: Server, play: Play, nonsense: object
) -> None:
    (here / "jobs.yaml").write_text(f"cluster: shop\nredis: {server.url}\njobs: {{beat: {{command: x}}}}\n")
    await play(server).join({"beat": nonsense, "gone": nonsense})

    done = await run("status", "--json")

    rows = {row["name"]: row["key"].split(":")[-2] for row in json.loads(done.out)["jobs"]}
    assert rows == {"beat": "beat"}
