import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.nouns import Trigger
from orchestrator.core.snapshot import iso_utc
from tests.cli.conftest import JOBS_YAML, Run
from tests.cli.holder import DAY_MS, Holder, orders_in, ticks_before
from tests.cli.screen import Screen
from tests.cli.stage import Played, Result
from tests.servers import Server

Play = Callable[..., Played]


async def ordered(server: Server, count: int = 1) -> list[Trigger]:
    """Wait until so many orders stand, and return them."""
    async with asyncio.timeout(10):
        while len(orders_in(server)) < count:  # noqa: ASYNC110 - Redis has no event for it
            await asyncio.sleep(0.01)
    return orders_in(server)


async def a_holder(server: Server, node: Played) -> Holder:
    """Let a node hold `invoices`, whose newest tick ran."""
    await node.join()
    (tick,) = ticks_before(server.server_ms(), 1)
    holder = await Holder.taking(node, since_ms=tick - 1)
    await holder.end(await holder.claim(tick))
    await node.publish("invoices", holder.value, state="waiting", pid=None)
    return holder


@pytest.mark.usefixtures("jobs_yaml")
async def test_trigger_waits_until_the_run_has_started(run: Run, server: Server, play: Play) -> None:
    holder = await a_holder(server, play(server))

    triggering = asyncio.create_task(run("trigger", "invoices", "--why", "once more"))
    (order,) = await ordered(server)
    await holder.claim(None, order=order)
    done = await triggering

    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"started: invoices (on n1, run invoices@manual-{order.order_ms}, ")
    assert (order.job, order.tick_ms, order.why) == ("invoices", None, "once more")
    assert "@" in order.who


@pytest.mark.usefixtures("jobs_yaml")
async def test_until_end_says_how_it_ended(run: Run, server: Server, play: Play) -> None:
    holder = await a_holder(server, play(server))

    triggering = asyncio.create_task(run("trigger", "invoices", "--until-end"))
    (order,) = await ordered(server)
    await holder.end(await holder.claim(None, order=order))
    done = await triggering

    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("ok: invoices (exit 0 after 41s on n1, ")


@pytest.mark.usefixtures("jobs_yaml")
async def test_until_end_waits_through_the_retries_and_a_failure_shows_what_was_written(
    run: Run, server: Server, play: Play
) -> None:
    holder = await a_holder(server, play(server))

    triggering = asyncio.create_task(run("trigger", "invoices", "--until-end"))
    (order,) = await ordered(server)
    started = await holder.claim(None, order=order)
    failed: dict[str, Any] = {"outcome": "failed", "exit_code": 1, "elapsed_s": 0.3, "output": ["OSError: no route"]}
    await holder.end(started, retry_ms=server.server_ms() + 60_000, **failed)
    await asyncio.sleep(0.5)  # more than a look: it is seen to wait
    assert not triggering.done()
    await holder.end(started, **failed)
    done = await triggering

    assert (done.status, done.out) == (1, "")
    first, output = done.err.splitlines()
    assert first.startswith("orchestrator: failed: invoices (exit 1 after 0.3s on n1, ")
    assert output == "    | OSError: no route"


@pytest.mark.usefixtures("jobs_yaml")
async def test_an_order_that_its_holder_refuses_has_failed(run: Run, server: Server, play: Play) -> None:
    holder = await a_holder(server, play(server))

    triggering = asyncio.create_task(run("trigger", "invoices"))
    (order,) = await ordered(server)
    await holder.refuse(order, "invoices@x still runs (overlap: skip)")
    done = await triggering

    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("orchestrator: skipped: invoices (invoices@x still runs (overlap: skip), ")


@pytest.mark.usefixtures("jobs_yaml")
async def test_without_waiting_the_name_of_the_run_is_said(run: Run, server: Server, play: Play) -> None:
    await a_holder(server, play(server))

    done = await run("trigger", "invoices", "--no-wait")

    (order,) = orders_in(server)
    assert (done.status, done.err) == (0, "")
    assert done.out == f"ordered: trigger invoices (run invoices@manual-{order.order_ms})\n"


@pytest.mark.usefixtures("jobs_yaml")
async def test_an_order_that_nobody_takes_up_stands_for_a_while(run: Run, server: Server, play: Play) -> None:
    await a_holder(server, play(server))

    done = await run("trigger", "invoices", "--timeout", "0.3")

    (order,) = orders_in(server)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("orchestrator: not taken up in time: invoices; the order stands for 9m")
    assert done.err.endswith(f" more, run invoices@manual-{order.order_ms}\n")


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_run_that_does_not_end_in_time_runs_on(run: Run, server: Server, play: Play) -> None:
    holder = await a_holder(server, play(server))

    triggering = asyncio.create_task(run("trigger", "invoices", "--until-end", "--timeout", "1"))
    (order,) = await ordered(server)
    await holder.claim(None, order=order)
    done = await triggering

    assert (done.status, done.out) == (1, "")
    assert done.err == "orchestrator: not ended in time: invoices (running on n1, attempt 1); it runs on\n"


async def test_all_instances_are_triggered(run: Run, here: Path, server: Server, play: Play) -> None:
    (here / "jobs.yaml").write_text(
        f"cluster: shop\nredis: {server.url}\njobs: {{sweep: {{command: x, every: 1h, instances: 2}}}}\n"
    )
    node = play(server)
    await node.join({"sweep": "sweep", "sweep.1": "sweep.1"})
    holders = {job: await Holder.taking(node, job) for job in ("sweep", "sweep.1")}

    triggering = asyncio.create_task(run("trigger", "sweep"))
    for order in await ordered(server, 2):
        await holders[order.job].claim(None, order=order)
    done = await triggering

    assert done.status == 0
    assert sorted(line.split(",")[0] for line in done.out.splitlines()) == [
        "started: sweep (on n1",
        "started: sweep.1 (on n1",
    ]


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_paused_job_may_be_triggered_and_a_stopped_one_not(run: Run, server: Server, play: Play) -> None:
    await a_holder(server, play(server))

    await run("pause", "invoices", "--no-wait")
    paused = await run("trigger", "invoices", "--no-wait")
    await run("stop", "invoices", "--no-wait", "--why", "audit")
    stopped = await run("trigger", "invoices", "--no-wait")

    assert paused.status == 0
    assert (stopped.status, stopped.out) == (1, "")
    assert stopped.err.startswith("orchestrator: invoices is not triggered: it is stopped by ")
    assert stopped.err.endswith(": audit; `orchestrator start invoices` starts it\n")
    assert len(orders_in(server)) == 1


async def refused(run: Run, server: Server, status: int, *args: str) -> str:
    """Return why a trigger is refused; nothing is ordered."""
    done: Result = await run("trigger", *args)

    assert (done.status, done.out, orders_in(server)) == (status, "", [])
    return done.err.removeprefix("orchestrator: ")


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_service_is_not_triggered(run: Run, server: Server, play: Play) -> None:
    await play(server).join()

    said = await refused(run, server, 2, "worker")

    assert said.startswith("`worker` is a service and has no ticks; `orchestrator stop worker` and `orchestrator start")


@pytest.mark.usefixtures("jobs_yaml")
async def test_nothing_is_ordered_where_nobody_could_obey(run: Run, server: Server) -> None:
    assert await refused(run, server, 1, "invoices") == "invoices is not triggered: no node is alive\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("enabled: false", "it is disabled in the file; write `enabled: true` there", id="disabled"),
        pytest.param("scope: node", "it runs on every node, and no single one holds it", id="on every node"),
    ],
)
async def test_a_job_that_nobody_holds_by_the_file_is_not_triggered(
    run: Run, here: Path, server: Server, play: Play, words: str, said: str
) -> None:
    (here / "jobs.yaml").write_text(
        f"cluster: shop\nredis: {server.url}\njobs: {{sweep: {{command: x, every: 1h, {words}}}}}\n"
    )
    await play(server).join({"other": "other"})

    assert await refused(run, server, 1, "sweep") == f"sweep is not triggered: {said}\n"


@pytest.mark.usefixtures("jobs_yaml")
async def test_an_unknown_job_is_not_triggered(run: Run, server: Server, play: Play) -> None:
    await play(server).join()

    assert await refused(run, server, 4, "invoice") == "no such job `invoice`; did you mean `invoices`?\n"


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(["--again"], "--again belongs to --tick", id="again without a tick"),
        pytest.param(["--no-wait", "--until-end"], "--no-wait and --until-end contradict each other", id="both waits"),
        pytest.param(["--tick", "yesterday"], "--tick: `yesterday` is no instant; write it as", id="no instant"),
    ],
)
async def test_words_that_mean_nothing_order_nothing(run: Run, server: Server, args: list[str], said: str) -> None:
    assert (await refused(run, server, 2, "invoices", *args)).startswith(said)


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_tick_is_run_if_it_did_not_run_already(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    missed, ran = ticks_before(server.server_ms(), 2)
    holder = await Holder.taking(node, since_ms=missed - 1)
    await holder.end(await holder.claim(ran))

    said = await refused(run, server, 1, "invoices", "--tick", iso_utc(ran / 1000))
    again = await run("trigger", "invoices", "--no-wait", "--tick", iso_utc(ran / 1000), "--again")
    made_up = await run("trigger", "invoices", "--no-wait", "--tick", iso_utc(missed / 1000))

    assert said.startswith(f"invoices is not triggered: the tick {iso_utc(ran / 1000)} ran already (invoices@")
    assert (again.status, made_up.status) == (0, 0)
    assert [order.tick_ms for order in orders_in(server)] == [ran, missed]


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_tick_that_is_none_or_to_come_is_refused(run: Run, server: Server, play: Play) -> None:
    await a_holder(server, play(server))
    (tick,) = ticks_before(server.server_ms(), 1)

    no_tick = await refused(run, server, 1, "invoices", "--tick", iso_utc(tick / 1000 + 1))
    future = await refused(run, server, 1, "invoices", "--tick", iso_utc((tick + 30 * DAY_MS) / 1000))

    assert f"is no tick of its schedule; the nearest are {iso_utc(tick / 1000)} and " in no_tick
    assert future.endswith("lies in the future\n")


async def test_a_tick_needs_the_file_that_says_what_is_one(run: Run, server: Server, play: Play) -> None:
    await a_holder(server, play(server))

    said = await refused(
        run, server, 2, "invoices", "--tick", "2026-01-01T00:00", "--redis", server.url, "--cluster", "shop"
    )

    assert said == "no jobs.yaml here has invoices, and only that says when it is due; add --file FILE\n"


async def test_trigger_needs_redis(run: Run, here: Path, own_server: Server) -> None:
    (here / "jobs.yaml").write_text(JOBS_YAML.format(url=own_server.url))
    own_server.stop()

    done = await run("trigger", "invoices")

    assert (done.status, done.out) == (69, "")
    assert done.err.startswith("orchestrator: Redis at unix://")


async def test_redis_that_goes_away_while_one_waits_is_said_in_the_end(
    run: Run, here: Path, own_server: Server, play: Play
) -> None:
    (here / "jobs.yaml").write_text(JOBS_YAML.format(url=own_server.url))
    await a_holder(own_server, play(own_server))

    triggering = asyncio.create_task(run("trigger", "invoices", "--timeout", "1"))
    await ordered(own_server)
    own_server.stop()
    done = await triggering

    assert done.status == 69
    assert "the order stands, but what became of it cannot be seen" in done.err


@pytest.mark.usefixtures("jobs_yaml")
async def test_control_c_while_one_waits_says_that_the_order_stands(server: Server, play: Play) -> None:
    await a_holder(server, play(server))
    waiting = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orchestrator", "trigger", "invoices", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    await ordered(server)
    await asyncio.sleep(0.2)  # the order is in Redis a moment before the command knows it

    waiting.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(waiting.communicate(), 20)

    assert (waiting.returncode, out) == (130, b"")
    assert err.decode().strip() == "interrupted; the order stands: invoices"


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_terminal_says_what_is_waited_for_and_then_only_how_it_came_out(server: Server, play: Play) -> None:
    holder = await a_holder(server, play(server))
    screen = Screen("trigger", "invoices", "--until-end")

    await asyncio.to_thread(screen.until, r"waiting for invoices \(not taken up yet\)")
    (order,) = orders_in(server)
    started = await holder.claim(None, order=order)
    await asyncio.to_thread(screen.until, r"waiting for invoices \(running on n1, attempt 1\)")
    await holder.end(started)
    await asyncio.to_thread(screen.until, r"\r\x1b\[Kok: invoices \(exit 0 after 41s on n1, ")
    status = await asyncio.to_thread(screen.wait)

    screen.close()
    assert status == 0
