"""What a server and a network do: it is told by `StoreSilent`, in time, and nothing else is disturbed."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from redis.exceptions import ResponseError

from orchestrator.core.answers import (
    LeaseGranted,
    LeaseRenewed,
    LeaseSeen,
    MembersSeen,
    ServerMet,
    StoreAnswer,
    StoreSilent,
)
from orchestrator.core.requests import LookAtLease, MeetServer
from orchestrator.core.spec import bucket_of
from orchestrator.store.client import LONGEST_CLAUSE
from tests.servers import Server
from tests.store.node import ASKED_AT, JOB, Node, stored

StartServer = Callable[..., Server]
MakeNode = Callable[..., Node]


def problem(answer: StoreAnswer) -> str:
    assert isinstance(answer, StoreSilent), answer
    return answer.problem


async def test_a_frozen_server_is_silent_within_the_limit(start_server: StartServer, make_node: MakeNode) -> None:
    server = start_server()
    node = make_node(server, timeout_s=0.3)
    value = await node.hold()
    loop = asyncio.get_running_loop()
    server.pause()
    began_at = loop.time()

    answers = await node.store.serve([LookAtLease(JOB, JOB, ASKED_AT), MeetServer(bucket_of(JOB), ASKED_AT)])

    assert loop.time() - began_at < 0.6
    assert [problem(answer) for answer in answers] == ["no answer within 0.3 s"] * 2
    server.go_on()
    seen = await node.ask_until_answered(LookAtLease(JOB, JOB, ASKED_AT))
    assert isinstance(seen, LeaseSeen)
    assert seen.value == value


async def test_late_answers_are_never_taken_for_those_of_later_requests(
    start_server: StartServer, make_node: MakeNode
) -> None:
    server = start_server()
    node = make_node(server, timeout_s=0.2)
    await node.epoch()
    server.pause()
    await asyncio.gather(*(node.ask(MeetServer(bucket_of(JOB), float(i))) for i in range(8)))
    server.go_on()

    answer = await node.ask_until_answered(LookAtLease(JOB, JOB, ASKED_AT))

    assert answer == LeaseSeen(JOB, None, malformed=False, left_ms=0, asked_at=ASKED_AT)


async def test_a_server_that_is_away_is_silent_and_found_again(start_server: StartServer, make_node: MakeNode) -> None:
    server = start_server()
    node = make_node(server)
    await node.epoch()
    server.stop()

    first = problem(await node.look())
    assert problem(await node.look()) == "connection refused"

    server.start()
    assert isinstance(await node.look(), LeaseSeen)
    assert first in ("connection lost", "connection closed by server", "broken pipe", "connection refused")


async def test_an_empty_restart_puts_the_lease_back(start_server: StartServer, make_node: MakeNode) -> None:
    server = start_server()
    node = make_node(server)
    value = await node.hold()

    server.restart()
    await node.ask_until_answered(LookAtLease(JOB, JOB, ASKED_AT))
    answer = await node.renew(value)

    assert isinstance(answer, LeaseRenewed)
    assert answer.put_back


async def test_a_flush_of_the_scripts_is_not_noticed(server: Server, node: Node) -> None:
    value = await node.hold()
    server.client.script_flush()

    assert isinstance(await node.renew(value), LeaseRenewed)


async def test_one_refused_call_does_not_spoil_the_others(server: Server, node: Node) -> None:
    value = await node.hold()
    server.client.execute_command("ACL", "SETUSER", "default", "-info")

    met, seen = await node.store.serve([MeetServer(bucket_of(JOB), ASKED_AT), LookAtLease(JOB, JOB, ASKED_AT)])

    server.client.execute_command("ACL", "SETUSER", "default", "+@all")
    assert isinstance(met, StoreSilent)
    assert isinstance(seen, LeaseSeen)
    assert seen.value == value


async def test_out_of_memory_leases_are_renewed_and_released_but_not_acquired(
    start_server: StartServer, make_node: MakeNode
) -> None:
    server = start_server("--maxmemory-policy", "noeviction")
    node, other = make_node(server), make_node(server, "n2", "i2")
    value = await node.hold()
    stranger = await other.acquiring(key="stranger", epoch=await other.epoch(bucket_of("stranger")))
    server.client.config_set("maxmemory", "1")

    assert isinstance(await node.renew(value), LeaseRenewed)
    assert problem(await other.ask(stranger)) == "OOM: it is out of memory"
    assert not server.client.exists(stored("lease", "stranger"))
    server.client.delete(stored("lease"))
    assert "could not be put back" in problem(await node.renew(value))
    server.client.config_set("maxmemory", "0")
    assert isinstance(await node.renew(value), LeaseRenewed)


async def test_a_release_works_out_of_memory(start_server: StartServer, make_node: MakeNode) -> None:
    server = start_server("--maxmemory-policy", "noeviction")
    node = make_node(server)
    value = await node.hold()
    await node.epoch()
    server.client.config_set("maxmemory", "1")

    await node.release(value)

    assert not server.client.exists(stored("lease"))


@pytest.mark.parametrize(
    ("options", "password", "clause"),
    [
        pytest.param(["--replicaof", "127.0.0.1 1"], None, "READONLY: it is a replica", id="a replica"),
        pytest.param(
            ["--requirepass", "hunter2"], "hunter2", "the login was refused: Authentication required", id="no password"
        ),
        pytest.param(
            ["--min-replicas-to-write", "1"], None, "NOREPLICAS Not enough good replicas to write", id="no replicas"
        ),
    ],
)
async def test_a_server_that_refuses_is_silent_and_says_why(
    start_server: StartServer, make_node: MakeNode, options: list[str], password: str | None, clause: str
) -> None:
    node = make_node(start_server(*options, password=password))

    assert problem(await node.ask(MeetServer(bucket_of(JOB), ASKED_AT))) == clause


async def test_a_busy_server_is_silent(start_server: StartServer, make_node: MakeNode) -> None:
    server = start_server("--lua-time-limit", "10")
    node = make_node(server, timeout_s=0.5)
    value = await node.hold()
    busy = asyncio.create_task(asyncio.to_thread(_spin, server))
    while not isinstance(answer := await node.look(), StoreSilent):  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.01)

    server.client.script_kill()

    assert answer.problem.startswith(("BUSY", "no answer"))
    await busy
    assert isinstance(await node.renew(value), LeaseRenewed)


def _spin(server: Server) -> None:
    with contextlib.closing(server.another_client()) as client, pytest.raises(ResponseError, match="killed"):
        client.eval("while true do end", 0)


async def test_what_is_no_redis_is_silent(make_node: MakeNode, start_server: StartServer) -> None:
    server = start_server()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    web = await asyncio.start_unix_server(answer, str(server.socket) + ".web")
    node = make_node(server.at(f"unix://{server.socket}.web"))

    said = problem(await node.look())

    assert said
    assert len(said) <= LONGEST_CLAUSE
    web.close()


async def test_a_name_that_nobody_knows_is_silent(make_node: MakeNode, start_server: StartServer) -> None:
    node = make_node(start_server().at("redis://nobody.invalid:6379/0"))

    assert problem(await node.look())


async def test_a_wrong_password_is_told_without_the_password(make_node: MakeNode, start_server: StartServer) -> None:
    server = start_server("--requirepass", "hunter2", password="hunter2", port=0)  # noqa: S106 - a test's
    node = make_node(server.at(f"redis://:opensesame@127.0.0.1:{server.port}/0"))

    said = problem(await node.look())

    assert said.startswith("the login was refused")
    assert "opensesame" not in said


async def test_tcp_and_a_database_of_its_own(make_node: MakeNode, start_server: StartServer) -> None:
    server = start_server(port=0)
    node = make_node(server.at(f"redis://127.0.0.1:{server.port}/3"))

    assert isinstance(await node.ask(MeetServer(bucket_of(JOB), ASKED_AT)), ServerMet)
    assert server.client.info("keyspace").keys() == {"db3"}


async def test_at_most_three_connections_whatever_is_asked(server: Server, node: Node) -> None:
    await asyncio.gather(*(node.look() for _ in range(50)))

    names = [client["name"] for client in server.client.client_list()]
    assert 1 <= names.count("orchestrator:n1") <= 3


async def test_infos_that_cannot_be_fetched_leave_the_renewals_alone(server: Server, node: Node) -> None:
    value = await node.hold()
    server.client.execute_command("ACL", "SETUSER", "default", "-hmget")

    silent = await node.keep()
    renewed = await node.renew(value)

    server.client.execute_command("ACL", "SETUSER", "default", "+@all")
    assert "hmget" in problem(silent)
    assert isinstance(renewed, LeaseRenewed)
    assert isinstance(await node.keep(), MembersSeen)


async def test_a_script_of_another_program_is_no_answer(node: Node) -> None:
    """A proxy or a module may answer anything."""
    call = node.store._calls([LookAtLease(JOB, JOB, ASKED_AT)])[0][1]

    for reply in (None, 7, "x", [], ["a", "b", "c"], [["a"], "x"], {"a": 1}, [1, 2]):
        assert problem(call.outcomes(reply)[0]) == "its answer makes no sense"  # type: ignore[arg-type] # no roll


async def test_a_granted_lease_survives_its_nodes_silence(start_server: StartServer, make_node: MakeNode) -> None:
    """An acquire may be carried out although nobody heard so: it is adopted by asking again."""
    server = start_server()
    node = make_node(server, timeout_s=0.2)
    request = await node.acquiring(tolerance_ms=60_000)
    await node.look()
    server.pause()
    assert isinstance(await node.ask(request), StoreSilent)
    server.go_on()

    answer = await node.ask_until_answered(request)

    assert isinstance(answer, LeaseGranted)
