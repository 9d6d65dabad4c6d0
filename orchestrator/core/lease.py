"""One lease as one node sees it: who holds it, until when, and when to ask for it.

                    ask                    granted                 release
      STANDBY ────────────────▶ ASKING ────────────────▶ HELD ────────────────▶ RELEASING
         ▲   ◀── refused, silent ──┘                      │                         │
         ├──────────── lost, or its end passed ───────────┘                         │
         └──────────────────────────── released, silent ────────────────────────────┘

Rules of this file (each has a mutant in `tests/simulation/mutants.py` that breaks it and is caught):
1. The end is counted from `asked_at`, which was read before the request was written, on the boot clock.
2. An answer moves an end only later, and only for the token it names.
3. A standby remembers until when a foreign lease must live; an absent key before that is no invitation.
   What it remembers of one lease value never moves earlier.
4. A token that this incarnation already ran or released is never adopted again: a new one is issued.
5. A vanished key is put back by its holder only before the holder's own end (`not_after_ms`).
6. After a grant, a release or a silence nothing is assumed: the next look tells.
"""

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.core.answers import LeaseGranted, LeaseRefused, LeaseRenewed, LeaseSeen, RenewalLate
from orchestrator.core.nouns import Deadlines, JobName, LeaseValue, Moment, NodeName, Token
from orchestrator.core.requests import AcquireLease, LookAtLease, ReleaseLease, RenewLease
from orchestrator.core.server import Server
from orchestrator.core.spec import JobSpec, OnRedisLoss
from orchestrator.errors import InvariantError

WAKE_AFTER_END_S = 0.002
"""Redis ends a key in the millisecond after its ttl; asking in the very same one would be refused."""

RANK_STAGGER_S = 0.02
"""How much later each less preferred node asks: ten round trips on a local network."""

HINT_MS = 2000
"""How long the others leave a released lease to the node it was handed to."""

NEVER = float("inf")


class Phase(StrEnum):
    """Where a lease is in the picture above."""

    STANDBY = "standby"
    ASKING = "asking"
    HELD = "held"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class Memory:
    """A foreign lease that was seen, and until when it must live by our own clock."""

    value: LeaseValue
    until: float


class Lease:
    """The state of one lease on one node.

    Attributes:
        value: What we hold, None while we do not.
        renewed_at: `asked_at` of the newest good answer.
        ask_at: When to ask next, NEVER while there is nothing to ask for.
        ran: The highest token this incarnation ran or released.
        others_until: Until when another node may have held it, by our own clock.
        begun_at: Since when this node has the job as it is: it is new here, or was edited.
        rank: 0 for the preferred node; each rank asks a little later.
        floor: The highest token ever seen for this job.
        memory: The foreign lease seen last.
        refusal: Why the last ask was refused, for people.
    """

    __slots__ = (
        "_node", "_spec", "ask_at", "begun_at", "floor", "incarnation", "longest_ttl_s", "memory", "not_after_ms",
        "others_until", "phase", "ran", "rank", "refusal", "renewed_at", "timing", "value",
    )  # fmt: skip

    def __init__(self, spec: JobSpec, *, node: NodeName, incarnation: str, floor: Token) -> None:
        """Begin as a standby that has seen nothing yet."""
        self._spec = spec
        self._node = node
        self.ran = Token(0)
        self.others_until = self.begun_at = 0.0
        self.incarnation = incarnation
        self.timing = spec.lease
        self.longest_ttl_s = spec.lease.ttl_s
        self.phase = Phase.STANDBY
        self.value: LeaseValue | None = None
        self.renewed_at = 0.0
        self.not_after_ms = 0
        self.ask_at = NEVER
        self.rank = 0
        self.floor = floor
        self.memory: Memory | None = None
        self.refusal = ""

    @property
    def job(self) -> JobName:
        """The job instance it belongs to."""
        return self._spec.name

    # --- what the holder may still do -----------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether it is ours as far as we know."""
        return self.phase is Phase.HELD

    def holds(self, token: Token) -> bool:
        """Whether it is ours under this very token."""
        return self.held and self.value is not None and self.value.token == token

    def ends_at(self) -> float:
        """Return the instant from which it must be taken for lost (rule 1); NEVER under `on_redis_loss: keep`."""
        if self._spec.on_redis_loss is OnRedisLoss.KEEP:
            return NEVER
        return self.timing.ends_at(self.renewed_at)

    def deadlines(self) -> Deadlines | None:
        """Return until when a run may live by this lease; None under `on_redis_loss: keep`."""
        if self._spec.on_redis_loss is OnRedisLoss.KEEP:
            return None
        grace_s = 0.0 if self._spec.on_redis_loss is OnRedisLoss.KILL else None
        return self.timing.deadlines(self.renewed_at, grace_s)

    def may_start(self, now_boot: float) -> bool:
        """Say whether a run started now would have any time at all (a slow answer may have used it up)."""
        deadlines = self.deadlines()
        return self.held and (deadlines is None or now_boot < deadlines.term_at)

    # --- what is asked of the store -------------------------------------------------------------

    def beat(self, now_boot: float) -> RenewLease | LookAtLease | None:
        """Return this lease's share of a heartbeat; None while an ask or a release is under way."""
        if self.phase is Phase.HELD and self.value is not None:
            return self._renewal(self.value, now_boot)
        if self.phase is Phase.STANDBY:
            return LookAtLease(self.job, self._spec.key, asked_at=now_boot)
        return None

    def ask(self, now: Moment, server: Server) -> AcquireLease:
        """Ask for it; one ask at a time."""
        now_boot = now.boot
        self.phase = Phase.ASKING
        self.ask_at = NEVER
        with_its_memory = server.ended_with_its_memory(self.others_until, self.longest_ttl_s)
        others_until = 0.0 if with_its_memory else self.others_until
        return AcquireLease(
            job=self.job,
            key=self._spec.key,
            node=self._node,
            incarnation=self.incarnation,
            ttl_ms=self.timing.ttl_ms,
            longest_ttl_ms=round(self.longest_ttl_s * 1000),
            floor=self.floor,
            seen=self.memory.value.token if self.memory and now_boot < self.memory.until else Token(0),
            ran=self.ran,
            epoch=server.epoch,
            expected_ms=server.expected_ms(now_boot),
            tolerance_ms=server.tolerance_ms(now_boot),
            quarantined=server.quarantined(now_boot),
            schedule=self._spec.schedule.identity if self._spec.schedule else "",
            tick_floor_ms=server.known_since_ms(now, at_least=max(self.begun_at, others_until)),
            asked_at=now_boot,
        )

    def release(self, now_boot: float, server: Server, *, next_node: str = "") -> ReleaseLease:
        """Give it back; only to be called when no process of any of its runs is left."""
        if self.value is None:
            raise InvariantError(f"{self.job}: release of a lease that is not held")
        self.phase = Phase.RELEASING
        return ReleaseLease(
            job=self.job,
            key=self._spec.key,
            value=self.value,
            epoch=server.epoch,
            next_node=next_node,
            hint_ms=HINT_MS,
            keep_note_ms=max(60_000, round(3000 * self.longest_ttl_s)),
            asked_at=now_boot,
        )

    def _renewal(self, value: LeaseValue, now_boot: float) -> RenewLease:
        return RenewLease(self.job, self._spec.key, value, self.timing.ttl_ms, self.not_after_ms, asked_at=now_boot)

    # --- what the store answered ----------------------------------------------------------------

    def on_granted(self, granted: LeaseGranted) -> None:
        """Hold it (rule 4: from now on this token counts as run)."""
        self.phase = Phase.HELD
        self.value = LeaseValue(granted.token, self._node, self.incarnation)
        self.renewed_at = granted.asked_at
        self.not_after_ms = granted.server_ms + self.timing.ttl_ms
        self.ran = max(self.ran, granted.token)
        self.floor = max(self.floor, granted.token)
        self.memory = None
        self.ask_at = NEVER
        self.refusal = ""

    def on_refused(self, refused: LeaseRefused, now_boot: float, server: Server) -> None:
        """Stand by, and know when asking again makes sense."""
        self.phase = Phase.STANDBY
        self.refusal = refused.reason
        wait_s = refused.wait_ms / 1000 * (1 + self.timing.clock_rate_error)
        match refused.reason:
            case "held" if refused.value is not None:
                self._remember(refused.value, refused.wait_ms, now_boot)
            case "vanished" if self.memory is not None:
                self.ask_at = self._staggered(self.memory.until)
            case "quarantine":
                self.ask_at = self._staggered(server.quarantine_until)
            case "hint" | "young":
                self.ask_at = self._staggered(now_boot + wait_s)
            case _:  # epoch, clock: the next beat's meeting has to come first
                self.ask_at = NEVER

    def on_seen(self, seen: LeaseSeen, now_boot: float) -> None:
        """Learn from a look; only a standby looks, and an answer to an older look changes nothing."""
        if self.phase is not Phase.STANDBY:
            return
        if seen.value is None or seen.left_ms < 0 or self._is_ours(seen.value):
            # Absent, without an expiry (asking gives it one), or a grant whose answer was lost. Ask even while
            # the memory holds: the store alone knows whether it was released cleanly.
            self.ask_at = min(self.ask_at, now_boot + self.rank * RANK_STAGGER_S)
        else:
            self._remember(seen.value, seen.left_ms, now_boot)

    def on_renewed(self, renewed: LeaseRenewed) -> bool:
        """Move the end; False if the answer is old news (rule 2)."""
        if not self.holds(renewed.token) or renewed.asked_at <= self.renewed_at:
            return False
        self.renewed_at = renewed.asked_at
        self.not_after_ms = renewed.server_ms + self.timing.ttl_ms
        return True

    def on_late(self, late: RenewalLate, now_boot: float) -> RenewLease | None:
        """Ask again to have a vanished key put back, if by our own clock the lease still lives.

        The server called the request late, but its answer is here in time: the server's clock was set
        forward. The new limit is our own end, told in the server's time (rule 5).
        """
        deadlines = self.deadlines()
        if not self.holds(late.token) or self.value is None or deadlines is None or now_boot >= deadlines.kill_at:
            return None
        self.not_after_ms = late.server_ms + round(1000 * (self.ends_at() - now_boot))
        return self._renewal(self.value, now_boot)

    def on_nudged(self, now_boot: float) -> None:
        """Ask soon: something was released."""
        if self.phase is Phase.STANDBY:
            self.ask_at = min(self.ask_at, now_boot + self.rank * RANK_STAGGER_S)

    def lose(self) -> None:
        """Stand by: it is lost, released, or its end has passed."""
        self.phase = Phase.STANDBY
        self.value = None
        self.ask_at = NEVER

    def on_ask_unanswered(self) -> None:
        """Stand by after a silent ask; whether it was granted the next look tells (rule 6)."""
        self.phase = Phase.STANDBY
        self.ask_at = NEVER

    # --- another definition -------------------------------------------------------------------------

    def redefine(self, spec: JobSpec) -> None:
        """Go on under a definition whose lease is the same: neither key nor numbers differ."""
        self._spec = spec

    def inherit(self, old: "Lease") -> None:
        """Know what an earlier lease of this job on this node knew under the same key (rules 3 and 4)."""
        self.ran = max(self.ran, old.ran)
        self.others_until = max(self.others_until, old.others_until)
        self.begun_at = max(self.begun_at, old.begun_at)
        self.floor = max(self.floor, old.floor)
        self.longest_ttl_s = max(self.longest_ttl_s, old.longest_ttl_s)
        self.memory = old.memory
        self.ask_at = self._staggered(old.memory.until) if old.memory else NEVER

    # --- inside ---------------------------------------------------------------------------------

    def _is_ours(self, value: LeaseValue) -> bool:
        return value.node == self._node and value.incarnation == self.incarnation

    def _remember(self, value: LeaseValue, left_ms: int, now_boot: float) -> None:
        left_s = max(left_ms, 0) / 1000
        self.longest_ttl_s = max(self.longest_ttl_s, left_s)
        until = now_boot + left_s * (1 + self.timing.clock_rate_error)
        if self.memory is not None and value.token <= self.memory.value.token:
            until = max(until, self.memory.until)  # rule 3; a lower token is a stale replica's, and frees nothing
            value = self.memory.value
        self.memory = Memory(value, until)
        self.others_until = max(self.others_until, until)
        self.floor = max(self.floor, value.token)
        self.ask_at = self._staggered(until)

    def _staggered(self, at: float) -> float:
        return at + WAKE_AFTER_END_S + self.rank * RANK_STAGGER_S
