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
    """Claim a tick before its run starts; at most one claim of a tick ever succeeds.

    A repeated claim by the same run of the same token succeeds again (its first answer was lost).
    Answer: `TickClaimed` or `TickRefused`.

    Attributes:
        tick_ms: The tick, milliseconds since 1970.
        ahead_ms: How far ahead of the server's clock a tick may lie.
    """

    job: JobName
    key: str
    value: LeaseValue
    tick_ms: int
    run: RunId
    ahead_ms: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Write how the last run ended. Fenced by its token: an older run never overwrites a newer one.

    Answer: `RunRecorded`.

    Attributes:
        record: JSON text of the `last` object that `status` shows.
    """

    job: JobName
    key: str
    token: Token
    run: RunId
    record: str
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
    | RecordRun
    | PublishState
    | KeepMembership
    | LeaveCluster
    | RestoreIntents
)
