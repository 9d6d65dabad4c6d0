"""What a node keeps across restarts."""

import json
import os
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
    first.remember(JOB, Token(42))
    first.close()

    second = opened(tmp_path / "n1")

    assert (second.state_id, second.floors) == (first.state_id, {JOB: 42})
    second.close()


def test_a_lower_token_never_lowers_the_floor(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.remember(JOB, Token(42))
    directory.remember(JOB, Token(7))

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
