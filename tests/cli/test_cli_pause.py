import asyncio
from collections.abc import Callable

import pytest

from orchestrator.core.nouns import JobName
from orchestrator.store.intents import parse_intents
from tests.cli.conftest import Run
from tests.cli.holder import Holder
from tests.cli.stage import Played
from tests.cli.test_cli_orders import order_of, ordered
from tests.servers import Server
from tests.store.node import KEYS

Play = Callable[..., Played]

BY_ANN: dict[str, object] = {"state": "paused", "pid": None, "why": "paused by ann@desk: audit"}
WAITING: dict[str, object] = {"state": "waiting", "pid": None}


async def waiting_cron(node: Played) -> Holder:
    """Let a node hold `invoices`, which waits for its tick."""
    await node.join()
    holder = await Holder.taking(node)
    await node.publish("invoices", holder.value, **WAITING)
    return holder


@pytest.mark.usefixtures("jobs_yaml")
async def test_pause_waits_until_the_holder_shows_it(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    holder = await waiting_cron(node)

    pausing = asyncio.create_task(run("pause", "invoices", "--why", "audit"))
    await ordered(server, "invoices", "paused")
    await asyncio.sleep(0.3)  # more than a look: it is seen not to know yet
    assert not pausing.done()
    await node.publish("invoices", holder.value, **BY_ANN)
    done = await pausing

    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("paused: invoices (on n1, ")
    assert (order_of(server, "invoices") or {})["why"] == "audit"


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize(
    ("options", "catch_up"), [([], False), (["--catch-up"], True)], ids=["skipping what was due", "catching up"]
)
async def test_resume_waits_until_it_is_shown_as_paused_no_more(
    run: Run, server: Server, play: Play, options: list[str], catch_up: bool
) -> None:
    node = play(server)
    holder = await waiting_cron(node)
    await run("pause", "invoices", "--no-wait")
    await node.publish("invoices", holder.value, **BY_ANN)

    resuming = asyncio.create_task(run("resume", "invoices", *options))
    await ordered(server, "invoices", "running")
    await asyncio.sleep(0.3)  # more than a look: it is seen to be paused still
    assert not resuming.done()
    await node.publish("invoices", holder.value, **WAITING)
    done = await resuming

    intent = parse_intents(server.client.hgetall(KEYS.intents).items())[JobName("invoices")]
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("resumed: invoices (waiting on n1, ")
    assert intent.catch_up is catch_up
    assert 0 < intent.off_ms < intent.at_ms


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_paused_job_is_paused_already_and_keeps_who_paused_it(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    holder = await waiting_cron(node)
    await run("pause", "invoices", "--no-wait", "--why", "first")
    await node.publish("invoices", holder.value, **BY_ANN)

    again = await run("pause", "invoices", "--why", "second")

    assert (again.status, again.out) == (0, "paused already: invoices (paused by ann@desk: audit)\n")
    assert (order_of(server, "invoices") or {})["why"] == "first"


@pytest.mark.usefixtures("jobs_yaml")
async def test_what_was_not_paused_is_not_ordered_to_go_on(run: Run, server: Server, play: Play) -> None:
    await waiting_cron(play(server))

    done = await run("resume", "invoices")

    assert (done.status, done.out) == (0, "resumed already: invoices (waiting on n1)\n")
    assert order_of(server, "invoices") is None


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_stop_is_neither_weakened_by_a_pause_nor_ended_by_a_resume(
    run: Run, server: Server, play: Play
) -> None:
    await play(server).join()
    await run("stop", "invoices", "--no-wait", "--why", "audit")

    paused, resumed = await run("pause", "invoices"), await run("resume", "invoices")

    assert (paused.status, resumed.status) == (1, 1)
    assert paused.err.startswith("orchestrator: not paused: invoices (it is stopped by ")
    assert resumed.err.endswith(": audit; `orchestrator start invoices` starts it)\n")
    assert (order_of(server, "invoices") or {})["want"] == "stopped"


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_start_takes_back_a_pause(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    holder = await waiting_cron(node)
    await run("pause", "invoices", "--no-wait")
    await node.publish("invoices", holder.value, **BY_ANN)

    starting = asyncio.create_task(run("start", "invoices"))
    await ordered(server, "invoices", "running")
    await node.publish("invoices", holder.value, **WAITING)
    done = await starting

    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("started: invoices (on n1, ")


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize(("command", "instead"), [("pause", "stop"), ("resume", "start")])
async def test_a_service_among_them_and_nothing_is_ordered(
    run: Run, server: Server, play: Play, command: str, instead: str
) -> None:
    await play(server).join()

    done = await run(command, "invoices", "beat")

    assert (done.status, done.out) == (2, "")
    assert done.err == (
        f"orchestrator: `beat` is a service and has no ticks; {instead} it with `orchestrator {instead} beat`\n"
    )
    assert order_of(server, "invoices") is None


@pytest.mark.usefixtures("jobs_yaml")
async def test_while_no_node_is_alive_a_pause_stands_and_a_resume_has_failed(run: Run, server: Server) -> None:
    paused, resumed = await run("pause", "invoices"), await run("resume", "invoices")

    assert (paused.status, resumed.status) == (0, 1)
    assert paused.out == "ordered: pause invoices (no node is alive; it holds for whoever comes)\n"
    assert resumed.out == "ordered: resume invoices (no node is alive; it holds for whoever comes)\n"
    assert (order_of(server, "invoices") or {})["want"] == "running"


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_pause_that_the_holder_does_not_show_in_time_is_said_and_stands(
    run: Run, server: Server, play: Play
) -> None:
    await waiting_cron(play(server))

    done = await run("pause", "invoices", "--timeout", "0.3")

    assert (done.status, done.out) == (1, "")
    assert done.err == "orchestrator: not paused in time: invoices (waiting on n1); the order stands\n"


@pytest.mark.usefixtures("jobs_yaml")
async def test_status_says_who_paused_a_job_and_why(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    holder = await waiting_cron(node)
    await node.publish("invoices", holder.value, **BY_ANN)

    row = (await run("status", "invoices")).out.splitlines()[2]

    assert row.split()[:3] == ["invoices", "cron", "paused"]
    assert row.endswith("paused by ann@desk: audit")
