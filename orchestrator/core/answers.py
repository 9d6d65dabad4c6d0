"""What the store answered: one event for each request, `StoreSilent` where nobody knows whether it was carried out.

Every answer bears the `asked_at` of its request, so that late and repeated ones are told apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.core.nouns import (
    Bucket,
    Intent,
    JobName,
    LeaseValue,
    Member,
    NodeName,
    OpenRun,
    RunId,
    Token,
    Trigger,
)
from orchestrator.core.requests import StoreRequest


@dataclass(frozen=True, slots=True)
class ServerMet:
    """The server behind a bucket said who it is.

    Attributes:
        epoch: Identity of its memory; another one means data were lost or another server answers.
        created: This very request wrote the epoch: it was missing or another server's.
        server_ms: Its clock.
    """

    bucket: Bucket
    epoch: str
    created: bool
    server_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """A look at a lease.

    Attributes:
        value: None: absent or malformed.
        malformed: Something that is no lease value stands there (it counts as absent).
        left_ms: What is left by the server's clock; -1: a value without an expiry; 0 where absent.
    """

    job: JobName
    value: LeaseValue | None
    malformed: bool
    left_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """A renewal was applied.

    Attributes:
        put_back: The key had vanished and stands again, with the same token.
    """

    job: JobName
    token: Token
    server_ms: int
    put_back: bool
    asked_at: float


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The lease is somebody else's, or was released, or a newer token was issued. Kill at once."""

    job: JobName
    token: Token
    why: str
    asked_at: float


@dataclass(frozen=True, slots=True)
class RenewalLate:
    """The key had vanished and `not_after_ms` was past: nothing was done; ask again if the own clock still holds."""

    job: JobName
    token: Token
    server_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """The lease is ours.

    Attributes:
        adopted: An earlier acquire of this incarnation had succeeded without our knowing.
        last_tick_ms: The newest tick ever settled (or the floor), 0 for a service.
        last: The record of a service's last run, of whichever node; None: none, or none that can be read.
        open: Of a cron: its runs that nobody told the end of, and those that are to be tried again.
        failures: Of a cron: failed ticks in a row.
        failed_ms: Server time of the last of these failures, 0: none.
        obeyed_ms: The newest order that was obeyed or refused, 0: none.
    """

    job: JobName
    token: Token
    server_ms: int
    adopted: bool
    last_tick_ms: int
    asked_at: float
    last: Mapping[str, object] | None = None
    open: tuple[OpenRun, ...] = ()
    failures: int = 0
    failed_ms: int = 0
    obeyed_ms: int = 0


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """The lease was not granted and nothing was changed.

    Attributes:
        reason: held | hint (left to another node) | vanished (a foreign lease cannot have run out)
            | young (its last token is younger than a ttl) | quarantine | epoch | clock.
        value: The holder's, for `held`.
        wait_ms: When to ask again at the earliest; 0: unknown.
    """

    job: JobName
    reason: str
    value: LeaseValue | None
    wait_ms: int
    server_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """A release was carried out; `was_ours` is False where the lease was no longer ours."""

    job: JobName
    token: Token
    was_ours: bool
    asked_at: float


@dataclass(frozen=True, slots=True)
class TickClaimed:
    """The start is ours to make."""

    job: JobName
    token: Token
    tick_ms: int
    run: RunId
    asked_at: float


@dataclass(frozen=True, slots=True)
class TickRefused:
    """The start may not be made here, or the ticks may not be settled by us.

    Attributes:
        tick_ms: As it was asked; of `SettleTicks` its `until_ms`.
        reason: duplicate (this or a newer one was settled, or it was made already) | ahead (of the server's clock)
            | lost (lease not ours).
        last_tick_ms: The newest settled tick, for `duplicate`.
        run: Whose start it is; "" of `SettleTicks`.
    """

    job: JobName
    token: Token
    tick_ms: int
    reason: str
    last_tick_ms: int
    asked_at: float
    run: str = ""


@dataclass(frozen=True, slots=True)
class TicksSettled:
    """They are settled; `last_tick_ms` is the newest settled tick."""

    job: JobName
    token: Token
    until_ms: int
    last_tick_ms: int
    asked_at: float
    order_ms: int = 0


@dataclass(frozen=True, slots=True)
class SuccessesSeen:
    """When the job that is waited for succeeded, milliseconds since 1970, oldest first."""

    job: JobName
    at_ms: tuple[int, ...]
    asked_at: float


@dataclass(frozen=True, slots=True)
class OrderGiven:
    """The order stands; `at_ms` is its instant."""

    job: JobName
    at_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class TriggerForgotten:
    """The order is gone."""

    order_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class RunRecorded:
    """The record stands (or a newer run's does)."""

    job: JobName
    run: RunId
    asked_at: float


@dataclass(frozen=True, slots=True)
class StatePublished:
    """The state is visible; `was_ours` is False where the lease is no longer ours."""

    job: JobName
    was_ours: bool
    asked_at: float


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """Who lives, and what is ordered.

    Attributes:
        intents: None: nothing newer than what was known.
        triggers: Orders to run a job once, oldest first; only where `intents` are told.
        intents_version: 0: the store knows of no intent at all.
    """

    members: tuple[Member, ...]
    intents: Mapping[JobName, Intent] | None
    intents_version: int
    server_ms: int
    asked_at: float
    triggers: tuple[Trigger, ...] = ()


@dataclass(frozen=True, slots=True)
class NameRefused:
    """A live node bears this name already.

    Attributes:
        same_state: It has our state directory's identity: our own past, or a copy of the directory.
        other: Its host and pid, for people.
        left_ms: How long its membership still stands if it is not renewed.
    """

    node: NodeName
    same_state: bool
    incarnation: str
    other: str
    left_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class ClusterLeft:
    """This node is no longer a member."""

    asked_at: float


@dataclass(frozen=True, slots=True)
class IntentsRestored:
    """The intents stand again (or newer ones do)."""

    version: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class StoreSilent:
    """A request was not answered; whether it was carried out is unknown.

    Attributes:
        request: The very request.
        problem: One clause for people: `connection refused`, `READONLY`, `no answer within 1.0 s` ...
    """

    request: StoreRequest
    problem: str


StoreAnswer = (
    ServerMet
    | LeaseSeen
    | LeaseRenewed
    | LeaseLost
    | RenewalLate
    | LeaseGranted
    | LeaseRefused
    | LeaseReleased
    | TickClaimed
    | TickRefused
    | TicksSettled
    | SuccessesSeen
    | OrderGiven
    | TriggerForgotten
    | RunRecorded
    | StatePublished
    | MembersSeen
    | NameRefused
    | ClusterLeft
    | IntentsRestored
    | StoreSilent
)
