"""The store model beside a real server: each request is asked of both, the answers and the data must be the same.

Where a real lease would run out after a minute, its key is deleted on both sides. Token and times agree to the
millisecond, since the model is told the server's clock as the real answer shows it; only what is left of a lease
or a hint, and instants that no answer tells, differ by the milliseconds between two requests.
Which requests are asked stand in `lease_rules.py` and `cron_rules.py`; here is what befalls both.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchestrator.core.answers import (
    LeaseGranted,
    MembersSeen,
    OrderGiven,
    ServerMet,
    StoreAnswer,
    StoreSilent,
    SuccessesSeen,
)
from orchestrator.core.nouns import JobName, LeaseValue, NodeName, Token
from orchestrator.core.requests import AcquireLease, LookAtSuccesses, MeetServer, ReleaseLease, StoreRequest
from orchestrator.core.spec import bucket_of
from orchestrator.store.reader import StoreReader
from orchestrator.store.store import Store
from tests.servers import Server
from tests.simulation.store_model import StoreModel
from tests.simulation.stored import NO_TICKS
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
        if isinstance(real, OrderGiven):
            now_ms = self.ordered_at(real.at_ms)
        else:
            now_ms = getattr(real, "server_ms", self.server.server_ms())
        modelled = self.model.execute(self.for_model(request), now_ms)
        assert _plain(modelled) == _plain(real)
        for name in ("left_ms", "wait_ms", "failed_ms"):
            assert abs(getattr(modelled, name, 0) - getattr(real, name, 0)) < SLACK_MS
        if isinstance(real, SuccessesSeen) and isinstance(modelled, SuccessesSeen):
            same_instants(real.at_ms, modelled.at_ms)
        if isinstance(real, ServerMet) and isinstance(modelled, ServerMet):
            self.epochs[real.bucket] = (real.epoch, modelled.epoch)
        return real

    def ordered_at(self, at_ms: int) -> int:
        """Return a clock by which the model, too, gives the next order this instant."""
        before = self.model.data.get(("intents", ""), (0, {}))[0]
        return 0 if at_ms == before + 1 else at_ms

    def for_model(self, request: StoreRequest) -> StoreRequest:
        """Return the request with the model's epoch, and the model's instant of a success, for the real one's."""
        if isinstance(request, (AcquireLease, ReleaseLease)):
            real, modelled = self.epochs[bucket_of(request.key)]
            return replace(request, epoch=modelled if request.epoch == real else "another")
        if isinstance(request, LookAtSuccesses) and request.after_ms:
            real_at = self.real_successes(request.key).index(request.after_ms)
            return replace(request, after_ms=self.model.data["successes", request.key][real_at][1])
        return request

    def real_successes(self, job: str) -> list[int]:
        """Return the instants of a job's successes on the real server, oldest first."""
        return [round(ms) for _, ms in self.server.client.zrange(stored("successes", job), 0, -1, withscores=True)]

    def value(self, job: JobName, offset: int = 0) -> LeaseValue:
        """Return the last value granted, or one that never was."""
        value = self.values.get(job, LeaseValue(Token(1000), NodeName("n1"), "i1"))
        return replace(value, token=Token(value.token + offset))

    def acquire_lease(self, job: JobName, node: NodeName, incarnation: str, **changes: Any) -> None:
        """Ask for a lease, with all reasons to get it but for what is changed."""
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

    @rule(job=jobs, node=nodes)
    def take(self, job: JobName, node: NodeName) -> None:
        """A node has all reasons to get the lease, unless it is held: what follows is about a held one."""
        self.server.client.delete(stored("released", job))
        self.model.delete(job, "released")
        self.ask(MeetServer(bucket_of(job), next(self.asked_at)))
        self.acquire_lease(job, node, "i1", longest_ttl_ms=0, schedule="every 60s")

    @rule(job=jobs, part=st.sampled_from(["lease", "lease", "token", "released", "alive", "tick", "last", "state"]))
    def delete(self, job: JobName, part: str) -> None:
        """Somebody deletes a key, or it runs out."""
        self.server.client.delete(stored(part, job))
        self.model.delete(job, part)

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
                pipeline.hgetall(of["last"])
                lease, token, released, state, last = pipeline.execute()
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
            recorded = [last[field] for field in ("token", "run", "record") if field in last]
            assert recorded == [str(field) for field in data.get(("last", job), ())]

    @invariant()
    def same_ticks(self) -> None:
        """What is known of ticks and open runs is the same."""
        for job in JOBS:
            known = self.server.client.hgetall(stored("tick", job))
            ticks = self.model.data.get(("tick", job), NO_TICKS)
            assert known.get("schedule") == ticks.schedule
            names = {"last": ticks.last_ms, "since": ticks.since_ms, "obeyed": ticks.obeyed_ms}
            names |= {name: getattr(ticks, name) for name in ("ran", "skipped", "missed", "failures")}
            assert {name: int(known.get(name, 0)) for name in names} == names
            assert abs(int(known.get("failed", 0)) - ticks.failed_ms) < SLACK_MS
            runs = {field.removeprefix("run:"): mark for field, mark in known.items() if field.startswith("run:")}
            assert runs == dict(ticks.open)


def same_instants(real: Sequence[int], modelled: Sequence[int]) -> None:
    """Compare instants that strictly grow and that no answer tells."""
    assert list(real) == sorted(set(real))
    assert len(modelled) == len(real)
    assert all(abs(ours - theirs) < SLACK_MS for ours, theirs in zip(modelled, real, strict=True))


def _plain(answer: StoreAnswer) -> object:
    """Return an answer without what must differ: epochs, instants that no answer tells, the order of members."""
    differ = {"epoch", "left_ms", "wait_ms", "failed_ms"} & set(answer.__dataclass_fields__)
    changes: dict[str, object] = dict.fromkeys(differ)
    if isinstance(answer, MembersSeen):
        changes["members"] = sorted(answer.members, key=lambda member: member.name)
    if isinstance(answer, SuccessesSeen):
        changes["at_ms"] = ()
    return replace(answer, **changes)  # type: ignore[arg-type] # for a comparison only
