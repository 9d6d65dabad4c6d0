"""What became of an order to run a job once? Judges by the job's past; asks nothing and waits for nothing itself.

| the past tells of the run that was ordered | the order |
|---|---|
| nothing | was not taken up yet |
| it is open, or one of its attempts is to be tried again | was taken up: the run has started |
| it was skipped | was refused by the holder, with its reason |
| it ended, and nothing of it is open | is done |
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.cli.waiting import Outcome
from orchestrator.core.ends import describe_end
from orchestrator.core.nouns import OpenRun
from orchestrator.core.past import Past
from orchestrator.view import phrases
from orchestrator.view.entries import EntryView, entry_of


@dataclass(frozen=True, slots=True)
class Fate:
    """What is known of the run that was ordered.

    Attributes:
        open: Its present attempt, or what is to be tried again; None: neither.
        attempts: Those that ended, newest first.
        end: How the newest of them ended, in one clause, "" if none did.
    """

    open: OpenRun | None = None
    attempts: Sequence[EntryView] = ()
    end: str = ""

    @property
    def taken_up(self) -> bool:
        """Whether the holder has seen to the order."""
        return self.open is not None or bool(self.attempts)

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.open is None and bool(self.attempts)


def fate_of(run: str, past: Past) -> Fate:
    """Find what a job's past tells of a run and of the attempts that followed it."""
    attempt = re.compile(re.escape(run) + r"(\.[0-9]+)?")
    told = [entry for entry in past.entries if attempt.fullmatch(str(entry.get("run")))]
    return Fate(
        open=next((open_run for open_run in past.open if attempt.fullmatch(open_run.run)), None),
        attempts=[entry_of(entry) for entry in told],
        end=describe_end(told[0]) if told else "",
    )


def outcome(name: str, run: str, fate: Fate, *, until_end: bool) -> Outcome | None:
    """Return how the order came out; None while that is not known.

    Args:
        name: The job.
        run: The id of the run that was ordered.
        fate: What is known of it.
        until_end: Whether its end is waited for, or its start alone.
    """
    if fate.over:
        return _over(name, fate)
    if fate.open is None or until_end:
        return None
    return Outcome(good=True, word="started", name=name, how=f"on {fate.open.node}, run {run}")


def pending(name: str, fate: Fate, now_utc: float) -> str:
    """Return what is waited for, for people."""
    if fate.open is None:
        return f"{name} (not taken up yet)"
    if not fate.open.retry_ms:
        return f"{name} (running on {fate.open.node}, attempt {fate.open.attempt})"
    due_s = fate.open.retry_ms / 1000 - now_utc
    ended = f"attempt {fate.open.attempt} ended with {fate.end}; " if fate.end else ""
    return f"{name} ({ended}the next one follows in {phrases.span(due_s)})"


def _over(name: str, fate: Fate) -> Outcome:
    last = fate.attempts[0]
    if last.outcome == "skipped":
        return Outcome(good=False, word="skipped", name=name, how=last.why or "the holder did not say why")
    took = f" after {phrases.span(last.elapsed_s)}" if last.elapsed_s is not None else ""
    tries = f", attempt {last.attempt}" if last.attempt is not None and last.attempt > 1 else ""
    how = f"{fate.end}{took} on {last.node or 'an unknown node'}{tries}"
    return Outcome(good=last.outcome == "ok", word=last.outcome or "ended", name=name, how=how)
