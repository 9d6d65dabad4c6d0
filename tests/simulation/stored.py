"""What the store model keeps: immutable values, so that a shallow copy of its dict is a snapshot."""

from typing import NamedTuple

from orchestrator.core.nouns import LeaseValue

Key = tuple[str, object]
"""Part (lease, token, released, alive, tick, last, state, epoch, member ...) and whose: lease key, bucket, node."""


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


class Ticks(NamedTuple):
    """The tick hash of a cron job; `claim` is (tick, token, run)."""

    last_ms: int
    schedule: str | None
    claim: tuple[int, int, str] | None


class Head(NamedTuple):
    """What is known of a node."""

    incarnation: str
    since_ms: int
    end_ms: int
    state_id: str
    info: str
