"""The live view in a real terminal: what it shows is less important here than how it leaves."""

import os
import signal
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.core.snapshot import ClusterView
from tests.cli.conftest import Run
from tests.cli.screen import Screen
from tests.cli.stage import JOBS, Played
from tests.servers import Server

ALTERNATE_SCREEN_OFF = b"\x1b[?1049l"
CURSOR_ON = b"\x1b[?25h"


@pytest.fixture
def watched(jobs_yaml: Path) -> Iterator[Screen]:
    """Return a running `top` that shows the cluster."""
    assert jobs_yaml.exists()
    top = Screen("top")
    top.until("worker.1")
    top.until("q: quit")
    yield top
    top.close()


@pytest.mark.parametrize(
    ("leave", "status"),
    [
        pytest.param(lambda top: top.type(b"q"), 0, id="q"),
        pytest.param(lambda top: top.type(b"\x03"), 0, id="control-c"),
        pytest.param(lambda top: top.child.send_signal(signal.SIGTERM), 143, id="SIGTERM"),
        pytest.param(lambda top: top.child.send_signal(signal.SIGHUP), 129, id="SIGHUP"),
    ],
)
def test_however_it_ends_the_terminal_is_given_back(
    watched: Screen, leave: Callable[[Screen], None], status: int
) -> None:
    assert not termios.tcgetattr(watched.program)[3] & termios.ECHO

    leave(watched)

    assert watched.wait() == status
    assert termios.tcgetattr(watched.program) == watched.found
    assert ALTERNATE_SCREEN_OFF in watched.seen
    assert CURSOR_ON in watched.seen
    assert b"Traceback" not in watched.seen


def test_keys_move_the_selection_and_the_details_follow(watched: Screen) -> None:
    watched.type(b"jj")
    watched.until("3/5")

    watched.type(b"G")

    watched.until("off.*it is disabled in the file")
    watched.until("5/5")


def test_a_new_window_size_is_drawn_at_once(watched: Screen) -> None:
    watched.resize(160, 24)
    watched.child.send_signal(signal.SIGWINCH)

    watched.until("TOKEN")


def test_a_suspended_view_gives_the_terminal_back_and_takes_it_again(watched: Screen) -> None:
    watched.child.send_signal(signal.SIGTSTP)
    os.waitpid(watched.child.pid, os.WUNTRACED)
    suspended = termios.tcgetattr(watched.program)

    watched.child.send_signal(signal.SIGCONT)
    watched.until("q: quit")

    assert suspended == watched.found
    assert not termios.tcgetattr(watched.program)[3] & termios.ECHO


def test_redis_that_goes_away_leaves_the_last_picture_with_a_word_about_its_age(
    watched: Screen, server: Server
) -> None:
    server.pause()
    try:
        watched.until(r"no answer within .*what is shown is .* old")
    finally:
        server.go_on()

    watched.until("q: quit")


@pytest.mark.usefixtures("jobs_yaml")
async def test_without_a_terminal_it_is_one_plain_table(run: Run, server: Server, play: Callable[..., Played]) -> None:
    node = play(server)
    await node.join()
    for job in JOBS[:-1]:
        await node.hold(job)
    await node.listen(ClusterView("shop", "n1"), redis=server.url)

    done = await run("top")

    assert done.status == 0
    assert done.out.splitlines()[0].startswith("shop  nodes 1: n1*")
    assert "\x1b" not in done.out
