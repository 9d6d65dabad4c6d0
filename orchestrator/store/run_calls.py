"""Ticks and runs in the words of the scripts: claim, settle, record, look at successes, publish a state.

Many claims, settlings and records of one bucket go in one call each: a thousand crons that are due in the same second
cost a few calls, and the server no more than some ten milliseconds.
"""

from collections.abc import Sequence

from orchestrator.core.answers import (
    RunRecorded,
    StatePublished,
    StoreAnswer,
    SuccessesSeen,
    TickClaimed,
    TickRefused,
    TicksSettled,
)
from orchestrator.core.requests import ClaimTick, LookAtSuccesses, PublishState, RecordRun, SettleTicks
from orchestrator.store import scripts
from orchestrator.store.calls import Call, listed, number, text
from orchestrator.store.client import Argument, Command, Reply
from orchestrator.store.keys import Keys


def claim(requests: Sequence[ClaimTick], keys: Keys) -> Call:
    """Claim many starts of one bucket."""
    args: list[Argument] = []
    for request in requests:
        numbers = f"{request.tick_ms}|{request.ahead_ms}|{request.order_ms}"
        args += (numbers, str(request.value), request.run, request.mark, request.instead)

    def read(reply: Reply) -> list[StoreAnswer]:
        said = listed(reply)
        return [
            _claimed(request, text(what), number(last_ms))
            for request, what, last_ms in zip(requests, said[::2], said[1::2], strict=True)
        ]

    return Call(requests, Command(scripts.CLAIM, [keys.of(request.key).lease for request in requests], args), read)


def _claimed(request: ClaimTick, what: str, last_ms: int) -> StoreAnswer:
    token = request.value.token
    match what:
        case "claimed":
            return TickClaimed(request.job, token, request.tick_ms, request.run, request.asked_at)
        case "duplicate" | "ahead" | "lost":
            return TickRefused(request.job, token, request.tick_ms, what, last_ms, request.asked_at, request.run)
        case _:
            raise ValueError(what)


def settle(requests: Sequence[SettleTicks], keys: Keys) -> Call:
    """Settle many ticks of one bucket that do not run."""
    args: list[Argument] = []
    for request in requests:
        ticks = (request.until_ms, request.ahead_ms, request.count)
        numbers = (*ticks, request.order_ms, request.keep, request.keep_bytes)
        args += ("|".join(map(str, numbers)), str(request.value), request.what, request.entry, request.record)

    def read(reply: Reply) -> list[StoreAnswer]:
        said = listed(reply)
        return [
            _settled(request, text(what), number(last_ms))
            for request, what, last_ms in zip(requests, said[::2], said[1::2], strict=True)
        ]

    return Call(requests, Command(scripts.SETTLE, [keys.of(request.key).lease for request in requests], args), read)


def _settled(request: SettleTicks, what: str, last_ms: int) -> StoreAnswer:
    job, token, until_ms = request.job, request.value.token, request.until_ms
    match what:
        case "settled":
            return TicksSettled(job, token, until_ms, last_ms, request.asked_at, request.order_ms)
        case "lost" | "ahead":
            return TickRefused(job, token, until_ms, what, last_ms, request.asked_at)
        case _:
            raise ValueError(what)


def record(requests: Sequence[RecordRun], keys: Keys) -> Call:
    """Write how many runs of one bucket ended."""
    args: list[Argument] = [keys.nudge]
    for request in requests:
        failures = "" if request.failures is None else request.failures
        names = request.success_of
        numbers = (request.token, request.keep, request.keep_bytes, int(request.witness), failures, len(names))
        args += ("|".join(map(str, numbers)), request.run, request.record, request.mark, *names)

    def read(reply: Reply) -> list[StoreAnswer]:
        number(reply)
        return [RunRecorded(request.job, request.run, request.asked_at) for request in requests]

    return Call(requests, Command(scripts.RECORD, [keys.of(request.key).last for request in requests], args), read)


def look_at_successes(request: LookAtSuccesses, keys: Keys) -> Call:
    """Read when another job succeeded."""

    def read(reply: Reply) -> list[StoreAnswer]:
        at_ms = tuple(number(ms) for ms in reversed(listed(reply)))
        return [SuccessesSeen(request.job, at_ms, request.asked_at)]

    return Call([request], Command(scripts.SUCCESSES, [keys.of(request.key).successes], [request.after_ms]), read)


def publish(request: PublishState, keys: Keys) -> Call:
    """Show a job's state."""
    of = keys.of(request.key)

    def read(reply: Reply) -> list[StoreAnswer]:
        return [StatePublished(request.job, number(reply) == 1, request.asked_at)]

    return Call([request], Command(scripts.PUBLISH, [of.lease, of.state], [str(request.value), request.state]), read)
