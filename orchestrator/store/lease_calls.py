"""Leases in the words of the scripts: meet, look, renew, acquire, release.

Each function builds the call for its requests; how a reply is read stands beside it. What the scripts
take and return stands in their heads.
"""

import secrets
from collections.abc import Sequence

from orchestrator.core.answers import (
    LeaseGranted,
    LeaseLost,
    LeaseRefused,
    LeaseReleased,
    LeaseRenewed,
    LeaseSeen,
    RenewalLate,
    ServerMet,
    StoreAnswer,
    StoreSilent,
)
from orchestrator.core.nouns import Token, parse_lease_value
from orchestrator.core.requests import AcquireLease, LookAtLease, MeetServer, ReleaseLease, RenewLease
from orchestrator.store import scripts
from orchestrator.store.calls import Call, listed, number, parse_info, parse_open_runs, text
from orchestrator.store.client import Argument, Command, Reply
from orchestrator.store.keys import Keys


def meet(request: MeetServer, keys: Keys) -> Call:
    """Ask a server who it is."""

    def read(reply: Reply) -> list[StoreAnswer]:
        epoch, created, now = listed(reply)
        return [ServerMet(request.bucket, text(epoch), number(created) == 1, number(now), request.asked_at)]

    return Call([request], Command(scripts.MEET, [keys.epoch(request.bucket)], [secrets.token_hex(8)]), read)


def look(requests: Sequence[LookAtLease], keys: Keys) -> Call:
    """Look at many leases of one bucket."""

    def read(reply: Reply) -> list[StoreAnswer]:
        said = listed(reply)
        pairs = zip(requests, said[::2], said[1::2], strict=True)
        return [_seen(request, text(value), number(left_ms)) for request, value, left_ms in pairs]

    return Call(requests, Command(scripts.LOOK, [keys.of(request.key).lease for request in requests], []), read)


def _seen(request: LookAtLease, value: str, left_ms: int) -> LeaseSeen:
    parsed = parse_lease_value(value)
    absent = left_ms == -2  # noqa: PLR2004 - PTTL's word for it
    return LeaseSeen(
        request.job,
        parsed,
        malformed=parsed is None and not absent,
        left_ms=left_ms if parsed else 0,
        asked_at=request.asked_at,
    )


def renew(requests: Sequence[RenewLease], keys: Keys) -> Call:
    """Renew many leases of one bucket."""
    # One argument a lease: packing arguments is most of what a renewal costs a node.
    args = [f"{request.ttl_ms}|{request.not_after_ms}|{request.value}" for request in requests]
    names = [keys.of(request.key).lease for request in requests]

    def read(reply: Reply) -> list[StoreAnswer]:
        said = listed(reply)
        now = number(said[0])
        answers: list[StoreAnswer] = [
            LeaseRenewed(request.job, request.value.token, now, put_back=False, asked_at=request.asked_at)
            for request in requests
        ]
        for index, what, detail in zip(said[1::3], said[2::3], said[3::3], strict=True):
            i = number(index) - 1
            answers[i] = _not_plainly_renewed(requests[i], text(what), text(detail), now)
        return answers

    return Call(requests, Command(scripts.RENEW, names, args), read)


def _not_plainly_renewed(request: RenewLease, what: str, detail: str, now: int) -> StoreAnswer:
    token = request.value.token
    match what:
        case "back":
            return LeaseRenewed(request.job, token, now, put_back=True, asked_at=request.asked_at)
        case "taken":
            other = parse_lease_value(detail)
            who = f"node {other.node} holds it with token {other.token}" if other else "somebody else holds it"
            return LeaseLost(request.job, token, who, request.asked_at)
        case "newer":
            return LeaseLost(request.job, token, f"token {detail} was issued", request.asked_at)
        case "released":
            return LeaseLost(request.job, token, "it was released", request.asked_at)
        case "late":
            return RenewalLate(request.job, token, now, request.asked_at)
        case "refused":
            return StoreSilent(request, f"the lease had vanished and could not be put back: {detail}")
        case _:
            raise ValueError(what)


def acquire(request: AcquireLease, keys: Keys) -> Call:
    """Ask for a lease."""
    of = keys.of(request.key)
    args: list[Argument] = [
        request.node,
        request.incarnation,
        request.ttl_ms,
        request.longest_ttl_ms,
        request.floor,
        request.seen,
        request.ran,
        request.epoch,
        request.expected_ms,
        request.tolerance_ms,
        "1" if request.quarantined else "0",
        request.schedule,
        request.tick_floor_ms,
    ]
    names: list[Argument] = [of.lease, of.token, of.released, keys.epoch(of.bucket), of.tick, of.alive, of.last]

    def read(reply: Reply) -> list[StoreAnswer]:
        said = listed(reply)
        what, detail, wait_ms, now = said[:4]
        if text(what) in ("granted", "adopted"):
            return [_granted(request, text(what), Token(number(detail)), number(now), said[4:])]
        return [_refused(request, text(what), text(detail), number(wait_ms), number(now))]

    return Call([request], Command(scripts.ACQUIRE, names, args), read)


def _granted(request: AcquireLease, what: str, token: Token, now: int, said: Sequence[Reply]) -> LeaseGranted:
    last_tick_ms, last, failures, failed_ms, obeyed_ms, *runs = said
    return LeaseGranted(
        request.job,
        token,
        now,
        what == "adopted",
        number(last_tick_ms),
        request.asked_at,
        last=parse_info(last) or None,
        open=parse_open_runs(runs),
        failures=number(failures),
        failed_ms=number(failed_ms),
        obeyed_ms=number(obeyed_ms),
    )


def _refused(request: AcquireLease, what: str, detail: str, wait_ms: int, now: int) -> LeaseRefused:
    match what:
        case "held":
            return LeaseRefused(request.job, what, parse_lease_value(detail), wait_ms, now, request.asked_at)
        case "hint" | "vanished" | "young" | "quarantine" | "epoch" | "clock":
            return LeaseRefused(request.job, what, None, wait_ms, now, request.asked_at)
        case _:
            raise ValueError(what)


def release(request: ReleaseLease, keys: Keys) -> Call:
    """Give a lease back."""
    of = keys.of(request.key)
    args: list[Argument] = [
        str(request.value),
        request.epoch,
        request.next_node,
        request.hint_ms,
        request.keep_note_ms,
        keys.nudge,
        request.job,
    ]

    def read(reply: Reply) -> list[StoreAnswer]:
        return [LeaseReleased(request.job, request.value.token, number(reply) == 1, request.asked_at)]

    return Call([request], Command(scripts.RELEASE, [of.lease, of.released], args), read)
