"""What makes a job a cron, which of its keys then mean something, and what is wrong with when it runs.

Knows the keys that say when a job runs; must never know how a value is written. The rules:

1. One of `cron`, `every` and `at` makes a job a cron, and so does `after` alone, if it names one cron and nothing else.
   Two of them are refused, since two schedules are two jobs.
2. A key that means nothing for its job is refused in the job and left aside in `defaults`: nothing that was
   written for one job stays silently without effect.
3. What could never run is refused: an `at` outside its bounds, bounds between which there is no tick.
4. `jitter` is shorter than the shortest interval between two ticks, or a run would start after the next tick.
5. Who runs after another one can ask only one lease when that one succeeded: both have one instance and a lease.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from math import nextafter

from orchestrator.config.document import Complaint, Document
from orchestrator.config.document import Path as KeyPath
from orchestrator.config.model import Job, JobDefaults
from orchestrator.config.specs import schedule_of
from orchestrator.config.values import written
from orchestrator.core.cron_text import is_period
from orchestrator.core.schedule import Schedule
from orchestrator.core.spec import Overlap, ScheduleSpec, Scope

SCHEDULES = ("cron", "every", "at")
"""The keys that make a job a cron by themselves."""
ONLY_SERVICE = (
    *("restart", "no_restart_exit_codes", "backoff", "healthy_after", "max_failures", "on_crash_loop"),
    *("max_age", "max_rss", "health", "on_unhealthy", "reload"),
)
ONLY_CRON = (
    *("timeout", "misfire_grace", "timezone", "dst", "jitter", "not_before", "not_after", "misfire", "overlap"),
    *("max_instances", "on_lost", "retries", "pause_after_failures"),
)
ONLY_OWN_INSTANTS = ("timezone", "dst", "jitter", "not_before", "not_after")
"""What means nothing for a job that runs after another one."""
ONLY_LEASED = (*("instances", "lease", "on_redis_loss", "on_crash_loop", "on_lost", "pause_after_failures", "history"),)
"""What means nothing where every node runs one, without a lease."""


@dataclass(frozen=True, slots=True)
class Nature:
    """What decides which keys mean something for a job.

    Attributes:
        kind: cron | every | at | after, "" for a service. `@every` is a period.
        is_bounded: It has `not_before` or `not_after`.
    """

    kind: str
    scope: Scope
    overlap: Overlap
    is_bounded: bool


def followers(jobs: Mapping[str, Job], document: Document) -> Mapping[str, str]:
    """Return which jobs run after each success of which other one.

    A job that is not sound in itself is missing in `jobs`, and yet makes a cron of who follows it.
    """
    waiting = defaultdict(list)
    for name, job in jobs.items():
        if not own_kind(job) and len(job.after) == 1:
            waiting[job.after[0]].append(name)
    crons = [name for name in waiting if any(("jobs", name, key) in document.keys for key in SCHEDULES)]
    found: dict[str, str] = {}
    for other in crons:  # grows meanwhile
        following = waiting.pop(other, [])
        found |= dict.fromkeys(following, other)
        crons += following
    return found


def own_kind(job: Job) -> str:
    """Return which key says when a job runs, "" if none of its own does."""
    kind = next((key for key in SCHEDULES if getattr(job, key) is not None), "")
    return "every" if job.cron is not None and is_period(job.cron) else kind


def nature_of(own: Job, defaults: JobDefaults, *, follows: str) -> Nature:
    """Return what decides over the keys of a job, of which some may come from `defaults`."""

    def merged(key: str) -> JobDefaults:
        return own if key in own.model_fields_set else defaults

    bounds = (merged("not_before").not_before, merged("not_after").not_after)
    return Nature(
        kind="after" if follows else own_kind(own),
        scope=merged("scope").scope,
        overlap=merged("overlap").overlap,
        is_bounded=bounds != (None, None),
    )


@lru_cache(maxsize=64)
def meaningless(nature: Nature) -> Mapping[str, str]:
    """Return the keys that mean nothing for a job of this nature, each with why and what to do."""
    aside: dict[str, str] = {}
    if nature.kind:
        of_it = ", which `after` makes of it" if nature.kind == "after" else ""
        aside |= dict.fromkeys(ONLY_SERVICE, f"means nothing for a cron job{of_it}; remove it")
        if nature.kind != "cron":
            aside["dst"] = "means nothing without a `cron` of fields; remove it"
        if nature.kind == "every" and not nature.is_bounded:
            aside["timezone"] = "means nothing with `every`; remove it"
        if nature.kind == "after":
            aside |= dict.fromkeys(ONLY_OWN_INSTANTS, "means nothing for a job that runs after another one; remove it")
        else:
            aside["after"] = "a cron runs at its own instants, or after another one: remove either"
        if nature.overlap is not Overlap.ALLOW:
            aside["max_instances"] = "means nothing without `overlap: allow`; remove it"
    else:
        aside |= dict.fromkeys(ONLY_CRON, "means nothing without `cron`, `every` or `at`; remove it")
    if nature.scope is Scope.NODE:
        aside |= dict.fromkeys(ONLY_LEASED, "means nothing with `scope: node`, without a lease; remove it")
    return aside


def schedule_problems(name: str, own: Job, job: Job, document: Document) -> Iterator[Complaint]:
    """Yield what is wrong with when a job runs: `own` as it is written, `job` with its defaults."""
    here: KeyPath = ("jobs", name)
    first, *others = [key for key in SCHEDULES if getattr(own, key) is not None] or [""]
    for key in others:
        yield document.complaint((*here, key), f"`{first}` and `{key}` exclude each other; make two jobs", at_key=True)
    if not first or others:
        return
    spec = schedule_of(job) or ScheduleSpec()
    try:
        schedule = Schedule(spec, name=name)
    except ValueError as problem:
        yield document.complaint((*here, first), str(problem))
        return
    yield from _bound_problems(here, first, spec, schedule, document)
    if job.jitter >= (shortest_s := schedule.shortest_interval_s()):
        what = f"must be shorter than the shortest interval between two ticks of `{name}`, {written(shortest_s)}"
        yield document.complaint(document.source(here, "jitter"), what)


def _bound_problems(
    here: KeyPath, key: str, spec: ScheduleSpec, schedule: Schedule, document: Document
) -> Iterator[Complaint]:
    begin, end = spec.not_before_utc, spec.not_after_utc
    if begin is not None and end is not None and begin >= end:
        if (*here, "not_before") in document.values and (*here, "not_after") not in document.values:
            yield document.complaint((*here, "not_before"), f"must be earlier than `not_after` ({_iso(end)})")
        else:
            what = f"must be later than `not_before` ({_iso(begin)})"
            yield document.complaint(document.source(here, "not_after"), what)
    elif spec.at_utc is not None and begin is not None and spec.at_utc < begin:
        yield document.complaint(
            (*here, key), f"is before `not_before` ({_iso(begin)}) and would never run; change either"
        )
    elif spec.at_utc is not None and end is not None and spec.at_utc > end:
        yield document.complaint((*here, key), f"is after `not_after` ({_iso(end)}) and would never run; change either")
    elif begin is not None and end is not None and schedule.next_after(nextafter(begin, 0)) is None:
        what = f"has no tick from `not_before` ({_iso(begin)}) to `not_after` ({_iso(end)}); change one of the three"
        yield document.complaint((*here, key), what)


def following_problems(name: str, other: str, jobs: Mapping[str, Job], document: Document) -> Iterator[Complaint]:
    """Yield what is wrong with a job that runs after each success of another one; `jobs` have their defaults."""
    here: KeyPath = ("jobs", name)
    if jobs[name].instances > 1:
        what = f"a job that runs after each success of `{other}` has one instance; remove it"
        yield document.complaint((*here, "instances"), what, at_key=True)
    if jobs[name].scope is Scope.NODE:
        what = f"`{name}` runs after each success of `{other}`, of which only a lease tells: write `scope: cluster`"
        yield document.complaint(document.source(here, "scope"), what)
    if other not in jobs:
        return
    if jobs[other].instances > 1:
        what = f"`{other}` has {jobs[other].instances} instances; name a cron of which there is one"
        yield document.complaint((*here, "after", 0), what)
    if jobs[other].scope is Scope.NODE:
        what = f"`{other}` has `scope: node`, and nowhere stands when it succeeded; name a cron with a lease"
        yield document.complaint((*here, "after", 0), what)


def _iso(utc: float) -> str:
    return datetime.fromtimestamp(utc, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
