"""How a message is told in a story: the name of its class, then the few fields that matter to a reader.

It decides nothing and knows no time of its own. Tokens are told as `#1`, `#2` in the order of their issue
and epochs as `e1`, `e2`, so that a story does not change when a number does. `QUIET` is what an uneventful
heartbeat consists of; a story shows it only where it says `show everything`.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from orchestrator.core.answers import (
    IntentsRestored,
    LeaseRenewed,
    LeaseSeen,
    MembersSeen,
    RunRecorded,
    ServerMet,
    StatePublished,
    StoreSilent,
)
from orchestrator.core.messages import ExtendRun, RememberToken, Say
from orchestrator.core.nouns import Deadlines
from orchestrator.core.requests import KeepMembership, LookAtLease, MeetServer, PublishState, RecordRun, RenewLease
from orchestrator.core.snapshot import iso_utc

QUIET = (
    KeepMembership,
    MeetServer,
    LookAtLease,
    RenewLease,
    PublishState,
    RecordRun,
    ExtendRun,
    RememberToken,
    MembersSeen,
    ServerMet,
    LeaseSeen,
    RunRecorded,
    StatePublished,
    IntentsRestored,
)

TOLD = {
    "KeepMembership": "",
    "MeetServer": "bucket",
    "LookAtLease": "job",
    "RenewLease": "job value",
    "AcquireLease": "job quarantined seen",
    "ReleaseLease": "job value",
    "ClaimTick": "job tick_ms",
    "SettleTicks": "job what count until_ms",
    "LookAtSuccesses": "job",
    "GiveOrder": "job",
    "ForgetTrigger": "",
    "RecordRun": "run record",
    "PublishState": "job state",
    "LeaveCluster": "",
    "RestoreIntents": "intents",
    "StartRun": "run env deadlines",
    "ExtendRun": "run deadlines",
    "StopRun": "run grace_s why",
    "KillRun": "run why",
    "RememberToken": "job token",
    "ExpectRuns": "count",
    "QuitNode": "problem",
    "ServerMet": "bucket epoch created",
    "LeaseSeen": "job value left_ms",
    "LeaseRenewed": "job token put_back",
    "LeaseLost": "job token why",
    "RenewalLate": "job token",
    "LeaseGranted": "job token adopted",
    "LeaseRefused": "job reason value wait_ms",
    "LeaseReleased": "job token was_ours",
    "TickClaimed": "job tick_ms",
    "TickRefused": "job tick_ms reason",
    "TicksSettled": "job until_ms",
    "SuccessesSeen": "job",
    "OrderGiven": "job",
    "TriggerForgotten": "",
    "RunRecorded": "run",
    "StatePublished": "job was_ours",
    "MembersSeen": "members intents",
    "NameRefused": "node same_state other left_ms",
    "ClusterLeft": "",
    "IntentsRestored": "",
    "RunStarted": "run pid",
    "RunStuck": "run pids why",
    "RunUnproven": "run why",
    "RunEnded": "run exit_code signal cause",
    "Nudged": "job",
    "LeaveOrdered": "urgency",
}
"""Which fields of a message are told, in this order; those that say nothing (None, 0, "", False) are left out."""

NAMELESS = {"job", "run", "node", "reason", "token", "bucket", "epoch"}
"""Fields whose value says by itself what it is."""


def is_quiet(message: object) -> bool:
    """Say whether a message is a part of an uneventful heartbeat."""
    if isinstance(message, LeaseRenewed):
        return not message.put_back
    if isinstance(message, StoreSilent):
        return is_quiet(message.request)
    return isinstance(message, QUIET)


class Teller:
    """Tells messages, and remembers which number was which token and which epoch."""

    def __init__(self) -> None:
        """Begin with nothing numbered."""
        self._tokens: list[str] = []
        self._epochs: list[str] = []

    def tell(self, message: object, since: Callable[[float], float]) -> str:
        """Return a message in one line; `since` turns an instant of its node's boot clock into story seconds."""
        if isinstance(message, Say):
            fields = {name: value for name, value in message.fields.items() if value not in ("", None)}
            return self.short(
                " ".join([f"Say {message.event}", *(f"{name}={_value(fields[name])}" for name in fields)])
            )
        if isinstance(message, StoreSilent):
            return f"StoreSilent for {self.tell(message.request, since)}: {message.problem}"
        name = type(message).__name__
        told = (self._field(field, getattr(message, field), since) for field in TOLD[name].split())
        return self.short(" ".join([name, *filter(None, told)]))

    def short(self, text: str) -> str:
        """Return a text with its tokens numbered."""
        return re.sub(r"\b18\d{11}\b", lambda match: f"#{_number(self._tokens, match[0])}", text)

    def _field(self, name: str, value: Any, since: Callable[[float], float]) -> str:
        says_nothing = not value and not (name == "exit_code" and value == 0)
        if says_nothing:
            return ""
        if name == "epoch":
            return f"epoch e{_number(self._epochs, value)}"
        if isinstance(value, Deadlines):
            return f"term_at={since(value.term_at):.3f} kill_at={since(value.kill_at):.3f}"
        if name in GISTS:
            return GISTS[name](value)
        text = name if value is True else _value(value)
        return text if value is True or name in NAMELESS else f"{name}={text}"


def _gist(text: str) -> str:
    data = json.loads(text)
    return " ".join(f"{name}={_value(data[name])}" for name in ("state", "outcome", "why") if data.get(name))


def _value(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"'{text}'" if " " in text else text


def _number(known: list[str], value: str) -> int:
    if value not in known:
        known.append(value)
    return known.index(value) + 1


GISTS: dict[str, Callable[[Any], str]] = {
    "value": lambda value: f"held by {value.node} under {value.token}",
    "state": _gist,
    "record": _gist,
    "env": lambda env: f"reason={env['ORCHESTRATOR_REASON']} token={env['ORCHESTRATOR_FENCING_TOKEN']}",
    "tick_ms": lambda tick_ms: f"tick={iso_utc(tick_ms / 1000)}",
    "until_ms": lambda until_ms: f"until={iso_utc(until_ms / 1000)}",
    "members": lambda members: f"members={','.join(member.name for member in members)}",
    "intents": lambda intents: " ".join(f"{job}:{intent.want}" for job, intent in intents.items()),
}
"""What is told of a field whose value is long."""
