"""What becomes of each job when the file is read anew: pure comparison, and the one classification of fields.

    effect      the job                                   what happens
    ADDED       is new in the file                        it begins as a standby
    REMOVED     is gone from the file                     its run is stopped, its lease given back
    APPLIED     differs in what only decisions read       nothing that runs is touched
    RESTARTED   differs in what its processes were        a service's run is stopped and started anew under the same
                started with                              lease; a cron's next run is by the new definition
    MOVED       differs in what its lease or schedule     as RESTARTED, and the lease is given back in between
                is made of

The comparison goes over the fields of the model, so that no field can be forgotten
(process-compose#493: a changed cron was not detected); what is not named below restarts.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum

from orchestrator.core.nouns import JobName
from orchestrator.core.spec import ClusterSpec, JobSpec, Kind

NOT_COMPARED = frozenset({"definition"})
"""Made from the other fields."""

ONLY_DECIDE = frozenset(
    {
        *("restart", "success_exit_codes", "no_restart_exit_codes", "backoff", "on_crash_loop", "on_unhealthy"),
        *("enabled", "timeout_s", "misfire_grace_s", "max_age_s", "tags", "priority", "after"),
        *("misfire", "overlap", "max_instances", "on_lost", "retries", "jitter_s", "pause_after_failures", "history"),
    }
)
"""Read whenever something is decided; no process has them."""

MAKE_THE_LEASE = frozenset({"job", "kind", "instance", "key", "lease", "schedule", "scope", "on_redis_loss"})
"""A lease taken under the old ones says nothing about the new ones."""


class Effect(IntEnum):
    """See the table in the module's head; of two changes the greater one counts."""

    APPLIED = 1
    RESTARTED = 2
    MOVED = 3
    ADDED = 4
    REMOVED = 5


@dataclass(frozen=True, slots=True)
class Change:
    """What a reload does to one job.

    Attributes:
        fields: What differs, by its path in the model: old and new text; empty for added and removed jobs.
    """

    job: JobName
    effect: Effect
    fields: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Revision:
    """What the file says now about a job that still runs by what it said before; no spec: it is gone."""

    effect: Effect
    spec: JobSpec | None

    def after(self, earlier: "Revision | None") -> "Revision":
        """Return what is to be done where an earlier one still waits: this definition, by the greater effect."""
        return self if earlier is None else Revision(max(self.effect, earlier.effect), self.spec)


def refusal(old: ClusterSpec, new: ClusterSpec) -> str:
    """Return why a running node cannot go over to the new file, "" if it can."""
    for name in ("cluster", "redis", "node", "node_tags"):
        if getattr(old, name) != getattr(new, name):
            word = {"node": "node.name", "node_tags": "node.tags"}.get(name, name)
            return f"`{word}` changed, which a running node cannot follow: restart the node"
    return ""


def compare(old: ClusterSpec, new: ClusterSpec) -> tuple[Change, ...]:
    """Return what changes, in the order of the new file, removed jobs last; untouched jobs do not appear."""
    before = {job.name: job for job in old.jobs}
    after = {job.name: job for job in new.jobs}
    changes = [_change(before.get(name), job) for name, job in after.items()]
    removed = [Change(name, Effect.REMOVED, {}) for name in before if name not in after]
    return (*(change for change in changes if change is not None), *removed)


def effect_of(changed: frozenset[str]) -> Effect:
    """Return what a change of these fields of a `JobSpec` does."""
    if changed & MAKE_THE_LEASE:
        return Effect.MOVED
    return Effect.RESTARTED if changed - ONLY_DECIDE else Effect.APPLIED


def substance(spec: JobSpec) -> str:
    """Return a short hash of what runs, without what only decides: who has run this once has run it."""
    kept = {name: value for name, value in _leaves(spec) if name.partition(".")[0] not in _NO_SUBSTANCE}
    return hashlib.sha256(repr(sorted(kept.items())).encode()).hexdigest()[:12]


_NO_SUBSTANCE = (
    ONLY_DECIDE | NOT_COMPARED | {"key", "lease", "log", "stop", "reload", "health", "max_rss_bytes", "on_redis_loss"}
)


def _change(old: JobSpec | None, new: JobSpec) -> Change | None:
    if old is None:
        return Change(new.name, Effect.ADDED, {})
    if old == new:
        return None
    before, after = dict(_leaves(old)), dict(_leaves(new))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    changed = {name: (_shown(name, before.get(name)), _shown(name, after.get(name))) for name in names}
    top = frozenset(name.partition(".")[0] for name in names) - NOT_COMPARED
    if not top:
        return None  # only the hash over other instances differs
    scaled = "lease.ttl_s" in changed  # the other numbers follow it, unless the file gives them
    shown = {
        _as_in_the_file(name): pair
        for name, pair in changed.items()
        if name not in NOT_COMPARED and not (scaled and name.startswith("lease.") and name != "lease.ttl_s")
    }
    return Change(new.name, effect_of(top), shown)


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if is_dataclass(value):
        for each in fields(value):
            yield from _leaves(getattr(value, each.name), f"{path}.{each.name}" if path else each.name)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{path}.{key}", item
    elif isinstance(value, frozenset):
        yield path, tuple(sorted(value))
    else:
        yield path, value


def _shown(name: str, value: object) -> str:
    """Return a value as one writes it in the file."""
    if name.startswith("env."):
        return "-" if value is None else "(not shown)"  # it may be a password
    if value is None or value in ((), ""):
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join("=".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in value)
    if name == "umask":
        return f"{value:03o}"
    return f"{value:g}s" if name.endswith("_s") and isinstance(value, float) else str(value)


def _as_in_the_file(name: str) -> str:
    """Return the key of the file that a field comes from."""
    first, _, rest = name.partition(".")
    if first == "schedule" or rest in ("healthy_after_s", "max_failures"):
        return _KEYS[rest]
    return _KEYS.get(name) or (
        f"{_KEYS.get(first, first)}.{_KEYS.get(rest, rest)}" if rest else _KEYS.get(first, first)
    )


_KEYS = {
    "argv": "command",
    "key": "lease.key",
    "env_files": "env_file",
    "max_bytes": "max_size",
    "max_rss_bytes": "max_rss",
    "cron": "cron",
    "timezone": "timezone",
    "every_s": "every",
    "at_utc": "at",
    "after": "after",
    "dst": "dst",
    "not_before_utc": "not_before",
    "not_after_utc": "not_after",
    "jitter_s": "jitter",
    "history.max_bytes": "history.max_size",
    "healthy_after_s": "healthy_after",
    "max_failures": "max_failures",
    "ttl_s": "ttl",
    **{f"{word}_s": word for word in ("timeout", "misfire_grace", "max_age", "delay", "max_delay", "interval")},
    **{f"{word}_s": word for word in ("start_period", "heartbeat", "request_timeout", "step_down_grace", "kill_time")},
    "margin_s": "margin",
}


def runs_are_cut(spec: JobSpec, effect: Effect) -> bool:
    """Say whether a present run is stopped for it; a cron's run goes on to its end unless the job is removed."""
    if effect is Effect.REMOVED:
        return True
    return spec.kind is Kind.SERVICE and effect in (Effect.RESTARTED, Effect.MOVED)
