"""What happened, and whether it may have: the checker of the simulation.

Fed as things happen, in true time (which no node knows). It knows nothing of how the nodes decide.

Of runs:
1. No two runs of one job execute at the same true instant. A run that a suspended machine wakes up with
   is given `thaw_s`: no software on that machine can act before it runs again.
2. Tokens of starts never fall, and another node's start has a greater one.
3. Nothing starts without a grant of that very token to that very node.
4. No run executes past its `kill_at` by more than the margin and the kill time, on its machine's own clock.

Of leases, at the server:
5. A lease is granted only when no run of an earlier grant executes any more.
6. A late call brings no lease back to life: not a released one, not one with a newer token, not one whose
   ttl is over. (A server that lost its memory is not held to what it forgot; see `forgot`.)

Of ticks:
7. No start is made twice, of a tick, of another attempt at it, or of an order (but see `forgot`); attempts at a tick
   come one after the other, and are not more than the file permits.
8. A holder goes on to the next tick only when the claimed one was started or said to be lost.
9. No tick is passed over without a word: at the server, what is claimed is the very next tick, and what is settled
   are exactly the ticks since the last one. So ran + skipped + missed are all ticks.

With `limit_s` two runs at once are measured and not forbidden: each may last as long as it says.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from orchestrator.core.answers import (
    LeaseGranted,
    LeaseReleased,
    LeaseRenewed,
    StoreAnswer,
    TickClaimed,
    TicksSettled,
)
from orchestrator.core.messages import Say
from orchestrator.core.nouns import JobName, NodeName, RunId, Token
from orchestrator.core.requests import (
    AcquireLease,
    ClaimTick,
    ReleaseLease,
    RenewLease,
    SettleTicks,
    StoreRequest,
)
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.timing import LeaseTiming

LONG_AGO = -1e9


class Violation(AssertionError):  # noqa: N818 - it is a broken promise, not an error of the simulation
    """A promise was broken; the message says which, when and by whom."""


@dataclass(slots=True, eq=False)
class Execution:
    """One run of a job on a node, under a token, from a true instant on."""

    job: JobName
    run: RunId
    node: NodeName
    token: Token
    since: float
    thawed_at: float = LONG_AGO


@dataclass(slots=True, eq=False)
class Overlap:
    """Two runs of one job that executed at once."""

    older: Execution
    newer: Execution
    since: float


@dataclass(slots=True)
class Claimed:
    """The newest claimed tick of a job."""

    tick_ms: int
    token: Token


LimitS = Callable[[Overlap], float]


class History:
    """The checker's state.

    Attributes:
        thaw_s: How long a thawed machine may take to end what must not execute any more.
        starts: Runs that began to execute.
        ticks: Ticks that were started, by job and instant.
        overlaps: How long each overlap lasted, where they are measured.
        has_forgotten: The server lost its memory once.
    """

    def __init__(
        self, timing: LeaseTiming, period_s: float = 0.0, limit_s: LimitS | None = None, attempts: int = 1
    ) -> None:
        """Begin with nothing.

        Args:
            timing: Of every lease.
            period_s: Of the cron job's ticks; 0: rule 9 is not checked.
            attempts: How many starts of one tick are permitted.
            limit_s: How long an overlap may last; None: there must be none.
        """
        self.thaw_s = timing.margin_s + timing.kill_time_s + 0.05
        self.starts = 0
        self.ticks: set[tuple[JobName, str]] = set()
        self.overlaps: list[float] = []
        self.has_forgotten = False
        self._overdue_s = timing.margin_s + timing.kill_time_s + 0.001
        self._ttl_s = timing.ttl_s * (1 + timing.clock_rate_error)
        self._period_ms = round(1000 * period_s)
        self._limit_s = limit_s
        self._attempts = attempts
        self._open: list[Overlap] = []
        self._executing: dict[JobName, list[Execution]] = {}
        self._newest: dict[JobName, tuple[Token, NodeName]] = {}
        self._grants: set[tuple[JobName, Token, NodeName]] = set()
        self._granted: dict[JobName, Token] = {}
        self._released: set[tuple[JobName, Token]] = set()
        self._alive_until: dict[tuple[JobName, Token], float] = {}
        self._claimed: dict[JobName, Claimed] = {}
        self._settled_ms: dict[JobName, int] = {}
        self._runs: set[tuple[JobName, RunId]] = set()
        self._unknown_to: set[tuple[NodeName, JobName, RunId]] = set()
        self._tried: set[tuple[JobName, str]] = set()

    # --- runs -------------------------------------------------------------------------------------

    def tried(self, tick: str | None, job: JobName) -> None:
        """A run was ordered, whether or not it still may execute."""
        if tick is not None:
            self._tried.add((job, tick))

    def started(self, execution: Execution, tick: str | None, at: float) -> None:
        """A run begins to execute."""
        job, token, node = execution.job, execution.token, execution.node
        self.starts += 1
        newest, holder = self._newest.get(job, (Token(0), node))
        if token < newest or (token == newest and holder != node):
            raise Violation(f"{at:.3f} {job}: started on {node} with token {token} after {newest} on {holder}")
        if (job, token, node) not in self._grants:
            raise Violation(f"{at:.3f} {job}: started on {node} with token {token}, which it was never granted")
        self._newest[job] = (token, node)
        if (job, execution.run) in self._runs and (node, job, execution.run) not in self._unknown_to:
            raise Violation(f"{at:.3f} {job}: {execution.run} started twice, now on {node}")
        self._runs.add((job, execution.run))
        if tick is not None:
            self.ticks.add((job, tick))
            _, _, attempt = execution.run.rpartition("Z.")
            if attempt.isdigit() and int(attempt) > self._attempts:
                raise Violation(f"{at:.3f} {job}: {execution.run} is more than {self._attempts} attempts")
        self._executing.setdefault(job, []).append(execution)
        self.check(job, at)

    def ended(self, execution: Execution, at: float, overdue_s: float) -> None:
        """Its tree is gone, so long after its `kill_at`."""
        self.suspended(execution, at)
        if overdue_s > self._overdue_s and at - execution.thawed_at > self.thaw_s:
            raise Violation(f"{at:.3f} {execution.job}: {execution.run} executed {overdue_s:.3f} s past its kill_at")

    def suspended(self, execution: Execution, at: float) -> None:
        """Its machine froze: it executes no more, for now."""
        runs = self._executing.get(execution.job, [])
        if execution in runs:
            runs.remove(execution)
        for overlap in [o for o in self._open if execution in (o.older, o.newer)]:
            self._close(overlap, at)

    def thawed(self, execution: Execution, at: float) -> None:
        """A suspended machine runs again, and the run with it."""
        execution.thawed_at = at
        self._executing.setdefault(execution.job, []).append(execution)

    def runs(self, job: JobName) -> int:
        """Return how many runs of a job execute now."""
        return len(self._executing.get(job, []))

    def check(self, job: JobName, at: float) -> None:
        """No two runs of a job execute, but for what a thaw excuses (rule 1)."""
        settled = self._settled(job, at)
        if len(settled) < 2:
            return
        if self._limit_s is None:
            raise Violation(f"{at:.3f} {job}: executes {len(settled)} times: {_listed(settled)}")
        newer = max(settled, key=lambda run: run.since)
        for older in settled:
            if older is not newer and not any(o.older is older and o.newer is newer for o in self._open):
                self._open.append(Overlap(older, newer, at))

    def finish(self, at: float) -> None:
        """Measure what still overlaps at the end of the story."""
        for overlap in list(self._open):
            self._close(overlap, at)

    def _settled(self, job: JobName, at: float) -> list[Execution]:
        return [run for run in self._executing.get(job, []) if at - run.thawed_at > self.thaw_s]

    def _close(self, overlap: Overlap, at: float) -> None:
        self._open.remove(overlap)
        length_s = at - overlap.since
        self.overlaps.append(length_s)
        limit_s = self._limit_s(overlap) if self._limit_s is not None else 0.0
        if length_s > limit_s:
            who = _listed([overlap.older, overlap.newer])
            raise Violation(
                f"{at:.3f} {overlap.older.job}: executed twice for {length_s:.3f} s, limit {limit_s:.3f}: {who}"
            )

    # --- the server -------------------------------------------------------------------------------

    def witness(self, request: StoreRequest, answer: StoreAnswer, at: float) -> None:
        """A request was carried out at the server."""
        match answer, request:
            case LeaseRenewed(), RenewLease():
                self._renewed(request, answer, at)
            case LeaseGranted(), AcquireLease():
                self._grant(request, answer, at)
            case LeaseReleased(was_ours=True), ReleaseLease():
                self._released.add((request.job, request.value.token))
            case TickClaimed(), ClaimTick():
                self._claim(request, at)
            case TicksSettled(), SettleTicks():
                self._settle(request, at)
            case _:
                pass

    def forgot(self, cut_off: Collection[NodeName] = ()) -> None:
        """The server lost its memory: it is not held to what it knew before.

        A node that was cut off at that moment cannot know when it happened, nor what was claimed since its
        own last contact: that it may run such a tick again is a known limit.
        """
        self.clock_stepped()
        self.has_forgotten = True
        self._released.clear()
        self._granted.clear()
        self._settled_ms.clear()
        self._unknown_to |= {(node, *started) for node in cut_off for started in self._runs}

    def clock_stepped(self) -> None:
        """The server's clock was set: its leases end at other instants."""
        self._alive_until.clear()

    def said(self, saying: Say) -> None:
        """A node said something of a tick."""
        if saying.event == "tick.lost" and "tick" in saying.fields:
            self._tried.add((JobName(str(saying.fields["job"])), str(saying.fields["tick"])))

    def settled(self, job: JobName, settled_ms: int) -> None:
        """The server says up to where ticks are settled."""
        self._settled_ms[job] = settled_ms

    def ticks_between(self, after_ms: int, until_ms: int) -> int:
        """Return how many ticks of the cron lie in (after, until]."""
        return until_ms // self._period_ms - after_ms // self._period_ms if self._period_ms else 0

    def _grant(self, ask: AcquireLease, granted: LeaseGranted, at: float) -> None:
        job, token = ask.job, granted.token
        earlier = [run for run in self._settled(job, at) if (run.token, run.node) != (token, ask.node)]
        if earlier and self._limit_s is None:
            raise Violation(f"{at:.3f} {job}: token {token} granted to {ask.node} while it runs: {_listed(earlier)}")
        self._grants.add((job, token, ask.node))
        known_ms = self._settled_ms.get(job, granted.last_tick_ms)
        if granted.last_tick_ms < known_ms:
            raise Violation(f"{at:.3f} {job}: granted with ticks settled up to {granted.last_tick_ms}, not {known_ms}")
        if not self.has_forgotten or job in self._settled_ms:
            self._settled_ms[job] = granted.last_tick_ms  # after a loss nodes know better than the server, if at all
        self._granted[job] = max(token, self._granted.get(job, token))
        self._alive_until[job, token] = at + self._ttl_s

    def _renewed(self, ask: RenewLease, renewed: LeaseRenewed, at: float) -> None:
        lease = ask.job, renewed.token
        if renewed.put_back:
            why = ""
            if lease in self._released:
                why = "it was released"
            elif self._granted.get(ask.job, renewed.token) > renewed.token:
                why = f"token {self._granted[ask.job]} was issued"
            elif at > self._alive_until.get(lease, at):
                why = f"it ended {at - self._alive_until[lease]:.3f} s ago"
            if why:
                raise Violation(f"{at:.3f} {ask.job}: {ask.value} stands again, though {why}")
        self._alive_until[lease] = at + self._ttl_s

    def _claim(self, ask: ClaimTick, at: float) -> None:
        job, token = ask.job, ask.value.token
        last = self._claimed.get(job)
        newest_ms = max(self._settled_ms.get(job, 0), last.tick_ms if last is not None else 0)
        if ask.order_ms or ask.instead or ask.tick_ms <= newest_ms:
            return  # no tick of the schedule, a repeated claim, or one that comes late to a server that forgot
        passed_over = self.ticks_between(self._settled_ms.get(job, ask.tick_ms - 1), ask.tick_ms - 1)
        if passed_over:
            raise Violation(f"{at:.3f} {job}: {passed_over} ticks before {iso_utc(ask.tick_ms / 1000)} passed over")
        self._claimed[job] = Claimed(ask.tick_ms, token)
        self._settled_ms[job] = ask.tick_ms
        tick = iso_utc(last.tick_ms / 1000) if last is not None else ""
        if last is not None and last.token == token and (job, tick) not in self._tried:
            raise Violation(f"{at:.3f} {job}: {ask.value.node} went on to a newer tick without a word about {tick}")

    def _settle(self, ask: SettleTicks, at: float) -> None:
        known_ms = self._settled_ms.get(ask.job)
        last = self._claimed.get(ask.job)
        if ask.until_ms <= max(known_ms or 0, last.tick_ms if last is not None else 0):
            return  # repeated, or late to a server that forgot
        self._settled_ms[ask.job] = ask.until_ms
        if known_ms is not None and ask.count != (due := self.ticks_between(known_ms, ask.until_ms)):
            raise Violation(f"{at:.3f} {ask.job}: {ask.count} ticks {ask.what} of {due}: {ask.record}")


def _listed(runs: list[Execution]) -> str:
    return ", ".join(f"{run.run} on {run.node} token {run.token} since {run.since:.3f}" for run in runs)
