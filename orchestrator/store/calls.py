"""One call of a script for one or many requests, and how its reply is read into answers.

Knows no connection. Rules:
1. Renewals, looks, claims, settlings and records of one bucket go together; at most 250 leases a call, since a
   call stops the server for everybody (250 leases: renewed in 0.5 ms, claimed or recorded in some milliseconds).
2. A reply that makes no sense never raises: its requests are answered by `StoreSilent`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.answers import StoreAnswer, StoreSilent
from orchestrator.core.nouns import OpenRun
from orchestrator.core.open_runs import parse_mark
from orchestrator.core.requests import StoreRequest
from orchestrator.store.client import Command, Problem, Reply
from orchestrator.store.roll import Roll

Outcome = StoreAnswer | Roll
"""An answer, or what a second round trip makes one of."""

MAX_LEASES_A_CALL = 250

SENSELESS = "its answer makes no sense"
"""The problem where a reply is not what the script returns: another program's function, a broken proxy."""


@dataclass(frozen=True, slots=True)
class Call:
    """A command and the requests it carries out.

    Attributes:
        read: Makes one answer a request of a reply, in their order; may raise what a malformed reply causes.
    """

    requests: Sequence[StoreRequest]
    command: Command
    read: Callable[[Reply], Sequence[Outcome]]

    def outcomes(self, reply: Reply) -> Sequence[Outcome]:
        """Return one outcome a request."""
        if isinstance(reply, Problem):
            return self.silent(reply.clause)
        try:
            outcomes = self.read(reply)
        except (TypeError, ValueError, LookupError, AttributeError):
            return self.silent(SENSELESS)
        return outcomes if len(outcomes) == len(self.requests) else self.silent(SENSELESS)

    def silent(self, clause: str) -> Sequence[Outcome]:
        """Answer each request with the problem."""
        return [StoreSilent(request, clause) for request in self.requests]


def listed(reply: Reply) -> list[Reply]:
    """Return a reply that is a list.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(reply, (list, tuple)):
        raise TypeError("not a list")
    return list(reply)


def text(reply: Reply) -> str:
    """Return a reply that is text.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(reply, str):
        raise TypeError("not a text")
    return reply


def number(reply: Reply) -> int:
    """Return a reply that is a number, as digits or as an integer.

    Raises:
        TypeError: It is neither text nor number.
        ValueError: The text is no number.
    """
    if not isinstance(reply, (str, int)):
        raise TypeError("not a number")
    return int(reply)


def parse_info(said: Reply) -> Mapping[str, object]:
    """Read the JSON object that a node wrote of itself or of a run; empty for anything malformed."""
    if not isinstance(said, str):
        return {}
    try:
        info = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    return info if isinstance(info, dict) else {}


def parse_open_runs(said: Sequence[Reply]) -> tuple[OpenRun, ...]:
    """Read open runs, a flat list of run and mark, oldest claim first; a malformed one counts as absent.

    Raises:
        TypeError, ValueError: It is no such list.
    """
    parsed = (parse_mark(text(run), text(mark)) for run, mark in zip(said[::2], said[1::2], strict=True))
    return tuple(sorted((run for run in parsed if run is not None), key=lambda run: (run.tick_ms or 0, run.run)))
