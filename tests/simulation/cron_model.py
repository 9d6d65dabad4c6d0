"""What the store's scripts do with ticks, runs and their history: the part of the store model that crons need.

As in `store_model.py`: values are immutable, each rule that keeps a start from being made twice, or a late call from
changing what a successor wrote, is a method of its own, and what people may break by hand is not modelled.
"""

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.core.answers import (
    RunRecorded,
    StoreAnswer,
    SuccessesSeen,
    TickClaimed,
    TickRefused,
    TicksSettled,
)
from orchestrator.core.nouns import LeaseValue, OpenRun
from orchestrator.core.open_runs import parse_mark
from orchestrator.core.past import Past
from orchestrator.core.requests import AcquireLease, ClaimTick, LookAtSuccesses, RecordRun, SettleTicks
from orchestrator.store.calls import parse_info
from tests.simulation.stored import NO_TICKS, Entries, Held, Key, Ticks

LONGEST_ENTRY = 65_536
MOST_SUCCESSES = 100
A_DAY_MS = 86_400_000


class CronModel:
    """Ticks, runs, history and successes in one dict."""

    def __init__(self) -> None:
        """Start empty."""
        self.data: dict[Key, Any] = {}

    def past(self, key: str) -> Past:
        """Return what `history` shows of a job."""
        ticks = self._ticks(key)
        return Past(
            entries=tuple(entry for _, record in reversed(self._history(key)) if (entry := parse_info(record))),
            since_ms=ticks.since_ms,
            settled_ms=ticks.last_ms,
            ran=ticks.ran,
            skipped=ticks.skipped,
            missed=ticks.missed,
            open=open_runs(ticks),
        )

    # The rules, each on its own

    def is_ours(self, standing: LeaseValue | None, value: LeaseValue) -> bool:
        """A release, a claim or a settling needs exactly its own value to stand."""
        return standing == value

    def is_ahead(self, tick_ms: int, now_ms: int, ahead_ms: int) -> bool:
        """The tick lies too far ahead of the server's clock."""
        return tick_ms > now_ms + ahead_ms

    def was_claimed(self, tick_ms: int, last_ms: int) -> bool:
        """This tick or a newer one was claimed or settled."""
        return tick_ms <= last_ms

    def was_obeyed(self, order_ms: int, obeyed_ms: int) -> bool:
        """This order or a newer one was obeyed or refused."""
        return order_ms <= obeyed_ms

    def has_ended(self, run: str, history: Entries) -> bool:
        """History knows the end of this very attempt."""
        return any(entry == run for entry, _ in history)

    def has_no_place(self, instead: str, ticks: Ticks) -> bool:
        """The run whose place another attempt would take is open no more, and the store remembers all of them."""
        return ticks.schedule is not None and instead not in ticks.open

    def is_settled(self, until_ms: int, last_ms: int) -> bool:
        """These ticks were counted already."""
        return until_ms <= last_ms

    def is_of_another_day(self, last_ms: int, now_ms: int) -> bool:
        """The newest settled tick lies so far ahead that people wrote it, or a clock that was wrong."""
        return last_ms > now_ms + A_DAY_MS

    def outranks(self, standing: int, token: int) -> bool:
        """What stands was written under a newer token."""
        return standing > token

    def is_said(self, standing: str | None, ask: RecordRun) -> bool:
        """The end of a run was told before: in the same words, or by its own node."""
        return standing == ask.record or (standing is not None and not ask.witness)

    # The scripts

    def _acquired_ticks(self, ask: AcquireLease, now: int) -> Ticks:
        ticks = self._ticks(ask.key, now)
        if ticks.schedule is None and ticks.last_ms and ticks.since_ms:
            self.data["tick", ask.key] = ticks = ticks._replace(schedule=ask.schedule)
        if ticks.schedule != ask.schedule or not ticks.last_ms:
            claimed = ticks.schedule is None and ticks.last_ms  # since the memory was lost: go on from there
            last_ms = claimed or max(ticks.last_ms, min(now, ask.tick_floor_ms))
            ticks = ticks._replace(last_ms=last_ms, schedule=ask.schedule, since_ms=last_ms, ran=0, skipped=0, missed=0)
            self.data["tick", ask.key] = ticks
        return ticks

    def _claim(self, ask: ClaimTick, now: int) -> StoreAnswer:
        ticks = self._ticks(ask.key, now)
        reason = self._why_not_claimed(ask, ticks, now)
        if reason:
            last_ms = ticks.last_ms if reason == "duplicate" else 0
            return TickRefused(ask.job, ask.value.token, ask.tick_ms, reason, last_ms, ask.asked_at, ask.run)
        if ticks.open.get(ask.run) != ask.mark:
            if ask.instead:
                ticks = ticks.without(ask.instead)
            elif ask.order_ms:
                ticks = ticks._replace(obeyed_ms=ask.order_ms)
            else:
                ticks = ticks if ticks.since_ms else ticks.counted_from(ask.tick_ms - 1)
                ticks = ticks._replace(last_ms=ask.tick_ms, ran=ticks.ran + 1)
            self.data["tick", ask.key] = ticks.with_open(ask.run, ask.mark)
        return TickClaimed(ask.job, ask.value.token, ask.tick_ms, ask.run, ask.asked_at)

    def _why_not_claimed(self, ask: ClaimTick, ticks: Ticks, now: int) -> str:
        if not self.is_ours(self._standing(ask.key, now), ask.value):
            return "lost"
        scheduled = not ask.instead and not ask.order_ms
        if scheduled and self.is_ahead(ask.tick_ms, now, ask.ahead_ms):
            return "ahead"
        if ticks.open.get(ask.run) == ask.mark:
            return ""
        if ask.instead:
            done = self.has_ended(ask.run, self._history(ask.key)) or self.has_no_place(ask.instead, ticks)
        elif scheduled:
            done = self.was_claimed(ask.tick_ms, ticks.last_ms)
        else:
            done = self.was_obeyed(ask.order_ms, ticks.obeyed_ms)
        return "duplicate" if done else ""

    def _settle(self, ask: SettleTicks, now: int) -> StoreAnswer:
        token = ask.value.token
        if not self.is_ours(self._standing(ask.key, now), ask.value):
            return TickRefused(ask.job, token, ask.until_ms, "lost", 0, ask.asked_at)
        ticks = self._ticks(ask.key, now)
        told = ask.what == "doubt" and not ask.order_ms
        if ask.order_ms:
            told = not self.was_obeyed(ask.order_ms, ticks.obeyed_ms)
            ticks = ticks._replace(obeyed_ms=max(ask.order_ms, ticks.obeyed_ms))
        elif not self.is_settled(ask.until_ms, ticks.last_ms):
            if self.is_ahead(ask.until_ms, now, ask.ahead_ms):
                return TickRefused(ask.job, token, ask.until_ms, "ahead", 0, ask.asked_at)
            counter = "missed" if ask.what == "doubt" else ask.what
            ticks = ticks.counted(counter, ask.count) if ticks.since_ms else ticks.counted_from(ask.until_ms)
            ticks = ticks._replace(last_ms=ask.until_ms)
            told = True
        if told:
            self.data["tick", ask.key] = ticks
            self._write_entry(ask.key, ask.entry, ask.record, ask.keep, ask.keep_bytes)
        return TicksSettled(ask.job, token, ask.until_ms, ticks.last_ms, ask.asked_at, ask.order_ms)

    def _record(self, ask: RecordRun, now: int) -> StoreAnswer:
        closed = self._keep_open(ask)
        answer = RunRecorded(ask.job, ask.run, ask.asked_at)
        if self.is_said(dict(self._history(ask.key)).get(ask.run), ask):
            if closed and ask.failures is not None:
                self._count_failures(ask.key, ask.failures, now)
            return answer
        newest, last_run, _ = self.data.get(("last", ask.key), (0, "", ""))
        outranked, is_last = self.outranks(newest, ask.token), last_run == ask.run
        if (ask.witness and is_last) or (not outranked and not is_last):
            self.data["last", ask.key] = (max(newest, ask.token), ask.run, ask.record)
        if ask.failures is not None and not outranked:
            self._count_failures(ask.key, ask.failures, now)
        self._write_entry(ask.key, ask.run, ask.record, ask.keep, ask.keep_bytes)
        if ask.success_of:
            self._succeed(ask, now)
        return answer

    def _keep_open(self, ask: RecordRun) -> bool:
        """Close an open run, or keep it waiting; return whether it was closed by this very call."""
        ticks = self._ticks(ask.key)
        standing = ticks.open.get(ask.run)
        if standing is None or self.outranks(token_of(standing), ask.token):
            return False
        self.data["tick", ask.key] = ticks.with_open(ask.run, ask.mark) if ask.mark else ticks.without(ask.run)
        return not ask.mark

    def _count_failures(self, key: str, failures: int, now: int) -> None:
        ticks = self._ticks(key)
        failed_ms = now if failures else ticks.failed_ms
        self.data["tick", key] = ticks._replace(failures=failures, failed_ms=failed_ms)

    def _succeed(self, ask: RecordRun, now: int) -> None:
        known: tuple[tuple[str, int], ...] = self.data.get(("successes", ask.key), ())
        known = tuple((run, ms) for run, ms in known if ms < now + 1000)
        if ask.run not in dict(known):
            at_ms = max(now, known[-1][1] + 1) if known else now
            self.data["successes", ask.key] = (*known, (str(ask.run), at_ms))[-MOST_SUCCESSES:]

    def _look_at_successes(self, ask: LookAtSuccesses, _now: int) -> StoreAnswer:
        known: tuple[tuple[str, int], ...] = self.data.get(("successes", ask.key), ())
        return SuccessesSeen(ask.job, tuple(ms for _, ms in known if ms > ask.after_ms), ask.asked_at)

    def _write_entry(self, key: str, entry: str, record: str, keep: int, keep_bytes: int) -> None:
        entries = dict(self._history(key)) | {entry: record}  # an older entry keeps its place
        kept = list(entries.items())
        size = sum(len(said.encode()) for _, said in kept)
        while len(kept) > 1 and (len(kept) > keep or size > keep_bytes):
            size -= len(kept.pop(0)[1].encode())
        self.data["history", key] = tuple(kept) if size <= max(keep_bytes, LONGEST_ENTRY) else ()

    # Reading the dict

    def _ticks(self, key: str, now: int | None = None) -> Ticks:
        ticks: Ticks = self.data.get(("tick", key), NO_TICKS)
        if now is None:
            return ticks
        if self.is_of_another_day(ticks.last_ms, now):
            ticks = ticks._replace(last_ms=0)
        return ticks._replace(obeyed_ms=0) if self.is_of_another_day(ticks.obeyed_ms, now) else ticks

    def _history(self, key: str) -> Entries:
        history: Entries = self.data.get(("history", key), ())
        return history

    def _last_record(self, key: str) -> Mapping[str, object] | None:
        found = self.data.get(("last", key))
        return parse_info(found[2]) or None if found else None

    def _held(self, key: str, now: int) -> Held | None:
        held: Held | None = self.data.get(("lease", key))
        return held if held is not None and held.end_ms > now else None

    def _standing(self, key: str, now: int) -> LeaseValue | None:
        held = self._held(key, now)
        return held.value if held else None


def token_of(mark: str) -> int:
    """Return the token of a mark as the script finds it."""
    found = re.search(r'"token":(\d+)', mark)
    return int(found[1]) if found else 0


def open_runs(ticks: Ticks) -> tuple[OpenRun, ...]:
    """Return the open runs that can be read, in the order of their ticks."""
    parsed = (parse_mark(run, mark) for run, mark in ticks.open.items())
    return tuple(sorted((run for run in parsed if run is not None), key=lambda run: (run.tick_ms or 0, run.run)))
