import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Run
from tests.cli.stage import Played
from tests.servers import Server
from tests.store.node import stored

Play = Callable[..., Played]


@pytest.mark.usefixtures("jobs_yaml")
async def test_all_leases_are_told_with_their_keys(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    held = await node.hold("beat")

    done = await run("lease")

    titles, beat, *rest = done.out.splitlines()
    assert done.status == 0
    assert titles.split("  ")[0] == "JOB"
    assert beat.split()[:3] == ["beat", "n1", str(held.token)]
    assert beat.endswith(stored("lease"))
    assert len(rest) == 4


@pytest.mark.usefixtures("jobs_yaml")
async def test_one_lease_is_told_with_all_that_redis_knows(run: Run, server: Server, play: Play) -> None:
    node = play(server)
    await node.join()
    old = await node.hold("beat")
    await node.release("beat", old)
    held = await node.hold("beat")

    told = json.loads((await run("lease", "beat", "--json")).out)
    shown = (await run("lease", "beat")).out

    assert (told["holder"], told["incarnation"], told["token"]) == ("n1", "i-n1", held.token)
    assert (told["last_token"], told["released_token"]) == (held.token, old.token)
    assert 0 < told["left_ms"] <= told["ttl_ms"] == 10_000
    assert told["issued"].endswith("Z")
    assert told["key"] == stored("lease")
    assert f"last released   {old.token}" in shown


@pytest.mark.usefixtures("jobs_yaml")
async def test_a_list_is_a_list_and_a_lease_an_object(run: Run) -> None:
    everything = json.loads((await run("lease", "--json")).out)
    second = json.loads((await run("lease", "worker.1", "--json")).out)

    assert [lease["job"] for lease in everything] == ["beat", "invoices", "worker", "worker.1", "off"]
    assert second == everything[3]
    assert (second["holder"], second["token"], second["left_ms"]) == (None, None, None)


@pytest.mark.usefixtures("jobs_yaml")
async def test_an_unknown_job_has_no_lease(run: Run) -> None:
    done = await run("lease", "worker.7", "--json")

    assert (done.status, done.out) == (4, "")
    assert "no such job `worker.7`" in done.err
