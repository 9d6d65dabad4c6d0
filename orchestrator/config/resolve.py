"""From what was written to what will run: defaults merged, relations checked, instances counted out.

Knows in which order that is done; must never read YAML, a file or a clock. The rules:

1. A job's own key wins over `defaults`; mappings are merged key by key, as people know it from compose files.
   Of keys that exclude each other a job's own takes the place of another one's in `defaults`.
2. A key of `defaults` that means nothing for a job (`schedules.meaningless`) is left aside, so that it changes
   neither what the job is nor its `definition`. In the job itself it is refused.
3. What contradicts what is said in `relations.py` and `schedules.py`, for all jobs together.
4. The specs stand in the order in which they are started: by priority, then as in the file.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from orchestrator.config.document import Complaint, Document
from orchestrator.config.entry import Entry
from orchestrator.config.model import Job, JobDefaults
from orchestrator.config.relations import collisions, default_problems, dependencies, problems
from orchestrator.config.schedules import followers, following_problems, meaningless, nature_of, schedule_problems
from orchestrator.config.specs import specs_of
from orchestrator.core.spec import JobSpec

_E = TypeVar("_E", bound=Entry)


@dataclass(frozen=True, slots=True)
class Resolved:
    """All jobs of a file, one spec an instance, and what is wrong with them together."""

    jobs: tuple[JobSpec, ...]
    complaints: tuple[Complaint, ...]


def resolve(jobs: Mapping[str, Job], defaults: JobDefaults, document: Document, directory: Path) -> Resolved:
    """Build the specs of jobs whose single values are sound.

    Args:
        jobs: By name.
        defaults: Merged into each.
        document: For the places of complaints.
        directory: What paths are relative to; absolute.
    """
    following = followers(jobs, document)
    complaints = [*default_problems(defaults, document), *dependencies(jobs, following, document)]
    specs: list[JobSpec] = []
    merged: dict[str, Job] = {}
    for name, own in jobs.items():
        follows = following.get(name, "")
        aside = meaningless(nature_of(own, defaults, follows=follows))
        job = merged[name] = merge(defaults, own, aside)
        complaints += problems(name, own, job, aside, document)
        complaints += schedule_problems(name, own, job, document)
        specs += specs_of(name, job, directory, follows=follows)
    for name, other in following.items():
        complaints += following_problems(name, other, merged, document)
    complaints += collisions(specs, document)
    # A mistake in `defaults` shows once, not once a job.
    return Resolved(tuple(sorted(specs, key=_priority)), tuple(dict.fromkeys(complaints)))


def merge(defaults: Entry, own: _E, aside: Collection[str] = ()) -> _E:
    """Return `own` with what it does not say taken from `defaults`, mappings key by key, but for what is `aside`."""
    update: dict[str, object] = {}
    said = own.model_fields_set
    replaced = own.ONE_OF if said.intersection(own.ONE_OF) else ()
    for key in defaults.model_fields_set:
        if key in aside or key in replaced:
            continue
        theirs, ours = getattr(defaults, key), getattr(own, key)
        if isinstance(theirs, Entry) and isinstance(ours, Entry):
            update[key] = merge(theirs, ours)
        elif key not in said:
            update[key] = theirs
        elif isinstance(theirs, dict) and isinstance(ours, dict):
            update[key] = {**theirs, **ours}
    return own.model_copy(update=update) if update else own


def _priority(spec: JobSpec) -> int:
    return spec.priority
