"""Runs in the words of the scripts: claim a tick, record an end, publish a state."""

from orchestrator.core.answers import RunRecorded, StatePublished, StoreAnswer, TickClaimed, TickRefused
from orchestrator.core.requests import ClaimTick, PublishState, RecordRun
from orchestrator.store import scripts
from orchestrator.store.calls import Call, listed, number, text
from orchestrator.store.client import Argument, Command, Reply
from orchestrator.store.keys import Keys


def claim(request: ClaimTick, keys: Keys) -> Call:
    """Claim a tick."""
    of = keys.of(request.key)
    token = request.value.token

    def read(reply: Reply) -> list[StoreAnswer]:
        what, last_ms = listed(reply)
        match text(what):
            case "claimed":
                return [TickClaimed(request.job, token, request.tick_ms, request.run, request.asked_at)]
            case ("duplicate" | "ahead" | "lost") as why:
                last = number(last_ms)
                return [TickRefused(request.job, token, request.tick_ms, why, last, request.asked_at)]
            case other:
                raise ValueError(other)

    args: list[Argument] = [str(request.value), request.tick_ms, request.run, request.ahead_ms]
    return Call([request], Command(scripts.CLAIM, [of.lease, of.tick], args), read)


def record(request: RecordRun, keys: Keys) -> Call:
    """Write how a run ended."""
    args: list[Argument] = [request.token, request.run, request.record]

    def read(reply: Reply) -> list[StoreAnswer]:
        number(reply)
        return [RunRecorded(request.job, request.run, request.asked_at)]

    return Call([request], Command(scripts.RECORD, [keys.of(request.key).last], args), read)


def publish(request: PublishState, keys: Keys) -> Call:
    """Show a job's state."""
    of = keys.of(request.key)

    def read(reply: Reply) -> list[StoreAnswer]:
        return [StatePublished(request.job, number(reply) == 1, request.asked_at)]

    return Call([request], Command(scripts.PUBLISH, [of.lease, of.state], [str(request.value), request.state]), read)
