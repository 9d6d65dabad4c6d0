import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import JOBS_YAML, Run
from tests.cli.stage import Played
from tests.servers import Server
from tests.store.node import KEYS

Play = Callable[..., Played]


def order_of(server: Server, job: str) -> dict[str, str] | None:
    """Return the standing order for a job as Redis has it."""
    said = server.client.hget(KEYS.intents, job)
    return None if said is None else json.loads(str(said).partition("|")[2])


async def ordered(server: Server, job: str, want: str) -> None:
    """Wait until somebody ordered it."""
    async with asyncio.timeout(10):
        while (order_of(server, job) or {}).get("want") != want:  # noqa: ASYNC110 - Redis has no event for it
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("jobs_yaml")
async def test_stop_waits_until_the_lease_is_free(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    held = await node.hold("beat")

    stopping = asyncio.create_task(run("stop", "beat", "--why", "maintenance"))
    await ordered(server, "beat", "stopped")
    await node.release("beat", held)
    done = await stopping

    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("stopped: beat (was on n1, ")
    order = order_of(server, "beat")
    assert order is not None
    assert order["why"] == "maintenance"
    assert "@" in order["who"]


@pytest.mark.usefixtures("jobs_yaml")
async def test_stop_means_all_instances_and_each_is_told(run: Run, server: Server, play: Play) -> None:
    node, other = play(server), play(server, "n2")
    await node.join()
    await other.join()
    first, second = await node.hold("worker"), await other.hold("worker.1")

    stopping = asyncio.create_task(run("stop", "worker"))
    await ordered(server, "worker.1", "stopped")
    await node.release("worker", first)
    await other.release("worker.1", second)
    done = await stopping

    assert done.status == 0
    assert sorted(line.split(",")[0] for line in done.out.splitlines()) == [
        "stopped: worker (was on n1",
        "stopped: worker.1 (was on n2",
    ]


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_stopped_job_is_stopped_already_and_keeps_who_stopped_it(run: Run, server: Server, play: Play) -> None:
    await play(server).join()
    await run("stop", "beat", "--why", "first")

    again = await run("stop", "beat", "--why", "second")

    assert again.status == 0
    assert again.out.startswith("stopped already: beat (stopped by ")
    assert again.out.endswith(": first)\n")
    assert (order_of(server, "beat") or {})["why"] == "first"


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_job_that_does_not_stop_in_time_is_said_and_the_order_stands(
    run: Run, server: Server, play: Play
) -> None:
    node = play(server)
    await node.join()
    held = await node.hold("beat")
    await node.hold("worker.1")

    stopping = asyncio.create_task(run("stop", "beat", "worker.1", "--timeout", "0.6"))
    await ordered(server, "beat", "stopped")
    await node.release("beat", held)
    done = await stopping

    assert done.status == 1
    assert done.out.startswith("stopped: beat (was on n1")
    assert done.err.startswith("orchestrator: not stopped in time: worker.1 (running on n1")
    assert done.err.endswith("; the order stands\n")


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize("args", [["stop", "beat"], ["stop", "beat", "--no-wait"]], ids=["waiting", "not waiting"])
async def test_a_stop_while_no_node_is_alive_stands_for_whoever_comes(
    run: Run, server: Server, args: list[str]
) -> None:
    done = await run(*args)

    assert (done.status, done.err) == (0, "")
    assert done.out == "ordered: stop beat (no node is alive; it holds for whoever comes)\n"
    assert (order_of(server, "beat") or {})["want"] == "stopped"


@pytest.mark.usefixtures("jobs_yaml")
async def test_start_waits_until_the_job_runs(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    await run("stop", "beat")

    starting = asyncio.create_task(run("start", "beat"))
    await ordered(server, "beat", "running")
    held = await node.hold("beat", state="starting")
    await node.publish("beat", held, state="running")
    done = await starting

    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("started: beat (on n1, ")


@pytest.mark.usefixtures("jobs_yaml")
async def test_starting_a_running_job_orders_nothing(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    await node.hold("beat")

    done = await run("start", "beat")

    assert (done.status, done.out) == (0, "started already: beat (running on n1)\n")
    assert order_of(server, "beat") is None


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_disabled_job_is_not_started(run: Run, server: Server, play: Play) -> None:
    await play(server).join()

    done = await run("start", "off")

    assert (done.status, done.out) == (1, "")
    assert "not started: off (it is disabled in the file" in done.err
    assert order_of(server, "off") is None


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_start_while_no_node_is_alive_has_failed_unless_nobody_waits(
    run: Run,
) -> None:
    waited, ordered_only = await run("start", "beat"), await run("start", "beat", "--no-wait")

    assert (waited.status, ordered_only.status) == (1, 0)
    assert waited.out == "ordered: start beat (no node is alive; it holds for whoever comes)\n"


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize("command", ["stop", "start"])
async def test_one_unknown_job_and_nothing_is_ordered(run: Run, server: Server, play: Play, command: str) -> None:
    await play(server).join()

    done = await run(command, "beat", "nosuch")

    assert (done.status, done.out) == (4, "")
    assert "no such job `nosuch`" in done.err
    assert order_of(server, "beat") is None


async def test_without_file_and_nodes_no_job_is_known(run: Run, server: Server) -> None:
    done = await run("stop", "beat", "--redis", server.url, "--cluster", "shop")

    assert done.status == 4
    assert "name the file with --file FILE" in done.err


@pytest.mark.parametrize("command", ["stop", "start"])
async def test_an_order_needs_redis(run: Run, here: Path, own_server: Server, command: str) -> None:
    (here / "jobs.yaml").write_text(JOBS_YAML.format(url=own_server.url))
    own_server.stop()

    done = await run(command, "beat")

    assert (done.status, done.out) == (69, "")
    assert done.err.startswith("orchestrator: Redis at unix://")


async def test_redis_that_goes_away_while_one_waits_is_said_in_the_end(
    run: Run, here: Path, own_server: Server, play: Play
) -> None:
    (here / "jobs.yaml").write_text(JOBS_YAML.format(url=own_server.url))
    node = play(own_server)
    await node.join()
    await node.hold("beat")

    stopping = asyncio.create_task(run("stop", "beat", "--timeout", "1"))
    await ordered(own_server, "beat", "stopped")
    own_server.stop()
    done = await stopping

    assert done.status == 69
    assert "the order stands, but what became of it cannot be seen" in done.err


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize(("first", "then"), [("start", "stop"), ("stop", "start")])
async def test_an_order_that_the_opposite_overtakes_is_waited_for_no_longer(
    run: Run, server: Server, play: Play, first: str, then: str
) -> None:
    node = play(server)
    await node.join()
    if first == "stop":
        await node.hold("beat")
    else:
        await run("stop", "beat")

    waiting = asyncio.create_task(run(first, "beat"))
    await ordered(server, "beat", WANTED[first])
    command = [sys.executable, "-m", "orchestrator", then, "beat", "--no-wait"]
    await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
    done = await asyncio.wait_for(waiting, 10)

    assert (done.status, done.out) == (1, "")
    who = (order_of(server, "beat") or {})["who"]
    assert done.err.startswith(f"orchestrator: overtaken: beat (by a {then} of {who}, ")


WANTED = {"start": "running", "stop": "stopped"}


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_service_that_ends_while_it_is_looked_at_has_not_started(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    await run("stop", "beat")

    starting = asyncio.create_task(run("start", "beat"))
    await ordered(server, "beat", "running")
    held = await node.hold("beat", state="running", pid=1, since="2026-01-01T00:00:00.000Z")
    await asyncio.sleep(0.3)  # more than a look: it is seen to run
    await node.publish("beat", held, state="backoff", why="exit 3; try 2 follows")
    await node.record("beat", held, started="2026-01-01T00:00:00.000Z", outcome="failed", exit_code=3)
    done = await starting

    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("orchestrator: failed: beat (started on n1: exit 3; try 2 follows, ")


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize("command", ["stop", "start"])
async def test_control_c_while_one_waits_says_that_the_order_stands(server: Server, play: Play, command: str) -> None:
    node = play(server)
    await node.join()
    if command == "stop":
        await node.hold("beat")
    waiting = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orchestrator", command, "beat", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    await ordered(server, "beat", WANTED[command])
    await asyncio.sleep(0.2)  # the order is in Redis a moment before the command knows it

    waiting.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(waiting.communicate(), 20)

    assert (waiting.returncode, out) == (130, b"")
    assert err.decode().strip() == f"interrupted; the order stands: {command} beat"


@pytest.mark.usefixtures("jobs_yaml")
async def test_what_was_published_before_the_last_node_died_starts_nothing(
    run: Run, server: Server, play: Play
) -> None:
    node = play(server)
    await node.join()
    await node.hold("beat")
    server.client.delete(KEYS.nodes)

    done = await run("start", "beat")

    assert (done.status, done.out) == (1, "ordered: start beat (no node is alive; it holds for whoever comes)\n")
