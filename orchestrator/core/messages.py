"""The vocabulary: what the core is told (events) and what it orders (actions).

Everything here is frozen data. Units: `_s` float seconds, `_ms` int milliseconds (only where Redis
is spoken to), `_at` an instant on the boot clock (CLOCK_BOOTTIME, seconds), `_utc` seconds since 1970.
`asked_at` is always read BEFORE a request is written: whatever the server did, it did later, so a
deadline counted from it can only be too early, never too late (notes on leases: "deadline from the
reply" is the classic mistake).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

JobName = NewType("JobName", str)
"""Name of one job instance: `beat`, or `worker.1` for the second of several."""
NodeName = NewType("NodeName", str)
RunId = NewType("RunId", str)
Token = NewType("Token", int)
"""Fencing token: strictly greater for each new holder of a lease; 13 digits, a server time in ms."""
Bucket = NewType("Bucket", int)
"""Which of the 16 hash tags a lease key lives under; one Redis server answers for a whole bucket."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Both clocks, read together.

    Attributes:
        boot: CLOCK_BOOTTIME in seconds; for deadlines. It goes on while the machine is suspended.
        utc: Seconds since 1970; for schedules and for people. It may be set at any time.
    """

    boot: float
    utc: float


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Until when a run may live by its lease, on the boot clock.

    Attributes:
        term_at: SIGTERM to the tree, if nothing moved this by then.
        kill_at: SIGKILL to the tree, again and again until nothing is left.
    """

    term_at: float
    kill_at: float


@dataclass(frozen=True, slots=True)
class LeaseValue:
    """What stands under a lease key: `token|node|incarnation`."""

    token: Token
    node: NodeName
    incarnation: str

    def __str__(self) -> str:
        """Return the value as it is stored."""
        return f"{self.token}|{self.node}|{self.incarnation}"


def parse_lease_value(text: str) -> LeaseValue | None:
    """Read a stored lease value; None for anything malformed (it counts as absent)."""
    token, _, rest = text.partition("|")
    node, _, incarnation = rest.rpartition("|")
    if not (token.isascii() and token.isdigit() and len(token) <= MAX_TOKEN_DIGITS and node and incarnation):
        return None
    return LeaseValue(Token(int(token)), NodeName(node), incarnation)


MAX_TOKEN_DIGITS = 15
"""Lua's numbers are doubles: 15 digits are exact, and milliseconds need 13 until the year 2286."""


# --- requests to the store: each is answered by exactly one event ---------------------------------


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
        schedule: Identity of the schedule, "" for a service. A new one moves the tick floor to now.
        utc_ms: What the node's wall clock shows: ticks are its instants, and "now" for the floor is the
            earlier of it and the server's clock, so that a server whose clock is ahead silences nothing.
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
    utc_ms: int
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

# --- what else the shell is told to do -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start one run of a job under a leash.

    Attributes:
        deadlines: From the lease; None for a run without one.
        env: ORCHESTRATOR_* for the child, over what the job's spec says.
    """

    job: JobName
    run: RunId
    token: Token
    deadlines: Deadlines | None
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ExtendRun:
    """Move a run's deadlines; they only ever move later."""

    run: RunId
    deadlines: Deadlines


@dataclass(frozen=True, slots=True)
class StopRun:
    """Stop a run in order: the stop signal, then SIGKILL after the grace. A repeated one may shorten the grace."""

    run: RunId
    grace_s: float
    why: str


@dataclass(frozen=True, slots=True)
class KillRun:
    """SIGKILL a run's whole tree now."""

    run: RunId
    why: str


@dataclass(frozen=True, slots=True)
class RememberToken:
    """Keep the highest token seen for a job in the state directory (the floor of the next acquire)."""

    job: JobName
    token: Token


@dataclass(frozen=True, slots=True)
class Say:
    """Log one line; the message is an event name, the facts are fields."""

    event: str
    fields: Mapping[str, object] = field(default_factory=dict)
    level: str = "info"


@dataclass(frozen=True, slots=True)
class QuitNode:
    """The node is done: everything is stopped and released, or its name is refused.

    Attributes:
        problem: Why it had to, "" after an ordered end.
    """

    problem: str = ""


Action = StoreRequest | StartRun | ExtendRun | StopRun | KillRun | RememberToken | Say | QuitNode

# --- events: answers of the store ----------------------------------------------------------------


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
        last_tick_ms: The newest tick ever claimed (or the floor), 0 for a service.
    """

    job: JobName
    token: Token
    server_ms: int
    adopted: bool
    last_tick_ms: int
    asked_at: float


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
    """The tick is ours to run."""

    job: JobName
    token: Token
    tick_ms: int
    run: RunId
    asked_at: float


@dataclass(frozen=True, slots=True)
class TickRefused:
    """The tick may not run here.

    Attributes:
        reason: duplicate (this or a newer one was claimed) | ahead (of the server's clock) | lost (lease not ours).
        last_tick_ms: The newest claimed tick, for `duplicate`.
    """

    job: JobName
    token: Token
    tick_ms: int
    reason: str
    last_tick_ms: int
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
class Member:
    """One live node.

    Attributes:
        since_ms: Server time at which this incarnation joined; ties are broken by name.
        info: What it said of itself, parsed JSON: host, pid, version, tags, jobs {instance: lease key}.
    """

    name: NodeName
    incarnation: str
    since_ms: int
    info: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Intent:
    """A standing order for one job: it survives restarts and failovers.

    Attributes:
        want: stopped | running.
        who: Login and host of the one who said so.
        why: In their words, "" if they gave none.
        at_ms: Server time of the order.
    """

    want: str
    who: str
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """Who lives, and what is ordered.

    Attributes:
        intents: None: nothing newer than what was known.
        intents_version: 0: the store knows of no intent at all.
    """

    members: tuple[Member, ...]
    intents: Mapping[JobName, Intent] | None
    intents_version: int
    server_ms: int
    asked_at: float


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
    | RunRecorded
    | StatePublished
    | MembersSeen
    | NameRefused
    | ClusterLeft
    | IntentsRestored
    | StoreSilent
)

# --- events: runs, people, nudges ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The command runs.

    Attributes:
        pid: Of its first process.
    """

    job: JobName
    run: RunId
    pid: int


@dataclass(frozen=True, slots=True)
class RunStuck:
    """Something of a run cannot be killed; the leash keeps trying and the lease is never released meanwhile."""

    job: JobName
    run: RunId
    pids: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class RunUnproven:
    """The leash is gone or does not answer: whether the tree still lives is not known yet."""

    job: JobName
    run: RunId
    why: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The whole tree is gone, and there is proof of it.

    Attributes:
        exit_code: Of the first process; None if a signal ended it or it never started.
        signal: What ended it, 0 if it exited by itself.
        error: Why it could not start, in one clause; "" if it did.
        cause: exit | stop | deadline | killed | abandoned (main was gone) | unproven (the leash died).
        elapsed_s: From exec to the end of the tree.
    """

    job: JobName
    run: RunId
    exit_code: int | None
    signal: int
    error: str
    cause: str
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Nudged:
    """Something changed in the store: look now instead of at the next beat."""

    job: JobName | None


@dataclass(frozen=True, slots=True)
class LeaveOrdered:
    """This node is to stop everything and go.

    Attributes:
        urgency: 0: every job's own stop timeout; 1: the step-down grace; 2: kill.
    """

    urgency: int


Event = StoreAnswer | RunStarted | RunStuck | RunUnproven | RunEnded | Nudged | LeaveOrdered
