import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import JOBS_YAML, Run
from tests.cli.holder import Holder, ticks_before
from tests.cli.stage import Played
from tests.servers import Server

Play = Callable[..., Played]

KEYS_OF_AN_ENTRY = [
    *("run", "node", "token", "tick", "attempt", "reason", "started", "ended", "elapsed_s", "outcome"),
    *("exit_code", "signal", "error", "why", "first", "last", "count", "output"),
]


async def three_nights(server: Server, node: Played) -> Holder:
    """Let the nightly job run well, be skipped, and fail."""
    await node.join()
    first, second, third = ticks_before(server.server_ms(), 3)
    holder = await Holder.taking(node, since_ms=first - 1)
    await holder.end(await holder.claim(first))
    await holder.pass_over(second, "the run before goes on")
    await holder.end(await holder.claim(third), outcome="failed", exit_code=3, output=["one", "two", "three", "four"])
    return holder


@pytest.mark.usefixtures("jobs_yaml")
async def test_each_tick_has_a_row_and_the_sum_accounts_for_all_of_them(run: Run, server: Server, play: Play) -> None:
    await three_nights(server, play(server))

    done = await run("history", "invoices")

    titles, ok, skipped, failed, *output, sums = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert titles.startswith("WHEN (UTC)")
    assert (ok.split()[4], skipped.split()[4], failed.split()[4]) == ("ok", "skipped", "failed")
    assert skipped.endswith("the run before goes on")
    assert output == ["    | two", "    | three", "    | four"]
    assert sums.startswith("ticks 3 since ")
    assert sums.endswith(": 2 ran, 1 skipped, 0 missed")


@pytest.mark.usefixtures("jobs_yaml")
async def test_ticks_that_the_file_knows_and_the_past_does_not_are_said(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    first, *_, last = ticks_before(server.server_ms(), 4)
    holder = await Holder.taking(node, since_ms=first - 1)
    await holder.end(await holder.claim(last))

    done = await run("history", "invoices")

    assert done.status == 0
    assert done.err.startswith("orchestrator: invoices: ticks accounted for: 1; by the schedule of the file: 4 (up to ")
    assert "1 ran, 0 skipped, 0 missed" in done.out


@pytest.mark.usefixtures("jobs_yaml")
async def test_json_has_the_newest_first_and_every_entry_the_same_keys(run: Run, server: Server, play: Play) -> None:
    await three_nights(server, play(server))

    told = json.loads((await run("history", "invoices", "--json")).out)

    assert list(told) == ["job", "since", "settled", "ticks", "ran", "skipped", "missed", "open", "runs"]
    assert [list(entry) for entry in told["runs"]] == 3 * [KEYS_OF_AN_ENTRY]
    assert [entry["outcome"] for entry in told["runs"]] == ["failed", "skipped", "ok"]
    assert told["runs"][0]["output"] == ["one", "two", "three", "four"]
    assert (told["ticks"], told["ran"], told["skipped"], told["missed"]) == (3, 2, 1, 0)
    assert told["settled"] == told["runs"][0]["tick"]


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        pytest.param(["-n", "2"], ["failed", "skipped"], id="the newest two"),
        pytest.param(["--failed"], ["failed"], id="failures"),
        pytest.param(["--failed", "-n", "1"], ["failed"], id="the newest failure"),
    ],
)
async def test_less_is_shown_where_less_is_asked_for_and_all_is_counted(
    run: Run, server: Server, play: Play, options: list[str], outcomes: list[str]
) -> None:
    await three_nights(server, play(server))

    told = json.loads((await run("history", "invoices", "--json", *options)).out)

    assert [entry["outcome"] for entry in told["runs"]] == outcomes
    assert told["ticks"] == 3


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_run_that_goes_on_is_told_with_its_start(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    (tick,) = ticks_before(server.server_ms(), 1)
    holder = await Holder.taking(node, since_ms=tick - 1)
    await holder.claim(tick)
    await node.publish("invoices", holder.value, state="running", since="2026-01-01T00:00:00.000Z")

    told = json.loads((await run("history", "invoices", "--json")).out)
    shown = (await run("history", "invoices")).out

    assert (told["runs"], told["ran"]) == ([], 1)
    assert [(run["started"], run["retry"]) for run in told["open"]] == [("2026-01-01T00:00:00.000Z", None)]
    assert shown.splitlines()[1].split()[2:6] == ["2026-01-01", "00:00:00.000", "0.0s", "running"]


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_run_that_is_to_be_tried_again_is_told_with_when(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    (tick,) = ticks_before(server.server_ms(), 1)
    holder = await Holder.taking(node, since_ms=tick - 1)
    await holder.end(await holder.claim(tick), retry_ms=server.server_ms() + 3_630_000, outcome="failed", exit_code=1)

    rows = (await run("history", "invoices")).out.splitlines()

    assert " failed " in rows[1]
    assert " retry in 1h00m " in rows[2]


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_service_has_a_history_without_ticks(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    held = await node.hold("beat")
    await node.record("beat", held, outcome="failed", exit_code=1)

    done = await run("history", "beat")
    told = json.loads((await run("history", "beat", "--json")).out)

    assert (done.status, done.err, len(done.out.splitlines())) == (0, "", 2)
    assert (told["since"], told["ticks"], len(told["runs"])) == (None, 0, 1)


@pytest.mark.usefixtures("jobs_yaml")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param([], "nothing of invoices is kept yet\n", id="at all"),
        pytest.param(["--failed"], "nothing of invoices is kept that failed\n", id="that failed"),
    ],
)
async def test_where_nothing_is_kept_that_is_said(run: Run, options: list[str], said: str) -> None:
    done = await run("history", "invoices", *options)

    assert (done.status, done.err) == (0, said)


async def test_a_job_of_every_node_has_its_log_alone(run: Run, here: Path, server: Server) -> None:
    (here / "jobs.yaml").write_text(
        f"cluster: shop\nredis: {server.url}\njobs: {{sweep: {{command: x, every: 1m, scope: node}}}}\n"
    )

    done = await run("history", "sweep", "--json")

    assert done.status == 0
    assert done.err == "sweep runs on every node, and each has only its log: `orchestrator logs sweep`\n"
    assert json.loads(done.out)["runs"] == []


@pytest.mark.usefixtures("jobs_yaml")
async def test_what_a_job_wrote_moves_no_cursor(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    held = await node.hold("beat")
    await node.record("beat", held, outcome="failed", error="\x1b[2J", node="\x9b", output=["\x1b]0;mine\x07"])

    done = await run("history", "beat")

    assert "\x1b" not in done.out
    assert r"    | \x1b]0;mine\x07" in done.out


@pytest.mark.usefixtures("jobs_yaml")
async def test_an_unknown_job_has_no_history(run: Run) -> None:
    done = await run("history", "invoice", "--json")

    assert (done.status, done.out) == (4, "")
    assert done.err == "orchestrator: no such job `invoice`; did you mean `invoices`?\n"


async def test_history_needs_redis(run: Run, here: Path, own_server: Server) -> None:
    (here / "jobs.yaml").write_text(JOBS_YAML.format(url=own_server.url))
    own_server.stop()

    done = await run("history", "invoices")

    assert (done.status, done.out) == (69, "")
    assert done.err.startswith("orchestrator: Redis at unix://")
