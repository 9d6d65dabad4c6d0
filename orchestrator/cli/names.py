"""Which job instances are meant by the names somebody typed."""

from collections.abc import Iterable, Sequence

from orchestrator.cli.suggestion import did_you_mean
from orchestrator.core.nouns import JobName
from orchestrator.core.spec import ClusterSpec
from orchestrator.errors import NotFoundError


def instances_meant(asked: Sequence[str], known: Iterable[str], spec: ClusterSpec | None) -> list[JobName]:
    """Return the instances that names stand for, each once, in the order they were asked for.

    `worker` means all instances of the job `worker`; `worker.2` means that one, and `worker.0` the first alone.

    Args:
        asked: As typed.
        known: Every instance there is.
        spec: The file, if there is one: it knows which instances belong to one job.

    Raises:
        NotFoundError: A name stands for nothing; nothing is returned for the others either.
    """
    instances = list(known)
    jobs = {job.name: job.job for job in spec.jobs} if spec else {}
    found: dict[JobName, None] = {}
    for name in asked:
        of_job = [instance for instance in instances if _job_of(instance, instances, jobs) == name]
        exact = [instance for instance in instances if instance in (name, name.removesuffix(".0"))]
        meant = of_job or exact
        if not meant:
            raise NotFoundError(f"no such job `{name}`" + did_you_mean(name, instances))
        found.update(dict.fromkeys(map(JobName, meant)))
    return list(found)


def instance_meant(asked: str, known: Iterable[str]) -> JobName:
    """Return the one instance a name stands for: `worker` is the first one here.

    Raises:
        NotFoundError: There is none.
    """
    instances = list(known)
    for name in (asked, asked.removesuffix(".0")):
        if name in instances:
            return JobName(name)
    raise NotFoundError(f"no such job `{asked}`" + did_you_mean(asked, instances))


def _job_of(instance: str, instances: Sequence[str], jobs: dict[JobName, str]) -> str:
    """Return the job an instance belongs to; without the file, `worker.1` belongs to `worker` if that exists."""
    job = jobs.get(JobName(instance))
    if job is not None:
        return job
    stem, _, number = instance.rpartition(".")
    return stem if number.isdigit() and stem in instances else instance
