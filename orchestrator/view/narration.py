"""How a node's own lines are worded: for people, as logfmt, as JSON.

The message is an event name, the facts are fields; `human` is the only place that turns them into sentences.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from orchestrator.core.messages import Say
from orchestrator.view.phrases import clean

SENTENCES: Mapping[str, str] = {
    "node.up": "up as {node} in the cluster {cluster}, with {redis}",
    "node.idle": "the file has no jobs",
    "node.joined": "joined the cluster as {node}; {members} node(s) live",
    "node.waiting": "waiting {left_s} s: {why}",
    "node.leaving": "leaving: stopping every job and giving its lease back",
    "node.late": "a turn came {by_s} s late",
    "node.failed": "{job} has failed for good: leaving with its exit status {exit_status}",
    "file.reloaded": "took the file over: {added} new, {removed} removed, {restarted} restarted, {moved} under another"
    " lease, {applied} taken over as they run",
    "file.refused": "the file is refused, nothing changes: {why}",
    "file.differs": "node {node} has another definition of {jobs}; the holder's decides",
    "job.removed": "is gone from the file, and nothing of it is left here",
    "redis.silent": "Redis does not answer ({problem}); runs go on until their leases must end",
    "redis.answers": "Redis answers again after {after_s} s",
    "redis.started_again": "the embedded server had died or lost its socket and was started again",
    "redis.not_started": "the embedded server cannot be started: {problem}",
    "quarantine.began": "only looking for {left_s} s: {why}",
    "lease.acquired": "holds the lease, token {token}",
    "lease.released": "released the lease, token {token}",
    "lease.lost": "LOST the lease, token {token}: {why}",
    "lease.ended": "gives the lease up: {why}",
    "lease.left": "gives its lease to another node: {why}",
    "lease.put_back": "its lease key had vanished and stands again, token {token}",
    "run.started": "runs, pid {pid}",
    "run.ended": "ended: {outcome} ({end}) after {elapsed_s} s",
    "run.lost": "{run} is lost: node {node} told no end of it",
    "run.retries": "{run} failed: attempt {attempt} follows at {at}",
    "run.reruns": "{run} is lost: attempt {attempt} follows at {at}",
    "retry.dropped": "{run} is not tried again: {why}",
    "run.unproven": "nobody knows yet whether its run ended: {why}",
    "run.stuck": "cannot be killed: {why}",
    "health.failed": "is not well: {why}",
    "health.ok": "is well",
    "hook.failed": "its {hook} command failed: {why}",
    "leftovers.found": "something of {runs} run(s) of an earlier start still lives: ending it first, within 15 s",
    "leftovers.killed": "{count} process(es) of {runs} run(s) had outlived an earlier start of this node; none lives",
    "ledger.failed": "cannot note which runs live ({why}): if main, launcher and leash die at once, the next start will"
    " not find what is left",
    "run.start_repeated": "a bug of ours: {run} was to be started twice, and was not",
    "tick.missed": "{count} tick(s) missed: {why}",
    "tick.skipped": "{count} tick(s) skipped: {why}",
    "tick.lost": "{tick} lost: {why}",
    "order.refused": "{run} is not run: {why}",
    "job.paused": "pauses itself: {why}",
    "clock.set": "the wall clock was set by {by_s} s",
    "clock.wrong": "the wall clock was set by {by_s} s, away from Redis's: schedules go on as if it was not",
    "clock.right": "the wall clock is right again",
    "clock.differs": "the wall clock is {by_s} s {which} Redis's",
    "clock.agrees": "the wall clock agrees with Redis's",
    "launcher.died": "its launcher (pid {pid}) died and is replaced; the runs go on",
    "launcher.not_started": "its launcher cannot be started: {why}; trying on",
    "log.failed": "its output is dropped: {why}",
    "log.restored": "its output is written again, {lost_bytes} bytes were lost",
}


def human(say: Say, utc: float) -> str:
    """Return one line for people: local time, the job if it is about one, a sentence."""
    clock = datetime.fromtimestamp(utc, UTC).astimezone().strftime("%H:%M:%S")
    fields = {name: clean(value) for name, value in say.fields.items()}
    who = str(fields.get("job", "node"))
    sentence = SENTENCES.get(say.event)
    if sentence is None:
        sentence = f"{say.event} " + " ".join(f"{name}={value}" for name, value in fields.items() if name != "job")
    else:
        sentence = sentence.format_map(_Lenient(fields))
    return f"{clock} {who:<12} {sentence.strip()}"


def logfmt(say: Say, utc: float) -> str:
    """Return one line `ts=... level=... event=... field=value`, values quoted where they need it."""
    return " ".join(
        f"{name}={_quoted(value)}"
        for name, value in {"ts": _stamp(utc), "level": say.level, "event": say.event, **say.fields}.items()
    )


def json_line(say: Say, utc: float) -> str:
    """Return one JSON object."""
    return json.dumps({"ts": _stamp(utc), "level": say.level, "event": say.event, **say.fields}, default=str)


FORMATS: Mapping[str, Callable[[Say, float], str]] = {"human": human, "logfmt": logfmt, "json": json_line}
"""`up --log-format`."""


class _Lenient(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def _stamp(utc: float) -> str:
    return datetime.fromtimestamp(utc, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: object) -> str:
    text = clean(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(char in text for char in ' "=') else text
