"""What everybody is shown of a job, and the records of its ended runs until the store has them.

Knows what was sent and what was answered; must never know why a job is in which state.
What the store did not answer is sent again with the next heartbeat, never at once.
"""

import json
from collections.abc import Iterator, Mapping
from zlib import crc32

from orchestrator.core.nouns import JobName, LeaseValue, Moment, RunId, Token
from orchestrator.core.requests import PublishState, RecordRun
from orchestrator.core.spec import JobSpec

MOST_UNRECORDED = 100
"""Records of ended runs that wait for the store; older ones are given up, the log has them."""

PUBLISH_AGAIN_BEATS = 20
"""A published state that somebody deleted or broke stands again after so many heartbeats (a minute)."""


class Bulletin:
    """What is owed to the store about one job."""

    __slots__ = ("_beats", "_published", "_publishing", "_spec", "_unpublished", "_unrecorded")

    def __init__(self, spec: JobSpec) -> None:
        """Begin with nothing to tell."""
        self._spec = spec
        self._published = ""
        self._publishing = ""
        self._unpublished = False
        self._beats = crc32(spec.name.encode()) % PUBLISH_AGAIN_BEATS  # so that not all publish in one heartbeat
        self._unrecorded: list[RecordRun] = []

    @property
    def stands(self) -> bool:
        """Whether something is published, or about to be: then only a change must be shown."""
        return bool(self._published or self._publishing)

    def record(
        self,
        token: Token,
        run: RunId,
        record: Mapping[str, object],
        now: Moment,
        *,
        mark: str = "",
        witness: bool = True,
        failures: int | None = None,
        success_of: tuple[JobName, ...] = (),
    ) -> RecordRun:
        """Have an ended run written down; repeated until it is. The words are those of `RecordRun`."""
        spec = self._spec
        request = RecordRun(
            spec.name,
            spec.key,
            token,
            run,
            json.dumps(record),
            asked_at=now.boot,
            keep=spec.history.runs,
            keep_bytes=spec.history.max_bytes,
            mark=mark,
            witness=witness,
            failures=failures,
            success_of=success_of,
        )
        self._unrecorded = [*self._unrecorded, request][-MOST_UNRECORDED:]
        return request

    def owed(self, run: RunId) -> RecordRun | None:
        """Return the record of a run that the store does not have yet, None if it has it or there is none."""
        return next((record for record in self._unrecorded if record.run == run), None)

    def on_recorded(self, run: RunId) -> None:
        """Stop repeating it."""
        self._unrecorded = [record for record in self._unrecorded if record.run != run]

    def publish(self, lease: LeaseValue, state: Mapping[str, object], now: Moment) -> Iterator[PublishState]:
        """Show a changed state to everybody; one publication at a time."""
        if self._publishing:
            return
        text = json.dumps({"token": lease.token, **state})
        if text != self._published:
            self._publishing = text
            yield PublishState(self._spec.name, self._spec.key, lease, text, asked_at=now.boot)

    def on_published(self, *, was_ours: bool) -> None:
        """Know what everybody sees."""
        self._published, self._publishing = self._publishing if was_ours else "", ""

    def on_silent(self) -> None:
        """Nobody knows whether it was published: it is shown again with the next heartbeat."""
        self._published, self._publishing, self._unpublished = self._publishing, "", True

    def owes(self) -> bool:
        """Count a heartbeat, and say whether `beat` has anything to do in it (of a thousand jobs hardly any has)."""
        self._beats += 1
        return bool(self._unrecorded) or self._unpublished or self._beats % PUBLISH_AGAIN_BEATS == 0

    def beat(self) -> Iterator[RecordRun]:
        """Return the records that are still owed, and show anew what may not be seen."""
        yield from self._unrecorded
        if self._unpublished or self._beats % PUBLISH_AGAIN_BEATS == 0:
            self.forget()

    def forget(self) -> None:
        """Whatever was published no longer counts: show it anew."""
        self._published = self._publishing = ""
        self._unpublished = False
