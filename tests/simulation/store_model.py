"""What the store's scripts do, in Python over one dict: what a simulation talks to instead of a server.

It knows no clock (`server_ms` comes in), no socket and no other node. Rules:
1. One dict from (part, name) to an immutable value, so that a shallow copy is a snapshot (a stale replica).
2. A value with an end is absent from that end on; nothing is swept.
3. Each rule that keeps two holders apart is a method of its own: a subclass switches one off, and the
   simulation must notice.
4. What people may break by hand (types, garbage, lost expiries) is not modelled: tests/store does that on
   a real server. Where the real store answers `StoreSilent`, the simulation's network does.
5. What crons need is in `cron_model.py`.
Held against the real scripts by `tests/store/test_model_agreement.py`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from orchestrator.core.answers import (
    ClusterLeft,
    IntentsRestored,
    LeaseGranted,
    LeaseLost,
    LeaseRefused,
    LeaseReleased,
    LeaseRenewed,
    LeaseSeen,
    MembersSeen,
    NameRefused,
    OrderGiven,
    RenewalLate,
    ServerMet,
    StatePublished,
    StoreAnswer,
    TriggerForgotten,
)
from orchestrator.core.nouns import Intent, JobName, LeaseValue, Member, NodeName, Token, Trigger
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
from orchestrator.core.spec import bucket_of
from tests.simulation.cron_model import CronModel, open_runs
from tests.simulation.stored import NO_NOTE, Head, Held, Key, Note

_bucket_of = lru_cache(maxsize=None)(bucket_of)  # a checksum a call would be a tenth of the model's time

TRIGGER_KEPT_MS = 600_000


class StoreModel(CronModel):
    """One server: `execute` is one script call, done at one instant of its clock."""

    def __init__(self, run_id: str = "run0") -> None:
        """Start empty."""
        super().__init__()
        self.run_id = run_id
        self._epochs = 0
        self._restarts = 0
        self._infos: dict[str, Mapping[str, object]] = {}
        self._doers: dict[type, Callable[[Any, int], StoreAnswer]] = {
            MeetServer: self._meet,
            LookAtLease: self._look,
            RenewLease: self._renew,
            AcquireLease: self._acquire,
            ReleaseLease: self._release,
            ClaimTick: self._claim,
            SettleTicks: self._settle,
            RecordRun: self._record,
            LookAtSuccesses: self._look_at_successes,
            PublishState: self._publish,
            KeepMembership: self._member,
            LeaveCluster: self._leave,
            RestoreIntents: self._restore,
            GiveOrder: self._give_order,
            ForgetTrigger: self._forget_trigger,
        }

    def execute(self, request: StoreRequest, server_ms: int) -> StoreAnswer:
        """Carry a request out at this instant of the server's clock."""
        return self._doers[type(request)](request, server_ms)

    # What befalls a server

    def flush(self) -> None:
        """FLUSHALL: everything is forgotten, the server is the same."""
        self.data.clear()

    def restart(self) -> None:
        """Another process answers, with the same data (flush as well for an empty restart)."""
        self._restarts += 1
        self.run_id = f"{self.run_id.partition('+')[0]}+{self._restarts}"

    def delete(self, name: object, part: str = "lease") -> None:
        """DEL one key by hand: a part of a lease key, or the epoch of a bucket."""
        self.data.pop((part, name), None)

    def snapshot(self) -> dict[Key, Any]:
        """Return what a replica has now."""
        return dict(self.data)

    def restore(self, snapshot: Mapping[Key, Any]) -> None:
        """Promote a replica that has these data: older ones come back. Its run id is its own: see `restart`."""
        self.data = dict(snapshot)

    def order(self, jobs: tuple[JobName, ...], intent: Intent, server_ms: int) -> int:
        """Give a standing order as a client does; return its instant, which is the new version."""
        version, intents = self._intents()
        at_ms = max(server_ms, version + 1)
        orders = {job: replace(intent, at_ms=at_ms, off_ms=self.off_since(intents.get(job))) for job in jobs}
        self.data["intents", ""] = (at_ms, {**intents, **orders})
        return at_ms

    def trigger(self, trigger: Trigger, server_ms: int) -> int:
        """Order one run as a client does; return its instant, which is the new version."""
        version, intents = self._intents()
        order_ms = max(server_ms, version + 1)
        waiting = [known for known in self._triggers() if known.order_ms > server_ms - TRIGGER_KEPT_MS]
        self.data["intents", ""] = (order_ms, intents)
        self.data["triggers", ""] = (*waiting, replace(trigger, order_ms=order_ms))
        return order_ms

    # The rules, each on its own

    def new_token(self, prev: int, now_ms: int, floor: int) -> int:
        """Greater than the last one issued, than every one the node ever saw, and a server time."""
        return max(prev + 1, now_ms, floor + 1)

    def may_adopt(self, token: int, ran: int) -> bool:
        """Our own value is an acquire whose answer was lost, unless we ran or released that token."""
        return token > ran

    def trusts_its_own(self) -> bool:
        """Our own value with a token that we ran may be a stale replica's: it is doubted like an absent one."""
        return False

    def epoch_forbids(self, epoch: str, known: str) -> bool:
        """The caller knows another memory than this server's, or nobody has met this server yet."""
        return epoch != known or not epoch.endswith("|" + self.run_id)

    def clock_forbids(self, now_ms: int, expected_ms: int, tolerance_ms: int) -> bool:
        """The clock stepped, or this call is carried out late."""
        return abs(now_ms - expected_ms) > tolerance_ms

    def quarantine_forbids(self, prev: int, note: Note, epoch: str) -> bool:
        """In quarantine only what was released under this epoch, and not issued again since, may be taken."""
        return not (prev > 0 and note.token == prev and note.epoch == epoch)

    def seen_forbids(self, seen: int, released: int) -> bool:
        """A foreign lease cannot have run out by the caller's own clock and was not released."""
        return seen > released

    def young(self, prev: int, released: int, longest_ttl_ms: int, now_ms: int) -> bool:
        """The last token is younger than a ttl and was not released."""
        return prev > released and prev + longest_ttl_ms > now_ms and prev <= now_ms + 1000

    def put_back_lives(self, alive_ms: int, longest_ttl_ms: int, now_ms: int) -> bool:
        """A lease that vanished and was put back lives as long as that said, however often it vanishes."""
        return now_ms < alive_ms <= now_ms + longest_ttl_ms

    def hint_forbids(self, note: Note, node: str, longest_ttl_ms: int, now_ms: int) -> bool:
        """The lease was left to another node, and the hint is not of another clock."""
        return note.next_node not in ("", node) and now_ms < note.until_ms <= now_ms + longest_ttl_ms

    def newer_was_issued(self, prev: int, token: int) -> bool:
        """A vanished lease is not put back over a newer token."""
        return prev > token

    def was_released(self, released: int, token: int) -> bool:
        """A vanished lease is not put back after its release (the tombstone)."""
        return released >= token

    def past_its_end(self, now_ms: int, not_after_ms: int) -> bool:
        """A vanished lease is not put back by a late renewal."""
        return now_ms > not_after_ms

    def off_since(self, standing: Intent | None) -> int:
        """Tell since when a job is stopped or paused, by the order that stands; 0: it is not."""
        if standing is None or standing.want not in ("stopped", "paused"):
            return 0
        return standing.off_ms or standing.at_ms

    # The scripts

    def _meet(self, ask: MeetServer, now: int) -> StoreAnswer:
        epoch = self.data.get(("epoch", ask.bucket))
        created = epoch is None or not epoch.endswith("|" + self.run_id)
        if created:
            self._epochs += 1
            epoch = f"{now}|{self._epochs}|{self.run_id}"
            self.data["epoch", ask.bucket] = epoch
        return ServerMet(ask.bucket, str(epoch), created, now, ask.asked_at)

    def _look(self, ask: LookAtLease, now: int) -> StoreAnswer:
        held = self._held(ask.key, now)
        if held is None:
            return LeaseSeen(ask.job, None, malformed=False, left_ms=0, asked_at=ask.asked_at)
        return LeaseSeen(ask.job, held.value, malformed=False, left_ms=held.end_ms - now, asked_at=ask.asked_at)

    def _renew(self, ask: RenewLease, now: int) -> StoreAnswer:
        value = ask.value
        token = value.token
        held = self._held(ask.key, now)
        if held is not None:
            if held.value != value:
                why = f"node {held.value.node} holds it with token {held.value.token}"
                return LeaseLost(ask.job, token, why, ask.asked_at)
        else:
            prev = self.data.get(("token", ask.key), 0)
            if self.newer_was_issued(prev, token):
                return LeaseLost(ask.job, token, f"token {prev} was issued", ask.asked_at)
            if self.was_released(self._note(ask.key, now).token, token):
                return LeaseLost(ask.job, token, "it was released", ask.asked_at)
            if self.past_its_end(now, ask.not_after_ms):
                return RenewalLate(ask.job, token, now, ask.asked_at)
            self.data["token", ask.key] = token
            self.data["alive", ask.key] = now + ask.ttl_ms
        self.data["lease", ask.key] = Held(value, now + ask.ttl_ms)
        return LeaseRenewed(ask.job, token, now, put_back=held is None, asked_at=ask.asked_at)

    def _acquire(self, ask: AcquireLease, now: int) -> StoreAnswer:
        epoch = self.data.get(("epoch", _bucket_of(ask.key)), "")
        if self.epoch_forbids(epoch, ask.epoch):
            return LeaseRefused(ask.job, "epoch", None, 0, now, ask.asked_at)
        if self.clock_forbids(now, ask.expected_ms, ask.tolerance_ms):
            return LeaseRefused(ask.job, "clock", None, 0, now, ask.asked_at)
        held = self._held(ask.key, now)
        if held is not None:
            value = held.value
            if value.node != ask.node or value.incarnation != ask.incarnation:
                return LeaseRefused(ask.job, "held", value, held.end_ms - now, now, ask.asked_at)
            if self.may_adopt(value.token, ask.ran):
                return self._grant(ask, value.token, now, adopted=True)
        prev = self.data.get(("token", ask.key), 0)
        reason, wait_ms = self._why_not_free(ask, prev, epoch, now, ours=held is not None)
        if reason:
            return LeaseRefused(ask.job, reason, None, wait_ms, now, ask.asked_at)
        token = self.new_token(prev, now, ask.floor)
        self.data["token", ask.key] = token
        return self._grant(ask, token, now, adopted=False)

    def _why_not_free(self, ask: AcquireLease, prev: int, epoch: str, now: int, *, ours: bool) -> tuple[str, int]:
        if ours and self.trusts_its_own():
            return "", 0
        note = self._note(ask.key, now)
        if ask.quarantined and self.quarantine_forbids(prev, note, epoch):
            return "quarantine", 0
        if self.seen_forbids(ask.seen, note.token):
            return "vanished", 0
        if ours:
            return "", 0
        if self.young(prev, note.token, ask.longest_ttl_ms, now):
            return "young", prev + ask.longest_ttl_ms - now
        alive_ms = self.data.get(("alive", ask.key), 0)
        if prev > note.token and self.put_back_lives(alive_ms, ask.longest_ttl_ms, now):
            return "young", alive_ms - now
        if self.hint_forbids(note, ask.node, ask.longest_ttl_ms, now):
            return "hint", note.until_ms - now
        return "", 0

    def _grant(self, ask: AcquireLease, token: int, now: int, *, adopted: bool) -> StoreAnswer:
        value = LeaseValue(Token(token), ask.node, ask.incarnation)
        self.data["lease", ask.key] = Held(value, now + ask.ttl_ms)
        if not ask.schedule:
            return LeaseGranted(ask.job, value.token, now, adopted, 0, ask.asked_at, self._last_record(ask.key))
        ticks = self._acquired_ticks(ask, now)
        return LeaseGranted(
            ask.job,
            value.token,
            now,
            adopted,
            ticks.last_ms,
            ask.asked_at,
            open=open_runs(ticks),
            failures=ticks.failures,
            failed_ms=ticks.failed_ms,
            obeyed_ms=ticks.obeyed_ms,
        )

    def _release(self, ask: ReleaseLease, now: int) -> StoreAnswer:
        held = self._held(ask.key, now)
        ours = self.is_ours(held.value if held else None, ask.value)
        if ours:
            self.data.pop(("lease", ask.key), None)
            until_ms, end_ms = now + ask.hint_ms, now + ask.keep_note_ms
            self.data["released", ask.key] = Note(ask.value.token, ask.next_node, until_ms, ask.epoch, end_ms)
        return LeaseReleased(ask.job, ask.value.token, ours, ask.asked_at)

    def _publish(self, ask: PublishState, now: int) -> StoreAnswer:
        held = self._held(ask.key, now)
        ours = held is not None and held.value == ask.value
        if ours:
            self.data["state", ask.key] = ask.state
        return StatePublished(ask.job, ours, ask.asked_at)

    def _member(self, ask: KeepMembership, now: int) -> StoreAnswer:
        mine: Head | None = self.data.get(("member", ask.node))
        same = mine is not None and mine.incarnation == ask.incarnation
        if mine is not None and not same and mine.end_ms > now:
            same_state, other, left_ms = mine.state_id == ask.state_id, self._info(mine.info), mine.end_ms - now
            who = f"{other.get('host', '?')}:{other.get('pid', '?')}"
            return NameRefused(ask.node, same_state, mine.incarnation, who, left_ms, ask.asked_at)
        since_ms = mine.since_ms if mine is not None and same else now
        self.data["member", ask.node] = Head(ask.incarnation, since_ms, now + ask.ttl_ms, ask.state_id, ask.info)
        members = tuple(
            Member(NodeName(str(name)), head.incarnation, head.since_ms, self._info(head.info))
            for (part, name), head in self.data.items()
            if part == "member" and head.end_ms > now
        )
        version, intents = self._intents()
        newer = dict(intents) if version > ask.intents_known else None
        triggers = self._triggers() if newer is not None else ()
        return MembersSeen(members, newer, version, now, ask.asked_at, triggers)

    def _leave(self, ask: LeaveCluster, _now: int) -> StoreAnswer:
        mine: Head | None = self.data.get(("member", ask.node))
        if mine is not None and mine.incarnation == ask.incarnation:
            del self.data["member", ask.node]
        return ClusterLeft(ask.asked_at)

    def _restore(self, ask: RestoreIntents, _now: int) -> StoreAnswer:
        version, standing = self._intents()
        back = {
            job: intent
            for job, intent in ask.intents.items()
            if job not in standing or standing[job].at_ms < intent.at_ms
        }
        wanted = max(version, ask.version)
        if back and wanted == version:
            wanted += 1
        if wanted > version:
            self.data["intents", ""] = (wanted, {**standing, **back})
        return IntentsRestored(wanted, ask.asked_at)

    def _give_order(self, ask: GiveOrder, now: int) -> StoreAnswer:
        return OrderGiven(ask.job, self.order((ask.job,), ask.intent, now), ask.asked_at)

    def _forget_trigger(self, ask: ForgetTrigger, _now: int) -> StoreAnswer:
        waiting = tuple(known for known in self._triggers() if known.order_ms != ask.order_ms)
        if waiting != self._triggers():
            self.data["triggers", ""] = waiting
        return TriggerForgotten(ask.order_ms, ask.asked_at)

    # Reading the dict

    def _note(self, key: str, now: int) -> Note:
        note: Note | None = self.data.get(("released", key))
        return note if note is not None and note.end_ms > now else NO_NOTE

    def _intents(self) -> tuple[int, dict[JobName, Intent]]:
        version, intents = self.data.get(("intents", ""), (0, {}))
        return version, intents

    def _triggers(self) -> tuple[Trigger, ...]:
        triggers: tuple[Trigger, ...] = self.data.get(("triggers", ""), ())
        return triggers

    def _info(self, text: str) -> Mapping[str, object]:
        # Infos repeat; parsing each one once keeps JSON out of the hot path.
        if text not in self._infos:
            self._infos[text] = json.loads(text or "{}")
        return self._infos[text]
