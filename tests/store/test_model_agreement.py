"""The simulation's store model and the real scripts: the same requests in any order, the same answers, the same data.

Where a real lease would run out after a minute, its key is deleted on both sides. Token and times agree to the
millisecond, since the model is told the server's clock as the real answer shows it; only what is left of a lease
or a hint differs by the milliseconds between two requests.
"""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from orchestrator.core.answers import LeaseGranted, MembersSeen, ServerMet, StoreAnswer, StoreSilent
from orchestrator.core.nouns import Intent, JobName, LeaseValue, NodeName, RunId, Token
from orchestrator.core.requests import (
    AcquireLease,
    ClaimTick,
    KeepMembership,
    LeaveCluster,
    LookAtLease,
    MeetServer,
    PublishState,
    RecordRun,
    ReleaseLease,
    RenewLease,
    RestoreIntents,
    StoreRequest,
)
from orchestrator.core.spec import bucket_of
from orchestrator.store.reader import StoreReader
from orchestrator.store.store import Store
from tests.servers import Server
from tests.simulation.store_model import StoreModel
from tests.store.node import KEYS, stored

JOBS = [JobName("beat"), JobName("mail")]
BUCKETS = sorted({bucket_of(job) for job in JOBS})
TTL_MS = 60_000
HINT_MS = 30_000
SLACK_MS = 20_000
"""Far more than a stalled machine puts between two requests, far less than any ttl or hint."""

jobs = st.sampled_from(JOBS)
nodes = st.sampled_from([NodeName("n1"), NodeName("n2")])
incarnations = st.sampled_from(["i1", "i2"])
flags = st.booleans()
seldom = st.sampled_from([False, False, False, True])
offsets = st.sampled_from([0, 0, 0, -1, 1])


class Agreement(RuleBasedStateMachine):
    """Every rule asks both stores the same."""

    def __init__(self, server: Server) -> None:
        """Empty the real one, make a model."""
        super().__init__()
        self.server = server
        self.loop = asyncio.Runner()
        self.store = Store(server.url, cluster="shop", node="n1", request_timeout_s=5.0)
        self.reader = StoreReader(server.url, cluster="shop", timeout_s=5.0)
        self.model = StoreModel()
        self.epochs: dict[int, tuple[str, str]] = dict.fromkeys(BUCKETS, ("", ""))
        self.values: dict[JobName, LeaseValue] = {}
        self.asked_at = itertools.count(1.0)
        self.saved: tuple[Mapping[str, tuple[bytes, int]], Mapping[Any, Any]] | None = None

    def teardown(self) -> None:
        """Close what was opened."""
        self.loop.run(self.store.close())
        self.loop.run(self.reader.close())
        self.loop.close()

    def ask(self, request: StoreRequest) -> StoreAnswer:
        """Ask both, compare, and return the real answer."""
        (real,) = self.loop.run(self.store.serve([request]))
        assert not isinstance(real, StoreSilent), real
        modelled = self.model.execute(self._for_model(request), getattr(real, "server_ms", self.server.server_ms()))
        assert _plain(modelled) == _plain(real)
        for name in ("left_ms", "wait_ms"):
            assert abs(getattr(modelled, name, 0) - getattr(real, name, 0)) < SLACK_MS
        if isinstance(real, ServerMet) and isinstance(modelled, ServerMet):
            self.epochs[real.bucket] = (real.epoch, modelled.epoch)
        return real

    def _for_model(self, request: StoreRequest) -> StoreRequest:
        if isinstance(request, (AcquireLease, ReleaseLease)):
            real, modelled = self.epochs[bucket_of(request.key)]
            return replace(request, epoch=modelled if request.epoch == real else "another")
        return request

    def value(self, job: JobName, offset: int = 0) -> LeaseValue:
        """Return the last value granted, or one that never was."""
        value = self.values.get(job, LeaseValue(Token(1000), NodeName("n1"), "i1"))
        return replace(value, token=Token(value.token + offset))

    def _acquire(self, job: JobName, node: NodeName, incarnation: str, **changes: Any) -> None:
        now_ms = self.server.server_ms()
        request = AcquireLease(
            job=job,
            key=job,
            node=node,
            incarnation=incarnation,
            ttl_ms=TTL_MS,
            longest_ttl_ms=TTL_MS,
            floor=Token(0),
            seen=Token(0),
            ran=Token(0),
            epoch=self.epochs[bucket_of(job)][0],
            expected_ms=now_ms,
            tolerance_ms=SLACK_MS,
            quarantined=False,
            schedule="",
            tick_floor_ms=now_ms,
            asked_at=next(self.asked_at),
        )
        answer = self.ask(replace(request, **changes))
        if isinstance(answer, LeaseGranted):
            self.values[job] = LeaseValue(answer.token, node, incarnation)

    @initialize()
    def begin(self) -> None:
        """Both know nothing."""
        self.server.client.flushall()
        for bucket in BUCKETS:
            self.ask(MeetServer(bucket, next(self.asked_at)))

    @rule(bucket=st.sampled_from(BUCKETS))
    def meet(self, bucket: Any) -> None:
        """Who is this server?"""
        self.ask(MeetServer(bucket, next(self.asked_at)))

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
        self._acquire(
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

    @rule(job=jobs, node=nodes)
    def take(self, job: JobName, node: NodeName) -> None:
        """A node has all reasons to get the lease, unless it is held: what follows is about a held one."""
        self.server.client.delete(stored("released", job))
        self.model.delete(job, "released")
        self.ask(MeetServer(bucket_of(job), next(self.asked_at)))
        self._acquire(job, node, "i1", longest_ttl_ms=0, schedule="every 60s")

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

    @rule(job=jobs, offset=offsets, second=st.integers(-1, 5), run=st.sampled_from(["r1", "r2"]), far=seldom)
    def claim(self, job: JobName, offset: int, second: int, run: str, far: bool) -> None:
        """A tick near the last token, or far ahead."""
        tick_ms = self.value(job).token + 1000 * second + (10 * TTL_MS if far else 0)
        value = self.value(job, offset)
        self.ask(ClaimTick(job, job, value, tick_ms, RunId(run), 5 * TTL_MS, next(self.asked_at)))

    @rule(job=jobs, token=st.integers(1, 3), run=st.sampled_from(["r1", "r2"]))
    def record(self, job: JobName, token: int, run: str) -> None:
        """A run ended."""
        self.ask(RecordRun(job, job, Token(token), RunId(run), f'{{"of":"{run}"}}', next(self.asked_at)))

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
        self._acquire(job, node, "i2", seen=seen, longest_ttl_ms=longest)

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
        self._acquire(job, node, "i2")

    @rule(job=jobs, node=nodes, second=st.integers(1, 2), again=st.integers(1, 2), run=st.sampled_from(["r1", "r2"]))
    def claim_twice(self, job: JobName, node: NodeName, second: int, again: int, run: str) -> None:
        """The same tick, or its neighbour, is claimed by the same run or another."""
        self.take(job, node)
        self.claim(job, 0, second, "r1", far=False)
        self.claim(job, 0, again, run, far=False)

    @rule(version=st.integers(1, 4), chosen=st.dictionaries(jobs, st.integers(1, 4), min_size=1))
    def restore(self, version: int, chosen: Mapping[JobName, int]) -> None:
        """A node puts back what it remembers."""
        intents = {job: Intent("stopped", "me", "", at_ms) for job, at_ms in chosen.items()}
        self.ask(RestoreIntents(version, intents, next(self.asked_at)))

    @rule(job=jobs, want=st.sampled_from(["stopped", "running"]))
    def order(self, job: JobName, want: str) -> None:
        """A client gives an order."""
        intent = Intent(want, "me", "why", 0)
        at_ms = self.loop.run(self.reader.order([job], intent))
        before = self.model.data.get(("intents", ""), (0, {}))[0]
        assert self.model.order((job,), intent, at_ms if at_ms != before + 1 else 0) == at_ms

    @rule(job=jobs, part=st.sampled_from(["lease", "lease", "token", "released", "alive", "tick", "last", "state"]))
    def delete(self, job: JobName, part: str) -> None:
        """Somebody deletes a key, or it runs out."""
        self.server.client.delete(stored(part, job))
        self.model.delete(job, part)

    @rule(node=nodes)
    def die(self, node: NodeName) -> None:
        """A node's membership runs out."""
        just_now_ms = self.server.server_ms() - 1
        self.server.client.zadd(KEYS.nodes, {node: just_now_ms}, xx=True)
        if ("member", node) in self.model.data:
            self.model.data["member", node] = self.model.data["member", node]._replace(end_ms=just_now_ms)

    @rule(often=seldom)
    def flush(self, often: bool) -> None:
        """Everything is forgotten; seldom, or nothing else is ever reached."""
        if often:
            self._flush()

    def _flush(self) -> None:
        self.server.client.flushall()
        self.model.flush()

    @rule(often=seldom)
    def another_server(self, often: bool) -> None:
        """The same data under another run id."""
        if often:
            self._another_server()

    def _another_server(self) -> None:
        for bucket in BUCKETS:
            self.server.client.set(KEYS.epoch(bucket), "1|word|elsewhere", xx=True)
        self.model.restart()

    @rule()
    def save(self) -> None:
        """Remember the data as a replica that then stops following."""
        with self.server.raw_client() as raw:
            self.saved = (
                {key: (raw.dump(key), max(0, raw.pttl(key))) for key in raw.keys()},  # noqa: SIM118 - a command
                self.model.snapshot(),
            )

    @rule()
    def promote(self) -> None:
        """The stale replica's data come back."""
        if self.saved is None:
            return
        self._flush()
        with self.server.raw_client() as raw:
            for key, (dump, left_ms) in self.saved[0].items():
                raw.restore(key, left_ms, dump)
        self.model.restore(self.saved[1])
        self._another_server()
        self.saved = None

    @invariant()
    def same_data(self) -> None:
        """What stands in both is the same."""
        for job in JOBS:
            of = KEYS.parts(job)
            with self.server.client.pipeline(transaction=False) as pipeline:
                pipeline.get(of["lease"]).get(of["token"]).get(of["released"]).get(of["state"])
                pipeline.hgetall(of["tick"]).hgetall(of["last"])
                lease, token, released, state, tick, last = pipeline.execute()
            data = self.model.data
            held, note = data.get(("lease", job)), data.get(("released", job))
            assert lease == (str(held.value) if held else None)
            assert (int(token) if token else None) == data.get(("token", job))
            alive = self.server.client.get(of["alive"])
            assert bool(alive) == (("alive", job) in data)
            assert (released.split("|")[:2] if released else None) == (
                [str(note.token), note.next_node] if note else None
            )
            assert state == data.get(("state", job))
            assert (int(tick.get("last", 0)), tick.get("schedule")) == data.get(("tick", job), (0, None))[:2]
            recorded = [last[field] for field in ("token", "run", "record") if field in last]
            assert recorded == [str(field) for field in data.get(("last", job), ())]


def _plain(answer: StoreAnswer) -> object:
    """Return an answer without what must differ: epochs, what is left by now, the order of members."""
    changes: dict[str, object] = dict.fromkeys({"epoch", "left_ms", "wait_ms"} & set(answer.__dataclass_fields__))
    if isinstance(answer, MembersSeen):
        changes["members"] = sorted(answer.members, key=lambda member: member.name)
    return replace(answer, **changes)  # type: ignore[arg-type] # for a comparison only


def test_the_model_answers_as_the_scripts_do(module_server: Server) -> None:
    run_state_machine_as_test(
        lambda: Agreement(module_server),  # type: ignore[arg-type] # it takes any factory
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
