"""Membership and orders in the words of the scripts: member, leave, restore, order, forget.

A beat's answer names the members and the revision of what each says of itself; those texts (up to some
tens of kilobytes a node) are fetched only when a revision changed, and intents only when their version
is newer than what the node knows. So `KeepMembership` may need a second round trip: `Membership` keeps
what was fetched and builds it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.core.answers import (
    ClusterLeft,
    IntentsRestored,
    MembersSeen,
    NameRefused,
    OrderGiven,
    StoreAnswer,
    TriggerForgotten,
)
from orchestrator.core.nouns import Intent, JobName, Member, NodeName
from orchestrator.core.requests import ForgetTrigger, GiveOrder, KeepMembership, LeaveCluster, RestoreIntents
from orchestrator.store import scripts
from orchestrator.store.calls import Call, listed, number, parse_info, text
from orchestrator.store.client import Argument, Command, Reply
from orchestrator.store.intents import intent_json, parse_intents
from orchestrator.store.keys import Keys
from orchestrator.store.roll import Head, Roll
from orchestrator.store.triggers import parse_triggers

FORGET_AFTER_MS = 24 * 3600 * 1000
"""A dead member's name and info are remembered for a day."""


class Membership:
    """Builds membership calls and remembers the members' infos between them."""

    def __init__(self, keys: Keys) -> None:
        """Know nobody yet."""
        self._keys = keys
        self._infos: dict[NodeName, tuple[str, Mapping[str, object]]] = {}

    def keep(self, request: KeepMembership) -> Call:
        """Say that a node lives; the reply is refused, or a roll that `missing` and `answer` complete."""
        keys = self._keys
        names = [keys.nodes, keys.heads, keys.infos, keys.intents_version, keys.intents]
        args: list[Argument] = [
            request.node,
            request.incarnation,
            request.ttl_ms,
            _revision(request.info),
            request.state_id,
            request.info,
            FORGET_AFTER_MS,
        ]
        return Call([request], Command(scripts.MEMBER, names, args), lambda reply: [self._roll(request, reply)])

    def _roll(self, request: KeepMembership, reply: Reply) -> Roll | NameRefused:
        said = listed(reply)
        now = number(said[1])
        if text(said[0]) == "refused":
            same, incarnation, left_ms, info = said[2:]
            other = parse_info(text(info))
            who = f"{other.get('host', '?')}:{other.get('pid', '?')}"
            return NameRefused(
                request.node, number(same) == 1, text(incarnation), who, number(left_ms), request.asked_at
            )
        version = number(said[2])
        heads = [
            Head(NodeName(text(name)), text(incarnation), number(since_ms), text(revision))
            for name, incarnation, since_ms, revision in zip(
                said[3::4], said[4::4], said[5::4], said[6::4], strict=True
            )
        ]
        stale = [head.name for head in heads if self._infos.get(head.name, ("",))[0] != head.revision]
        return Roll(request, heads, stale, version > request.intents_known, version, now)

    def missing(self, roll: Roll) -> list[Command]:
        """Return what must be fetched before the beat can be answered; often nothing."""
        commands = []
        if roll.stale:
            commands.append(Command(None, [], ["HMGET", self._keys.infos, *roll.stale]))
        if roll.intents_newer:
            commands.append(Command(None, [], ["HGETALL", self._keys.intents]))
        return commands

    def answer(self, roll: Roll, replies: Sequence[Reply]) -> StoreAnswer:
        """Answer a beat with the replies to what was missing.

        Raises:
            TypeError, ValueError, LookupError: They make no sense.
        """
        fetched = iter(replies)
        if roll.stale:
            revisions = {head.name: head.revision for head in roll.heads}
            for name, info in zip(roll.stale, listed(next(fetched)), strict=True):
                self._infos[name] = (revisions[name], parse_info(info))
        orders = pairs(next(fetched)) if roll.intents_newer else None
        members = tuple(
            Member(head.name, head.incarnation, head.since_ms, self._infos[head.name][1]) for head in roll.heads
        )
        alive = {head.name for head in roll.heads}
        self._infos = {name: known for name, known in self._infos.items() if name in alive}
        return MembersSeen(
            members,
            None if orders is None else parse_intents(orders),
            roll.version,
            roll.server_ms,
            roll.request.asked_at,
            triggers=parse_triggers(orders or ()),
        )


def leave(request: LeaveCluster, keys: Keys) -> Call:
    """Take a node out of the membership."""

    def read(reply: Reply) -> list[StoreAnswer]:
        number(reply)
        return [ClusterLeft(request.asked_at)]

    args = [request.node, request.incarnation, keys.nudge]
    return Call([request], Command(scripts.LEAVE, [keys.nodes, keys.heads, keys.infos], args), read)


def restore(request: RestoreIntents, keys: Keys) -> Call:
    """Put lost intents back."""
    args: list[Argument] = [request.version]
    for job, intent in request.intents.items():
        args += (job, intent.at_ms, intent_json(intent))

    def read(reply: Reply) -> list[StoreAnswer]:
        return [IntentsRestored(number(reply), request.asked_at)]

    return Call([request], Command(scripts.RESTORE, [keys.intents, keys.intents_version], args), read)


def order(jobs: Sequence[JobName], intent: Intent, keys: Keys) -> Command:
    """Give a standing order for jobs; the reply is its instant. `at_ms` and `off_ms` are the server's to say."""
    args: list[Argument] = [keys.nudge, intent_json(replace(intent, off_ms=0)), *jobs]
    return Command(scripts.ORDER, [keys.intents, keys.intents_version], args)


def give_order(request: GiveOrder, keys: Keys) -> Call:
    """Give a standing order for one job in the node's own name."""

    def read(reply: Reply) -> list[StoreAnswer]:
        return [OrderGiven(request.job, number(reply), request.asked_at)]

    return Call([request], order([request.job], request.intent, keys), read)


def forget_trigger(request: ForgetTrigger, keys: Keys) -> Call:
    """Take away an order that was obeyed or refused."""

    def read(reply: Reply) -> list[StoreAnswer]:
        number(reply)
        return [TriggerForgotten(request.order_ms, request.asked_at)]

    return Call([request], Command(scripts.FORGET, [keys.intents], [request.order_ms]), read)


def pairs(reply: Reply) -> list[tuple[str, str]]:
    """Return a hash, which protocol 2 sends as a flat list and redis-py may have made a dict of.

    Raises:
        TypeError, ValueError: It is no hash.
    """
    if isinstance(reply, dict):
        return [(text(name), text(value)) for name, value in reply.items()]
    flat = [text(item) for item in listed(reply)]
    return list(zip(flat[::2], flat[1::2], strict=True))


def _revision(info: str) -> str:
    return hashlib.blake2b(info.encode(), digest_size=8).hexdigest()
