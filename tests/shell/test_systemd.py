"""What systemd hears, on a real socket."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.systemd import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.setblocking(False)
        yield end


def heard(manager: socket.socket) -> list[str]:
    said = []
    try:
        while True:
            said.append(manager.recv(4096).decode())
    except BlockingIOError:
        return said


def test_readiness_and_status_come_in_one_datagram(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})

    assert notifier.tell("READY=1", "STATUS=3 jobs")
    assert heard(manager) == ["READY=1\nSTATUS=3 jobs"]


def test_an_abstract_socket_is_spoken_to() -> None:
    name = f"orchestrator-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)

        assert Notifier({"NOTIFY_SOCKET": "@" + name}).tell("READY=1")


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    assert not Notifier({}).tell("READY=1")
    assert not Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).tell("READY=1")


def test_the_watchdog_is_fed_at_most_four_times_a_period(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "8000000"})

    for boot in (100.0, 101.0, 101.9, 102.0, 103.0, 104.0):
        notifier.feed(boot)

    assert heard(manager) == ["WATCHDOG=1"] * 3


def test_a_watchdog_meant_for_another_process_is_not_fed(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "8000000", "WATCHDOG_PID": "1"})

    notifier.feed(100.0)

    assert heard(manager) == []
