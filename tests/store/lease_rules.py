"""Leases, members and standing orders, asked of the store model and of a real server (see `agreement.py`)."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from orchestrator.core.nouns import Intent, JobName, NodeName, Token, Trigger
from orchestrator.core.requests import (
    ForgetTrigger,
    GiveOrder,
    KeepMembership,
    LeaveCluster,
    LookAtLease,
    PublishState,
    ReleaseLease,
    RenewLease,
    RestoreIntents,
)
from orchestrator.core.spec import bucket_of
from tests.servers import Server
from tests.store.agreement import (
    HINT_MS,
    SLACK_MS,
    TTL_MS,
    Agreement,
    flags,
    incarnations,
    jobs,
    nodes,
    offsets,
    seldom,
)
from tests.store.node import KEYS

wants = st.sampled_from(["stopped", "paused", "running"])


class LeaseRules(Agreement):
    """What nodes and people ask about leases, and what they order."""

    def __init__(self, server: Server) -> None:
        """Nothing was ordered yet."""
        super().__init__(server)
        self.triggered: list[int] = []

    @rule(job=jobs)
    def look(self, job: JobName) -> None:
        """A look at a lease."""
        self.ask(LookAtLease(job, job, next(self.asked_at)))

    @rule(
        job=jobs,
        node=nodes,
        incarnation=incarnations,
        longest=st.sampled_from([1, TTL_MS]),
        ahead=st.sampled_from([0, 0, 1000]),
        seen=seldom,
        ran=flags,
        other_epoch=seldom,
        off_ms=st.sampled_from([0, 0, 0, 0, -100_000, 100_000]),
        quarantined=seldom,
        schedule=st.sampled_from(["", "every 60s", "every 30s"]),
        tick_floor=st.sampled_from([-900, TTL_MS]),
    )
    def acquire(self, job: JobName, node: NodeName, incarnation: str, **drawn: Any) -> None:
        """Somebody asks for a lease."""
        known = self.value(job).token
        self.acquire_lease(
            job,
            node,
            incarnation,
            longest_ttl_ms=drawn["longest"],
            floor=Token(known + drawn["ahead"]),
            seen=known if drawn["seen"] else Token(0),
            ran=known if drawn["ran"] else Token(0),
            epoch="another" if drawn["other_epoch"] else self.epochs[bucket_of(job)][0],
            expected_ms=self.server.server_ms() + drawn["off_ms"],
            quarantined=drawn["quarantined"],
            schedule=drawn["schedule"],
            tick_floor_ms=known + drawn["tick_floor"],
        )

    @rule(job=jobs, offset=offsets, left_ms=st.sampled_from([-SLACK_MS, TTL_MS]))
    def renew(self, job: JobName, offset: int, left_ms: int) -> None:
        """The last holder, or one that never was, renews."""
        not_after_ms = self.server.server_ms() + left_ms
        self.ask(RenewLease(job, job, self.value(job, offset), TTL_MS, not_after_ms, next(self.asked_at)))

    @rule(job=jobs, offset=offsets, to=st.sampled_from(["", "n1", "n2"]), hint_ms=st.sampled_from([0, HINT_MS]))
    def release(self, job: JobName, offset: int, to: str, hint_ms: int) -> None:
        """The last holder, or one that never was, releases."""
        epoch = self.epochs[bucket_of(job)][0]
        value = self.value(job, offset)
        self.ask(ReleaseLease(job, job, value, epoch, to, hint_ms, TTL_MS, next(self.asked_at)))

    @rule(job=jobs, offset=offsets, state=st.sampled_from(["{}", '{"state":"running"}']))
    def publish(self, job: JobName, offset: int, state: str) -> None:
        """A state is shown."""
        self.ask(PublishState(job, job, self.value(job, offset), state, next(self.asked_at)))

    @rule(node=nodes, incarnation=incarnations, host=st.sampled_from(["a", "b"]), known=st.sampled_from([0, 2, 10**14]))
    def keep(self, node: NodeName, incarnation: str, host: str, known: int) -> None:
        """A node beats."""
        info = f'{{"host":"{host}","pid":1}}'
        self.ask(KeepMembership(node, incarnation, f"state-{host}", TTL_MS, info, known, next(self.asked_at)))

    @rule(node=nodes, incarnation=incarnations)
    def leave(self, node: NodeName, incarnation: str) -> None:
        """A node leaves."""
        self.ask(LeaveCluster(node, incarnation, next(self.asked_at)))

    # Short stories, which chance alone would seldom tell

    @rule(job=jobs, node=nodes, remembered=flags, longest=st.sampled_from([1, TTL_MS]))
    def lose_and_ask(self, job: JobName, node: NodeName, remembered: bool, longest: int) -> None:
        """A held lease vanishes; a standby remembers it, or sees how young its token is."""
        self.take(job, node)
        self.delete(job, "lease")
        seen = self.value(job).token if remembered else Token(0)
        self.acquire_lease(job, node, "i2", seen=seen, longest_ttl_ms=longest)

    @rule(job=jobs, node=nodes, offset=offsets)
    def lose_and_renew(self, job: JobName, node: NodeName, offset: int) -> None:
        """A held lease vanishes; its holder renews it, or an older holder does."""
        self.take(job, node)
        self.delete(job, "lease")
        self.renew(job, offset, TTL_MS)

    @rule(job=jobs, node=nodes, to=st.sampled_from(["", "n1", "n2"]))
    def hand_over(self, job: JobName, node: NodeName, to: str) -> None:
        """A lease is left to a node; that one or another asks."""
        self.take(job, node)
        self.release(job, 0, to, HINT_MS)
        self.acquire_lease(job, node, "i2")

    @rule(version=st.integers(1, 4), chosen=st.dictionaries(jobs, st.integers(1, 4), min_size=1))
    def restore(self, version: int, chosen: Mapping[JobName, int]) -> None:
        """A node puts back what it remembers."""
        intents = {job: Intent("stopped", "me", "", at_ms) for job, at_ms in chosen.items()}
        self.ask(RestoreIntents(version, intents, next(self.asked_at)))

    @rule(job=jobs, want=wants, catch_up=flags)
    def order(self, job: JobName, want: str, catch_up: bool) -> None:
        """A client gives an order."""
        intent = Intent(want, "me", "why", 0, catch_up=catch_up)
        at_ms = self.loop.run(self.reader.order([job], intent))
        assert self.model.order((job,), intent, self.ordered_at(at_ms)) == at_ms

    @rule(job=jobs, want=wants)
    def give_order(self, job: JobName, want: str) -> None:
        """A node gives an order."""
        self.ask(GiveOrder(job, Intent(want, "n1", "why", 0), next(self.asked_at)))

    @rule(job=jobs, tick_ms=st.sampled_from([None, 60_000]))
    def trigger(self, job: JobName, tick_ms: int | None) -> None:
        """A client orders a run."""
        trigger = Trigger(job, 0, tick_ms, "me", "why")
        order_ms = self.loop.run(self.reader.trigger(trigger))
        assert self.model.trigger(trigger, self.ordered_at(order_ms)) == order_ms
        self.triggered.append(order_ms)

    @rule(nth=st.integers(0, 3))
    def forget_trigger(self, nth: int) -> None:
        """A trigger was obeyed, or one that was never given."""
        self.ask(ForgetTrigger(dict(enumerate(self.triggered[-3:])).get(nth, 7), next(self.asked_at)))

    @rule(node=nodes)
    def die(self, node: NodeName) -> None:
        """A node's membership runs out."""
        just_now_ms = self.server.server_ms() - 1
        self.server.client.zadd(KEYS.nodes, {node: just_now_ms}, xx=True)
        if ("member", node) in self.model.data:
            self.model.data["member", node] = self.model.data["member", node]._replace(end_ms=just_now_ms)
