"""What the store model keeps: immutable values, so that a shallow copy of its dict is a snapshot."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from orchestrator.core.nouns import LeaseValue

Key = tuple[str, object]
"""Part (lease, token, tick, history, epoch, member ...) and whose: lease key, bucket, node."""


class Held(NamedTuple):
    """What stands under a lease key."""

    value: LeaseValue
    end_ms: int


class Note(NamedTuple):
    """What was last released cleanly."""

    token: int
    next_node: str
    until_ms: int
    epoch: str
    end_ms: int


NO_NOTE = Note(0, "", 0, "", 0)


Entries = tuple[tuple[str, str], ...]
"""A history: entries and their records, in the order in which they were first written."""


class Ticks(NamedTuple):
    """The tick hash of a cron job; `open` are the marks of its open runs."""

    last_ms: int = 0
    schedule: str | None = None
    since_ms: int = 0
    ran: int = 0
    skipped: int = 0
    missed: int = 0
    failures: int = 0
    failed_ms: int = 0
    obeyed_ms: int = 0
    open: Mapping[str, str] = MappingProxyType({})

    def with_open(self, run: str, mark: str) -> "Ticks":
        """Return it with one more open run, or with another mark of it."""
        return self._replace(open=MappingProxyType({**self.open, run: mark}))

    def without(self, run: str) -> "Ticks":
        """Return it where this run is open no more."""
        return self._replace(open=MappingProxyType({name: mark for name, mark in self.open.items() if name != run}))

    def counted_from(self, since_ms: int) -> "Ticks":
        """Return it where all that was counted is forgotten."""
        return self._replace(since_ms=since_ms, ran=0, skipped=0, missed=0)

    def counted(self, what: str, count: int) -> "Ticks":
        """Return it with so many more ticks skipped or missed."""
        return self._replace(**{what: getattr(self, what) + count})


NO_TICKS = Ticks()


class Head(NamedTuple):
    """What is known of a node."""

    incarnation: str
    since_ms: int
    end_ms: int
    state_id: str
    info: str
