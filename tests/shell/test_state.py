"""What a node keeps across restarts."""

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.nouns import JobName, Token
from orchestrator.errors import OrchestratorError
from orchestrator.state import StateDirectory

JOB = JobName("beat")


def opened(path: Path) -> StateDirectory:
    directory = StateDirectory(path)
    directory.open()
    return directory


def test_a_restart_of_a_node_finds_its_identity_and_its_tokens(tmp_path: Path) -> None:
    first = opened(tmp_path / "n1")
    first.remember({JOB: Token(42)})
    first.close()

    second = opened(tmp_path / "n1")

    assert (second.state_id, second.floors) == (first.state_id, {JOB: 42})
    second.close()


def test_a_lower_token_never_lowers_the_floor(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.remember({JOB: Token(42)})
    directory.remember({JOB: Token(7)})

    assert json.loads((tmp_path / "tokens.json").read_text()) == {"beat": 42}
    directory.close()


def test_two_nodes_never_share_a_directory_and_the_second_is_told_who_has_it(tmp_path: Path) -> None:
    first = opened(tmp_path)

    with pytest.raises(OrchestratorError, match=rf"already runs here \(pid {os.getpid()}, .*--node"):
        opened(tmp_path)

    first.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"beat": "x"}', "\x00\x00"], ids=repr)
def test_a_broken_token_file_is_put_aside_and_never_stops_a_node(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens.json").write_text(text)

    directory = opened(tmp_path)

    assert directory.floors == {}
    assert (tmp_path / "tokens.json.broken").read_text() == text
    directory.close()


def test_a_directory_that_cannot_be_made_is_named_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OrchestratorError, match="Not a directory; choose another with --state-dir"):
        opened(tmp_path / "file" / "n1")


@pytest.fixture
def files_end_at(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no file of this process grow past so many bytes: a disk that is full for every user."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (request.param, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "files_end_at",
    [pytest.param(0, id="for the lock"), pytest.param(10, id="for the identity")],
    indirect=True,
)
@pytest.mark.usefixtures("files_end_at")
def test_a_directory_without_room_is_one_sentence_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(OrchestratorError, match=r"cannot be used: .*; make room there, or choose .* --state-dir$"):
        opened(tmp_path / "n1")


def test_a_full_disk_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "state_id.new").symlink_to("/dev/full")

    with pytest.raises(OrchestratorError, match="No space left on device; make room there"):
        opened(tmp_path)


@pytest.mark.parametrize("name", ["node.lock", "state_id", "tokens.json.broken"])
def test_whatever_cannot_be_opened_there_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "x").mkdir(parents=True)
    (tmp_path / "tokens.json").write_text("broken")

    with pytest.raises(OrchestratorError, match=r"directory.* cannot be used: .*; choose another with --state-dir$"):
        opened(tmp_path)


def test_a_directory_that_was_refused_is_free_once_it_is_mended(tmp_path: Path) -> None:
    (tmp_path / "state_id").mkdir()
    with pytest.raises(OrchestratorError):
        opened(tmp_path)
    (tmp_path / "state_id").rmdir()

    opened(tmp_path).close()


def test_half_an_identity_is_never_left_behind(tmp_path: Path) -> None:
    (tmp_path / "state_id.new").symlink_to("/dev/full")
    with pytest.raises(OrchestratorError):
        opened(tmp_path)

    assert not (tmp_path / "state_id").exists()
