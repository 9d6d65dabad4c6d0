"""A node that holds a cron for clients to look at: what it claims, records and settles is real; it runs nothing."""

import json
from dataclasses import asdict

from orchestrator.core.attempts import ordered_run
from orchestrator.core.nouns import JobName, LeaseValue, OpenRun, RunId, Trigger
from orchestrator.core.open_runs import mark_of
from orchestrator.core.requests import ClaimTick, RecordRun, SettleTicks
from orchestrator.core.schedule import Schedule
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import ScheduleSpec, bucket_of
from orchestrator.store.triggers import parse_triggers
from tests.cli.stage import Played
from tests.servers import Server
from tests.store.node import KEYS

NIGHTLY = Schedule(ScheduleSpec(cron="0 3 * * *", timezone="Europe/Berlin"))
"""When `invoices` is due."""
DAY_MS = 86_400_000


def ticks_before(until_ms: int, count: int) -> list[int]:
    """Return the newest ticks of `invoices` until an instant, oldest first; milliseconds, as `until_ms`."""
    ticks: list[int] = []
    while len(ticks) < count:
        newest, _ = NIGHTLY.newest_in((until_ms - 3 * DAY_MS) / 1000, until_ms / 1000)
        assert newest is not None
        ticks.insert(0, round(newest * 1000))
        until_ms = ticks[0] - 1
    return ticks


class Holder:
    """The holder of one cron."""

    def __init__(self, node: Played, job: str, value: LeaseValue) -> None:
        """Take over; `taking` gets the lease as well."""
        self.job = JobName(job)
        self.value = value
        self._node = node._node

    @classmethod
    async def taking(cls, node: Played, job: str = "invoices", *, since_ms: int = 1_700_000_000_000) -> "Holder":
        """Take the lease of a cron whose ticks are counted from an instant on."""
        epoch = await node._node.epoch(bucket_of(job))
        floor = {"schedule": "nightly", "tick_floor_ms": since_ms}
        return cls(node, job, await node._node.hold(job=JobName(job), key=job, epoch=epoch, **floor))

    async def claim(self, tick_ms: int | None, *, order: Trigger | None = None) -> OpenRun:
        """Claim a tick, or what was ordered."""
        run = ordered_run(order) if order else RunId(f"{self.job}@{iso_utc((tick_ms or 0) / 1000)}")
        reason, order_ms = ("manual", order.order_ms) if order else ("schedule", 0)
        opened = OpenRun(run, tick_ms, self.value.token, self.value.node, 1, reason)
        at_ms = order_ms if tick_ms is None else tick_ms
        claim = ClaimTick(self.job, self.job, self.value, at_ms, run, mark_of(opened), 1000, 0.0, order_ms)
        await self._node.ask(claim)
        return opened

    async def end(self, run: OpenRun, *, retry_ms: int = 0, **record: object) -> None:
        """Record how a run ended; `retry_ms`: when the next attempt is due."""
        told: dict[str, object] = {"run": run.run, "node": run.node, "token": run.token, "attempt": run.attempt}
        tick = None if run.tick_ms is None else iso_utc(run.tick_ms / 1000)
        told |= {"tick": tick, "reason": run.reason, "outcome": "ok", "exit_code": 0, "elapsed_s": 41.2} | record
        left = mark_of(OpenRun(**(asdict(run) | {"retry_ms": retry_ms}))) if retry_ms else ""
        await self._node.ask(RecordRun(self.job, self.job, run.token, run.run, json.dumps(told), 0.0, mark=left))

    async def pass_over(self, tick_ms: int, why: str) -> None:
        """Settle one tick as skipped."""
        at = iso_utc(tick_ms / 1000)
        told: dict[str, object] = {"outcome": "skipped", "tick": at, "first": at, "last": at, "count": 1, "why": why}
        await self._settle(f"skipped@{at}", told, until_ms=tick_ms, count=1)

    async def refuse(self, order: Trigger, why: str) -> None:
        """Settle an order as one that is not obeyed."""
        run = ordered_run(order)
        await self._settle(run, {"outcome": "skipped", "run": run, "why": why}, order_ms=order.order_ms)

    async def _settle(
        self, entry: str, told: dict[str, object], *, until_ms: int = 0, count: int = 0, order_ms: int = 0
    ) -> None:
        settle = SettleTicks(
            job=self.job,
            key=self.job,
            value=self.value,
            until_ms=until_ms,
            count=count,
            what="skipped",
            entry=entry,
            record=json.dumps(told),
            keep=100,
            keep_bytes=65_536,
            ahead_ms=1000,
            asked_at=0.0,
            order_ms=order_ms,
        )
        await self._node.ask(settle)


def orders_in(server: Server) -> list[Trigger]:
    """Return the orders to run a job once, as Redis has them."""
    return list(parse_triggers(server.client.hgetall(KEYS.intents).items()))
