"""Redis for a node: requests in, exactly one answer a request out, in the same order.

No exception leaves `serve`: whatever happens to a request is told by its answer. All requests of a turn
go in ONE pipeline; a second one is needed only for scripts the server does not know, and for what members
newly say of themselves. Nothing is sent twice: whoever gets `StoreSilent` asks again if it still wants to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from orchestrator.core.answers import StoreAnswer, StoreSilent
from orchestrator.core.nouns import Bucket, JobName
from orchestrator.core.requests import (
    AcquireLease,
    ClaimTick,
    ForgetTrigger,
    GiveOrder,
    KeepMembership,
    LeaveCluster,
    LookAtLease,
    LookAtSuccesses,
    MeetServer,
    PublishState,
    RecordRun,
    ReleaseLease,
    RenewLease,
    RestoreIntents,
    SettleTicks,
    StoreRequest,
)
from orchestrator.errors import ConfigError, InvariantError
from orchestrator.store import lease_calls, member_calls, run_calls
from orchestrator.store.calls import MAX_LEASES_A_CALL, SENSELESS, Call
from orchestrator.store.client import Client, Command, Problem
from orchestrator.store.keys import Keys
from orchestrator.store.member_calls import Membership
from orchestrator.store.nudges import Nudges
from orchestrator.store.roll import Roll

_Batched = TypeVar("_Batched", RenewLease, ClaimTick, SettleTicks, RecordRun, LookAtLease)
_Single = (
    MeetServer
    | AcquireLease
    | ReleaseLease
    | LookAtSuccesses
    | PublishState
    | KeepMembership
    | LeaveCluster
    | RestoreIntents
    | GiveOrder
    | ForgetTrigger
)
_Planned = tuple[Sequence[int], Call]
"""A call, and the places of its requests among those of the turn."""


class Store:
    """One node's link to Redis."""

    def __init__(self, url: str, *, cluster: str, node: str, request_timeout_s: float) -> None:
        """Prepare; nothing is connected before the first request.

        Args:
            url: redis://, rediss:// or unix://.
            cluster: Prefix of all keys.
            node: This node's name.
            request_timeout_s: A `serve` is over by then, whatever Redis does.

        Raises:
            ConfigError: The URL or a name is wrong.
        """
        if not node or "|" in node:
            raise ConfigError(f"node: `{node}` must not be empty or contain |")
        self._keys = Keys(cluster)
        self._client = Client(url, name=f"orchestrator:{node}", timeout_s=request_timeout_s)
        self._nudges = Nudges(self._client, self._keys.nudge)
        self._membership = Membership(self._keys)

    @property
    def shown(self) -> str:
        """The URL for people: without user and password."""
        return self._client.address.shown

    async def serve(self, requests: Sequence[StoreRequest]) -> list[StoreAnswer]:
        """Carry all requests out; return one answer each, in their order. Never raises, bounded in time.

        The order in which they are carried out is not promised (renewals go first; a script the server does
        not know goes last): what depends on another's answer belongs into a later turn.
        """
        until = self._client.deadline()
        calls = self._calls(requests)
        replies = await self._client.run([call.command for _, call in calls], until)
        outcomes: list[StoreAnswer | Roll | None] = [None] * len(requests)
        for (places, call), reply in zip(calls, replies, strict=True):
            for place, outcome in zip(places, call.outcomes(reply), strict=True):
                outcomes[place] = outcome
        return [await self._finished(outcome, until) for outcome in outcomes]

    async def nudges(self, deliver: Callable[[JobName | None], None]) -> None:
        """Deliver nudges until cancelled: a job's name, None for "look at everything".

        None is also delivered after each (re)connection, since whatever came meanwhile is lost.
        """
        await self._nudges.receive(deliver)

    async def nudge(self, job: JobName | None) -> None:
        """Make the other nodes look now instead of at their next beat; if it fails they look later."""
        await self._client.run([Command(None, [], ["PUBLISH", self._keys.nudge, job or ""])])

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    def _calls(self, requests: Sequence[StoreRequest]) -> list[_Planned]:
        """Return the calls with the places of their requests; renewals first, they are what must not wait."""
        renewals: list[tuple[int, RenewLease]] = []
        claims: list[tuple[int, ClaimTick]] = []
        settlings: list[tuple[int, SettleTicks]] = []
        records: list[tuple[int, RecordRun]] = []
        looks: list[tuple[int, LookAtLease]] = []
        single: list[_Planned] = []
        for place, request in enumerate(requests):
            match request:
                case RenewLease():
                    renewals.append((place, request))
                case ClaimTick():
                    claims.append((place, request))
                case SettleTicks():
                    settlings.append((place, request))
                case RecordRun():
                    records.append((place, request))
                case LookAtLease():
                    looks.append((place, request))
                case _:
                    single.append(([place], self._single(request)))
        return [
            *self._batched(renewals, lease_calls.renew),
            *self._batched(claims, run_calls.claim),
            *self._batched(settlings, run_calls.settle),
            *self._batched(records, run_calls.record),
            *single,
            *self._batched(looks, lease_calls.look),
        ]

    def _batched(
        self, placed: Iterable[tuple[int, _Batched]], build: Callable[[Sequence[_Batched], Keys], Call]
    ) -> Iterator[_Planned]:
        for places, chunk in self._by_bucket(placed):
            yield places, build(chunk, self._keys)

    def _single(self, request: _Single) -> Call:
        keys = self._keys
        match request:
            case MeetServer():
                return lease_calls.meet(request, keys)
            case AcquireLease():
                return lease_calls.acquire(request, keys)
            case ReleaseLease():
                return lease_calls.release(request, keys)
            case LookAtSuccesses():
                return run_calls.look_at_successes(request, keys)
            case PublishState():
                return run_calls.publish(request, keys)
            case KeepMembership():
                return self._membership.keep(request)
            case LeaveCluster():
                return member_calls.leave(request, keys)
            case RestoreIntents():
                return member_calls.restore(request, keys)
            case GiveOrder():
                return member_calls.give_order(request, keys)
            case ForgetTrigger():
                return member_calls.forget_trigger(request, keys)

    def _by_bucket(self, placed: Iterable[tuple[int, _Batched]]) -> Iterator[tuple[list[int], list[_Batched]]]:
        """Yield places and requests of one bucket together, at most `MAX_LEASES_A_CALL` at a time."""
        groups: dict[Bucket, tuple[list[int], list[_Batched]]] = {}
        for place, request in placed:
            places, chunk = groups.setdefault(self._keys.of(request.key).bucket, ([], []))
            places.append(place)
            chunk.append(request)
        for places, chunk in groups.values():
            for start in range(0, len(chunk), MAX_LEASES_A_CALL):
                end = start + MAX_LEASES_A_CALL
                yield places[start:end], chunk[start:end]

    async def _finished(self, outcome: StoreAnswer | Roll | None, until: float) -> StoreAnswer:
        if outcome is None:
            raise InvariantError("a request of the store was not planned")
        if not isinstance(outcome, Roll):
            return outcome
        replies = await self._client.run(self._membership.missing(outcome), until)
        for reply in replies:
            if isinstance(reply, Problem):
                return StoreSilent(outcome.request, reply.clause)
        try:
            return self._membership.answer(outcome, replies)
        except (TypeError, ValueError, LookupError):
            return StoreSilent(outcome.request, SENSELESS)
