"""Every line a node says is worded for people."""

import re
from pathlib import Path

import pytest

from orchestrator.core.messages import Say
from orchestrator.view.narration import FORMATS, SENTENCES

PACKAGE = Path(__file__).parents[2] / "orchestrator"
UTC = 1_796_040_000.123


def said_events() -> set[str]:
    """Return the event names in the package's code."""
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    return {name for text in texts for name in re.findall(r'[Ss]ay\(\s*"([a-z_]+\.[a-z_]+)"', text)}


def test_every_event_has_a_sentence_and_every_sentence_an_event() -> None:
    assert said_events() == set(SENTENCES)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_came_from_outside_cannot_move_the_cursor(name: str) -> None:
    line = FORMATS[name](Say("lease.lost", {"job": "beat", "token": 7, "why": '\x1b[2J\nnode="x"'}, "warning"), UTC)

    assert line.isprintable()


def test_a_sentence_names_the_job_and_its_facts() -> None:
    line = FORMATS["human"](Say("lease.acquired", {"job": "beat", "token": 1796040000123}), UTC)

    assert line.split(maxsplit=1)[1] == "beat         holds the lease, token 1796040000123"


def test_logfmt_quotes_what_has_spaces() -> None:
    line = FORMATS["logfmt"](Say("lease.lost", {"job": "beat", "why": "node b holds it"}, "warning"), UTC)

    assert line == 'ts=2026-11-30T12:00:00.123Z level=warning event=lease.lost job=beat why="node b holds it"'
