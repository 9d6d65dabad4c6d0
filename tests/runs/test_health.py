"""Health checks against real sockets: what is healthy, in which words it is not, and when it is asked."""

import asyncio
import gc
import itertools
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from orchestrator import clock
from orchestrator.core.messages import RunChecked
from orchestrator.core.nouns import RunId
from orchestrator.runs import health
from orchestrator.runs.health import Checks
from tests.runs.health_scene import (
    JOB,
    PATIENCE_S,
    RUN,
    Scene,
    answering,
    closed_port,
    no_descriptors_left,
    open_descriptors,
    silent,
    spec,
    unvouched_tls,
)
from tests.runs.node import until


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Checks that never ask a leash."""
    made = Scene(lambda *_: pytest.fail("no leash is asked"))
    yield made
    await made.close()


@pytest.fixture
def tls() -> ssl.SSLContext:
    """Return the server's side of TLS."""
    return unvouched_tls()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "", id="200"),
        pytest.param(b"HTTP/1.0 204 No Content\r\n\r\n", "", id="204 of an old server"),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "", id="a redirect, not followed"),
        pytest.param(b"HTTP/1.1 399\r\n\r\n", "", id="399 without a reason"),
        pytest.param(b"HTTP/1.1 200 OK\n\nbare newlines", "", id="bare newlines"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP 400", id="400"),
        pytest.param(b"HTTP/1.1 503 Service Unavailable\r\n\r\nsorry", "HTTP 503", id="503"),
        pytest.param(b"HTTP/1.1 2000 OK\r\n\r\n", "not an HTTP answer", id="four digits"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "not an HTTP answer", id="another protocol"),
        pytest.param(b"HTTP/1.1 200", "not an HTTP answer", id="half a line"),
        pytest.param(b"x" * 100_000, "not an HTTP answer", id="a line without an end"),
        pytest.param(b"", "closed without an answer", id="nothing"),
    ],
)
async def test_the_status_of_an_http_answer_decides(scene: Scene, answer: bytes, why: str) -> None:
    port = await scene.serve(answering(answer))

    checked = await scene.check(spec(http=f"http://127.0.0.1:{port}/"))

    assert checked == RunChecked(JOB, RUN, not why, why)


async def test_an_endless_answer_counts_by_its_first_line(scene: Scene) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    port = await scene.serve(pour)

    assert (await scene.check(spec(http=f"http://127.0.0.1:{port}/"))).healthy


async def test_a_server_that_keeps_its_connection_open_is_healthy(scene: Scene) -> None:
    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.read()

    port = await scene.serve(keep)

    # A limit shorter than the moment in which the rest of the answer is read: it does not count there.
    assert (await scene.check(spec(http=f"http://127.0.0.1:{port}/", timeout_s=0.75 * health.LEFT_WITHIN_S))).healthy


@pytest.mark.parametrize(
    ("url", "line"),
    [
        pytest.param("http://{at}", b"GET / HTTP/1.1", id="no path"),
        pytest.param("http://{at}/healthz?deep=1&a=b%20c", b"GET /healthz?deep=1&a=b%20c HTTP/1.1", id="a query"),
    ],
)
async def test_the_request_is_a_get_of_the_url(scene: Scene, url: str, line: bytes) -> None:
    requests: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

    port = await scene.serve(note)

    await scene.check(spec(http=url.format(at=f"127.0.0.1:{port}")))

    first, *headers = requests[0].splitlines()
    assert first == line
    assert f"Host: 127.0.0.1:{port}".encode() in headers


async def test_https_is_spoken_whoever_signed_the_certificate(scene: Scene, tls: ssl.SSLContext) -> None:
    port = await scene.serve(answering(b"HTTP/1.1 503 No\r\n\r\n"), tls)

    assert (await scene.check(spec(http=f"https://127.0.0.1:{port}/"))).why == "HTTP 503"


async def test_a_server_without_tls_is_no_https_server(scene: Scene) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    port = await scene.serve(plain)

    why = (await scene.check(spec(http=f"https://127.0.0.1:{port}/"))).why

    assert why.startswith("TLS: ")
    assert why.endswith(f": 127.0.0.1:{port}")


@pytest.mark.parametrize("kind", ["http", "tcp"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_nobody_listens(scene: Scene, kind: str, host: str) -> None:
    at = f"{host}:{closed_port()}"

    checked = await scene.check(spec(http=f"http://{at}/") if kind == "http" else spec(tcp=at))

    assert checked == RunChecked(JOB, RUN, healthy=False, why=f"connection refused: {at}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1"], ids=["address", "localhost", "looked up"])
async def test_a_connection_that_is_accepted_is_healthy(scene: Scene, host: str) -> None:
    port = await scene.serve(silent)

    assert await scene.check(spec(tcp=f"{host}:{port}")) == RunChecked(JOB, RUN, healthy=True, why="")


async def test_localhost_is_found_where_the_service_listens_on_ipv6_only(scene: Scene) -> None:
    try:
        port = await scene.serve(silent, host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")

    assert (await scene.check(spec(tcp=f"localhost:{port}"))).healthy
    assert (await scene.check(spec(tcp=f"[::1]:{port}"), times=2)).healthy


async def test_a_name_that_is_none_is_said(scene: Scene) -> None:
    checked = await scene.check(spec(tcp=f"{'a' * 70}.x:80"))

    assert not checked.healthy
    assert checked.why.endswith(f"{'a' * 70}.x:80")


async def test_a_connection_to_itself_is_none(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on a port that the kernel also gives to those who connect: it may give them the same one."""
    port = closed_port()
    connect = asyncio.open_connection

    def from_the_same_port(host: str, at: int, **how: Any) -> Awaitable[object]:
        return connect(host, at, local_addr=(host, at), **how)

    monkeypatch.setattr(asyncio, "open_connection", from_the_same_port)

    assert (await scene.check(spec(tcp=f"127.0.0.1:{port}"))).why == f"connection refused: 127.0.0.1:{port}"


async def test_no_answer_in_time_is_a_failure(scene: Scene) -> None:
    port = await scene.serve(silent)

    checked = await scene.check(spec(http=f"http://127.0.0.1:{port}/", timeout_s=0.1))

    assert checked == RunChecked(JOB, RUN, healthy=False, why="no answer within 0.1 s")


# Commands.


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param((True, ""), "", id="healthy"),
        pytest.param((False, "exit 1"), "exit 1", id="not healthy"),
        pytest.param((False, ""), "it failed", id="not healthy, without a word"),
    ],
)
async def test_the_leash_is_asked_to_run_a_command(answer: tuple[bool, str], why: str) -> None:
    asked: list[object] = []

    def ask(run: RunId, command: tuple[str, ...], timeout_s: float, tell: Callable[[bool, str], None]) -> None:
        asked.append((run, command, timeout_s))
        tell(*answer)

    scene = Scene(ask)

    checked = await scene.check(spec(exec=("check", "-x"), timeout_s=3.0))

    assert asked == [(RUN, ("check", "-x"), 3.0)]
    assert checked == RunChecked(JOB, RUN, not why, why)
    await scene.close()


async def test_a_leash_that_never_answers_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LEASH_SLACK_S", 0.05)
    tells: list[Callable[[bool, str], None]] = []
    scene = Scene(lambda _run, _command, _timeout_s, tell: tells.append(tell))

    checked = await scene.check(spec(exec=("check",), timeout_s=0.05), times=2)

    assert checked.why == "no answer within 0.05 s"
    tells[0](True, "")  # too late, and told to nobody
    assert len(scene.told) == 2
    await scene.close()


# When.


async def test_the_first_check_comes_an_interval_after_the_start(scene: Scene) -> None:
    port = await scene.serve(silent)
    began_at = clock.boot()

    await scene.check(spec(tcp=f"127.0.0.1:{port}", interval_s=0.2))

    assert clock.boot() - began_at >= 0.2


async def test_the_interval_counts_from_the_end_of_a_check() -> None:
    """A check that takes long is not followed by one at once, and never meets another one."""
    began_at: list[float] = []
    ended_at: list[float] = []

    def ask(_run: RunId, _command: tuple[str, ...], _timeout_s: float, tell: Callable[[bool, str], None]) -> None:
        began_at.append(clock.boot())

        def answer() -> None:
            ended_at.append(clock.boot())
            tell(True, "")

        asyncio.get_running_loop().call_later(0.15, answer)

    scene = Scene(ask)

    await scene.check(spec(exec=("check",), interval_s=0.1), times=3)

    pauses_s = [began - ended for began, ended in zip(began_at[1:], ended_at, strict=False)]
    assert min(pauses_s) >= 0.09
    await scene.close()


async def test_a_run_that_ended_is_not_checked_and_nothing_of_it_is_told(scene: Scene) -> None:
    asked = asyncio.Event()

    async def ask(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        asked.set()
        assert await reader.read() != b""  # it ends when the check hangs up
        hung_up.set()

    hung_up = asyncio.Event()
    port = await scene.serve(ask)
    scene.checks.begin(JOB, RUN, spec(http=f"http://127.0.0.1:{port}/", timeout_s=60.0))

    async with asyncio.timeout(PATIENCE_S):
        await asked.wait()
        scene.checks.end(RUN)
        await hung_up.wait()

    scene.checks.end(RUN)  # once more: nothing
    assert scene.told == []


async def test_a_run_may_be_ended_by_whoever_is_told() -> None:
    told: list[RunChecked] = []

    def deliver(checked: RunChecked) -> None:
        told.append(checked)
        checks.end(checked.run)

    checks = Checks(deliver, lambda _run, _command, _timeout_s, tell: tell(False, "exit 1"))
    checks.begin(JOB, RUN, spec(exec=("check",)))

    await until(lambda: told, "it is told")

    assert checks._watched == {}
    checks.close()


# What is wrong with us.


async def test_a_limit_that_strikes_late_because_we_were_frozen_is_not_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = await scene.serve(silent)
    readings = iter([0.0, 20.0])  # while the first check was on its way this process stood still
    monkeypatch.setattr(clock, "boot", lambda: next(readings, 0.0))

    checked = await scene.check(spec(http=f"http://127.0.0.1:{port}/", timeout_s=0.05))

    assert next(readings, None) is None
    assert checked.why == "no answer within 0.05 s"  # the second check's
    assert len(scene.told) == 1


async def test_having_no_descriptors_left_says_nothing_about_the_service(scene: Scene) -> None:
    port = await scene.serve(silent)
    with no_descriptors_left():
        scene.checks.begin(JOB, RUN, spec(tcp=f"127.0.0.1:{port}"))
        watched = scene.checks._watched[RUN]
        first = watched.timer
        await until(lambda: watched.timer not in (first, None), "a second check is to come")
        assert scene.told == []

    await scene.until(1)

    assert scene.told[0].healthy


# Nothing is held up, nothing is left.


async def test_a_name_server_that_hangs_does_not_touch_checks_of_localhost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: hangs.wait(PATIENCE_S) and [])
    port = await scene.serve(answering(b"HTTP/1.1 200 OK\r\n\r\n"))
    for number in range(3 * health.MOST_LOOKUPS):
        scene.checks.begin(JOB, RunId(f"named {number}"), spec(tcp="db.example:5432", timeout_s=60.0))
    scene.checks.begin(JOB, RUN, spec(http=f"http://localhost:{port}/"))

    await scene.until(3)

    assert {checked.run for checked in scene.told} == {RUN}
    assert all(checked.healthy for checked in scene.told)
    hangs.set()


async def test_many_checks_due_at_once_let_the_loop_turn_in_between(scene: Scene) -> None:
    port = await scene.serve(answering(b"HTTP/1.1 200 OK\r\n\r\n"))
    loop = asyncio.get_running_loop()
    open_at_turns: list[int] = []

    def turn() -> None:
        open_at_turns.append(sum(watched.task is not None for watched in scene.checks._watched.values()))
        if len(scene.told) < 200:
            loop.call_soon(turn)

    for number in range(200):
        scene.checks.begin(JOB, RunId(f"run {number}"), spec(http=f"http://127.0.0.1:{port}/", interval_s=0.1))
    loop.call_soon(turn)
    await scene.until(200)

    begun = [later - earlier for earlier, later in itertools.pairwise(open_at_turns)]
    assert max(begun) <= health.MOST_AT_ONCE
    assert {checked.why for checked in scene.told} == {""}


async def test_closing_leaves_no_task_no_timer_and_no_socket(tls: ssl.SSLContext) -> None:
    asked: list[RunId] = []
    scene = Scene(lambda run, _command, _timeout_s, _tell: asked.append(run))
    before = open_descriptors()
    plain, secure = await scene.serve(silent), await scene.serve(silent, tls)
    for number in range(30):
        where = (
            spec(http=f"http://127.0.0.1:{plain}/", timeout_s=60.0),
            spec(http=f"https://127.0.0.1:{secure}/", timeout_s=60.0),
            spec(exec=("check",), timeout_s=60.0),
        )[number % 3]
        scene.checks.begin(JOB, RunId(f"run {number}"), where)
    await until(lambda: len(asked) == 10, "all are on their way")

    await scene.close()

    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "no task is left")
    await until(lambda: open_descriptors() <= before, "no socket is left")
    gc.collect()  # a transport that nobody closed would say so here
    assert scene.told == []
