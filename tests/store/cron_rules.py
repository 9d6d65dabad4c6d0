"""Ticks, runs and their history, asked of the store model and of a real server (see `agreement.py`)."""

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from orchestrator.core.nouns import JobName, NodeName, OpenRun, RunId, Token
from orchestrator.core.open_runs import mark_of
from orchestrator.core.requests import ClaimTick, LookAtSuccesses, RecordRun, SettleTicks
from tests.store.agreement import JOBS, TTL_MS, Agreement, flags, jobs, nodes, offsets, same_instants, seldom
from tests.store.node import stored

runs = st.sampled_from(["r1", "r2", "r3", "r4"])
kept = st.sampled_from([1, 2, 3, 100])
kept_bytes = st.sampled_from([1, 100, 1000, 65_536])
records = st.sampled_from(['{"outcome":"ok"}', '{"outcome":"lost"}', '{"output":["' + 90 * "x" + '"]}', 70_000 * "x"])


class CronRules(Agreement):
    """What the holders of crons ask."""

    def mark(self, job: JobName, run: str, offset: int = 0, retry_ms: int = 0) -> str:
        """Return what is kept of a run while it is open."""
        token = self.value(job, offset).token
        return mark_of(OpenRun(RunId(run), 1000, token, NodeName("n1"), 1, "schedule", retry_ms))

    @rule(job=jobs, offset=offsets, second=st.integers(-1, 5), run=runs, far=seldom)
    def claim(self, job: JobName, offset: int, second: int, run: str, far: bool) -> None:
        """A tick near the last token, or far ahead."""
        tick_ms = self.value(job).token + 1000 * second + (10 * TTL_MS if far else 0)
        value, mark = self.value(job, offset), self.mark(job, run)
        self.ask(ClaimTick(job, job, value, tick_ms, RunId(run), mark, 5 * TTL_MS, next(self.asked_at)))

    @rule(job=jobs, offset=offsets, order_ms=st.integers(1, 6), run=runs)
    def claim_ordered(self, job: JobName, offset: int, order_ms: int, run: str) -> None:
        """An ordered start."""
        value, mark = self.value(job, offset), self.mark(job, run)
        self.ask(ClaimTick(job, job, value, order_ms, RunId(run), mark, 0, next(self.asked_at), order_ms=order_ms))

    @rule(job=jobs, offset=offsets, run=runs, instead=runs)
    def claim_again(self, job: JobName, offset: int, run: str, instead: str) -> None:
        """Another attempt."""
        value, mark = self.value(job, offset), self.mark(job, run)
        self.ask(ClaimTick(job, job, value, 1000, RunId(run), mark, 0, next(self.asked_at), instead=instead))

    @rule(
        job=jobs,
        offset=offsets,
        second=st.integers(-1, 5),
        count=st.integers(1, 3),
        what=st.sampled_from(["skipped", "missed", "doubt"]),
        entry=st.sampled_from(["e1", "e2"]),
        record=records,
        keep=kept,
        keep_bytes=kept_bytes,
        order_ms=st.sampled_from([0, 0, 0, 2, 4]),
        far=seldom,
    )
    def settle(self, job: JobName, offset: int, second: int, count: int, order_ms: int, **words: str | int) -> None:
        """Ticks, or an order, do not run."""
        until_ms = 0 if order_ms else self.value(job).token + 1000 * second + (10 * TTL_MS if words["far"] else 0)
        self.ask(
            SettleTicks(
                job,
                job,
                self.value(job, offset),
                until_ms,
                0 if order_ms else count,
                str(words["what"]),
                str(words["entry"]),
                str(words["record"]),
                int(words["keep"]),
                int(words["keep_bytes"]),
                5 * TTL_MS,
                next(self.asked_at),
                order_ms,
            )
        )

    @rule(
        job=jobs,
        offset=offsets,
        run=runs,
        record=records,
        keep=kept,
        keep_bytes=kept_bytes,
        retry_ms=st.sampled_from([0, 0, 5, 6]),
        witness=flags,
        failures=st.sampled_from([None, 0, 2]),
        succeeds=flags,
    )
    def record(self, job: JobName, offset: int, run: str, record: str, **words: int | None) -> None:
        """A run ended, as its own node says, or a successor."""
        retry_ms = words["retry_ms"] or 0
        self.ask(
            RecordRun(
                job,
                job,
                self.value(job, offset).token,
                RunId(run),
                record,
                next(self.asked_at),
                keep=words["keep"] or 0,
                keep_bytes=words["keep_bytes"] or 0,
                mark=self.mark(job, run, offset, retry_ms) if retry_ms else "",
                witness=bool(words["witness"]),
                failures=words["failures"],
                success_of=(JOBS[0],) if words["succeeds"] else (),
            )
        )

    @rule(job=jobs, nth=st.integers(-1, 4))
    def look_at_successes(self, job: JobName, nth: int) -> None:
        """Another job asks when this one succeeded."""
        known = self.real_successes(job)
        after_ms = known[nth] if 0 <= nth < len(known) else 0
        self.ask(LookAtSuccesses(job, job, after_ms, next(self.asked_at)))

    # Short stories, which chance alone would seldom tell

    @rule(job=jobs, node=nodes, second=st.integers(1, 2), again=st.integers(1, 2), run=runs)
    def claim_twice(self, job: JobName, node: NodeName, second: int, again: int, run: str) -> None:
        """The same tick, or its neighbour, is claimed by the same run or another."""
        self.take(job, node)
        self.claim(job, 0, second, "r1", far=False)
        self.claim(job, 0, again, run, far=False)

    @rule(job=jobs, node=nodes, offset=offsets, retry_ms=st.sampled_from([0, 5]), run=runs, instead=runs)
    def fail_and_retry(self, job: JobName, node: NodeName, offset: int, retry_ms: int, run: str, instead: str) -> None:
        """A run fails, another attempt is claimed; a copy of that claim comes late."""
        self.take(job, node)
        self.claim(job, 0, 5, "r1", far=False)
        self.end(job, offset, "r1", retry_ms)
        self.claim_again(job, 0, run, instead)
        self.end(job, 0, run, 0)
        self.claim_again(job, 0, run, instead)

    @rule(job=jobs, first=nodes, second=nodes, retry_ms=st.sampled_from([0, 5]))
    def lose_a_run(self, job: JobName, first: NodeName, second: NodeName, retry_ms: int) -> None:
        """A run is lost with its node; the successor says so, and then the node does after all."""
        self.take(job, first)
        self.claim(job, 0, 5, "r1", far=False)
        token = self.value(job).token
        self.delete(job, "lease")
        self.take(job, second)
        self.end(job, 0, "r1", retry_ms, witness=False)
        self.ask(RecordRun(job, job, token, RunId("r1"), "{}", next(self.asked_at)))

    def end(self, job: JobName, offset: int, run: str, retry_ms: int, *, witness: bool = True) -> None:
        """Record the failure of a run that may be tried again."""
        mark = self.mark(job, run, offset, retry_ms) if retry_ms else ""
        token = Token(self.value(job, offset).token)
        said = f'{{"by":"{witness}"}}'
        self.ask(
            RecordRun(job, job, token, RunId(run), said, next(self.asked_at), mark=mark, witness=witness, failures=1)
        )

    @invariant()
    def same_history(self) -> None:
        """What is known of the past is the same, in the same order."""
        for job in JOBS:
            with self.server.client.pipeline(transaction=False) as pipeline:
                pipeline.hgetall(stored("history", job)).zrange(stored("ages", job), 0, -1)
                pipeline.zrange(stored("successes", job), 0, -1, withscores=True)
                records, ages, succeeded = pipeline.execute()
            counted = records.pop("bytes", None)
            history = self.model.data.get(("history", job), ())
            assert records == dict(history)
            assert ages == [entry for entry, _ in history]
            assert (counted is None) == (not history)
            assert int(counted or 0) == sum(len(record) for _, record in history)
            assert self.loop.run(self.reader.past(job)) == self.model.past(job)
            successes = self.model.data.get(("successes", job), ())
            assert [run for run, _ in succeeded] == [run for run, _ in successes]
            same_instants([round(at_ms) for _, at_ms in succeeded], [at_ms for _, at_ms in successes])
