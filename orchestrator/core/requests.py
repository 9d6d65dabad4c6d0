"""What is asked of the store: each request is answered by exactly one event of `core/answers.py`.

`asked_at` is always read BEFORE a request is written: whatever the server did, it did later, so a
deadline counted from it can only be too early, never too late ("deadline from the reply" is the classic
mistake).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.core.nouns import Bucket, Intent, JobName, LeaseValue, NodeName, RunId, Token


@dataclass(frozen=True, slots=True)
class MeetServer:
    """Ask the server behind a bucket who it is: its epoch and its clock. Answer: `ServerMet`."""

    bucket: Bucket
    asked_at: float


@dataclass(frozen=True, slots=True)
class LookAtLease:
    """Read a lease that is not ours. Answer: `LeaseSeen`."""

    job: JobName
    key: str
    asked_at: float


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Renew a lease we hold. Answer: `LeaseRenewed`, `LeaseLost` or `RenewalLate`.

    Attributes:
        not_after_ms: Server time past which a vanished key must not be put back.
    """

    job: JobName
    key: str
    value: LeaseValue
    ttl_ms: int
    not_after_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """Ask for a lease. Answer: `LeaseGranted` or `LeaseRefused`.

    Attributes:
        owner: Our node and incarnation.
        longest_ttl_ms: The largest ttl known for this job, ours or the holder's.
        floor: The highest token this node ever saw for the job; the new one will be greater.
        seen: Token of a foreign lease that by our own clock cannot have run out yet; 0: none.
        ran: The highest token this incarnation already ran or released; 0: none.
        epoch: The bucket's epoch as we know it; another one refuses us.
        expected_ms: What the server's clock should show now.
        tolerance_ms: How far it may be off; at least the request timeout.
        quarantined: Only a lease that was cleanly released under this epoch may be taken.
        schedule: Identity of the schedule, "" for a service.
        tick_floor_ms: Where the store knows no tick of this schedule, ticks up to here are settled: new and
            edited jobs never fire for the past. It is since when this node answers for the job's ticks, and
            not the instant of asking: what was due while nobody held the lease must run.
    """

    job: JobName
    key: str
    node: NodeName
    incarnation: str
    ttl_ms: int
    longest_ttl_ms: int
    floor: Token
    seen: Token
    ran: Token
    epoch: str
    expected_ms: int
    tolerance_ms: int
    quarantined: bool
    schedule: str
    tick_floor_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Give a lease back; only ever after the tree is gone. Answer: `LeaseReleased`.

    Attributes:
        next_node: Who should have it next, "" for anybody.
        hint_ms: How long the others leave it to `next_node`.
        keep_note_ms: How long the note "released cleanly" is kept.
    """

    job: JobName
    key: str
    value: LeaseValue
    epoch: str
    next_node: str
    hint_ms: int
    keep_note_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class ClaimTick:
    """Claim a start before it is made; at most one claim of it ever succeeds.

    A claim is repeated with the same words when its answer was lost, and then succeeds again while its run is open.
    Of a scheduled start (`order_ms` and `instead` are nothing) the tick must be newer than the newest settled one.
    Answer: `TickClaimed` or `TickRefused`.

    Attributes:
        tick_ms: The tick, milliseconds since 1970; of an ordered start without a tick that of the order.
        mark: JSON text of the `OpenRun` that is kept until its end is recorded.
        ahead_ms: How far ahead of the server's clock a tick may lie.
        order_ms: An ordered start: must be newer than the newest order that was obeyed. 0: it was not ordered.
        instead: Another attempt: the run whose place it takes, which is open no more. "": it is the first.
    """

    job: JobName
    key: str
    value: LeaseValue
    tick_ms: int
    run: RunId
    mark: str
    ahead_ms: int
    asked_at: float
    order_ms: int = 0
    instead: str = ""


@dataclass(frozen=True, slots=True)
class SettleTicks:
    """Say that ticks (or an order) do not run, and why: they are settled, counted and recorded in one.

    Ticks that are settled already are neither counted nor recorded again. Fenced by the lease.
    Answer: `TicksSettled`, or `TickRefused` with `lost` or `ahead`.

    Attributes:
        until_ms: All ticks up to here are settled.
        count: How many of them were not settled before.
        what: skipped | missed | doubt (missed; an entry of the history tells it though the ticks are settled already).
        ahead_ms: How far ahead of the server's clock `until_ms` may lie.
        entry: Id of the entry in the history.
        record: JSON text of that entry.
        keep, keep_bytes: How much history is kept.
        order_ms: Not ticks but this order is settled (`until_ms` and `count` are 0); 0: it is about ticks.
    """

    job: JobName
    key: str
    value: LeaseValue
    until_ms: int
    count: int
    what: str
    entry: str
    record: str
    keep: int
    keep_bytes: int
    ahead_ms: int
    asked_at: float
    order_ms: int = 0


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Write how a run ended, once per run however often it is repeated. Answer: `RunRecorded`.

    As "the last run" it is fenced by its token: an older run never stands there over a newer one.

    Attributes:
        record: JSON text: the `last` object that `status` shows, and the entry of the history.
        keep, keep_bytes: How much history is kept.
        mark: JSON text of the `OpenRun` that stays while another attempt is awaited; "": the run is open no more.
        witness: The node of the run says so itself; a successor's word (`lost`) never stands over that.
        failures: Failed ticks in a row, this one included; None: as they were.
        success_of: Names of job instances that run after its success: they are nudged, and can look it up. None of
            them for a run that did not succeed.
    """

    job: JobName
    key: str
    token: Token
    run: RunId
    record: str
    asked_at: float
    keep: int = 100
    keep_bytes: int = 65_536
    mark: str = ""
    witness: bool = True
    failures: int | None = None
    success_of: tuple[JobName, ...] = ()


@dataclass(frozen=True, slots=True)
class LookAtSuccesses:
    """Read when another job succeeded. Answer: `SuccessesSeen`.

    Attributes:
        job: Who wants to know.
        key: The lease key of the job that is waited for.
        after_ms: Only what is newer.
    """

    job: JobName
    key: str
    after_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class GiveOrder:
    """Give a standing order for a job in the node's own name (its `at_ms` is the server's). Answer: `OrderGiven`."""

    job: JobName
    intent: Intent
    asked_at: float


@dataclass(frozen=True, slots=True)
class ForgetTrigger:
    """Take away an order that was obeyed or refused. Answer: `TriggerForgotten`."""

    order_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class PublishState:
    """Show the holder's view of a job to everybody. Fenced by the lease. Answer: `StatePublished`.

    Attributes:
        state: JSON text, at most a few hundred bytes.
    """

    job: JobName
    key: str
    value: LeaseValue
    state: str
    asked_at: float


@dataclass(frozen=True, slots=True)
class KeepMembership:
    """Say that this node lives and learn who else does. Answer: `MembersSeen` or `NameRefused`.

    Attributes:
        state_id: Identity of the state directory: a restart of the same node is told from a stranger.
        info: JSON text: host, pid, version, tags, jobs {instance: lease key}.
        intents_known: Version of the intents we know; newer ones are sent along.
    """

    node: NodeName
    incarnation: str
    state_id: str
    ttl_ms: int
    info: str
    intents_known: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class LeaveCluster:
    """Take this node out of the membership. Answer: `ClusterLeft`."""

    node: NodeName
    incarnation: str
    asked_at: float


@dataclass(frozen=True, slots=True)
class RestoreIntents:
    """Put the known intents back after the store lost them; never over newer ones. Answer: `IntentsRestored`."""

    version: int
    intents: Mapping[JobName, "Intent"]
    asked_at: float


StoreRequest = (
    MeetServer
    | LookAtLease
    | RenewLease
    | AcquireLease
    | ReleaseLease
    | ClaimTick
    | SettleTicks
    | RecordRun
    | LookAtSuccesses
    | GiveOrder
    | ForgetTrigger
    | PublishState
    | KeepMembership
    | LeaveCluster
    | RestoreIntents
)
