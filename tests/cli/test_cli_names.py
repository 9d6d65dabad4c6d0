import pytest

from orchestrator.cli.names import instance_meant, instances_meant
from orchestrator.core.nouns import JobName
from orchestrator.core.spec import ClusterSpec, JobSpec, Kind
from orchestrator.core.timing import LeaseTiming
from orchestrator.errors import NotFoundError

KNOWN = ["beat", "worker", "worker.1", "worker.2", "v1.2"]


def spec_of(*instances: tuple[str, str]) -> ClusterSpec:
    """Return a file with some instances, each with its job."""
    timing = LeaseTiming.scaled(15)
    jobs = (JobSpec(JobName(name), job, Kind.SERVICE, ("true",), timing, name, "") for name, job in instances)
    return ClusterSpec("shop", tuple(jobs))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        pytest.param(["beat"], ["beat"], id="a job with one instance"),
        pytest.param(["worker"], ["worker", "worker.1", "worker.2"], id="a job means all its instances"),
        pytest.param(["worker.1"], ["worker.1"], id="an instance means itself"),
        pytest.param(["worker.0"], ["worker"], id="number 0 is the first alone"),
        pytest.param(["v1.2"], ["v1.2"], id="a dot and a digit make no instance of a job that is not there"),
        pytest.param(["worker.2", "worker", "beat"], ["worker.2", "worker", "worker.1", "beat"], id="each once"),
    ],
)
def test_a_name_stands_for_the_instances_of_its_job(asked: list[str], meant: list[str]) -> None:
    assert instances_meant(asked, KNOWN, None) == meant


def test_the_file_knows_which_names_belong_together() -> None:
    apart = spec_of(("worker", "worker"), ("worker.1", "worker.1"))

    assert instances_meant(["worker"], ["worker", "worker.1"], apart) == ["worker"]


def test_one_unknown_name_spoils_all_of_them() -> None:
    with pytest.raises(NotFoundError, match=r"no such job `baet`; did you mean `beat`\?"):
        instances_meant(["worker", "baet"], KNOWN, None)


@pytest.mark.parametrize(("asked", "meant"), [("worker", "worker"), ("worker.0", "worker"), ("worker.2", "worker.2")])
def test_where_one_is_wanted_a_job_is_its_first_instance(asked: str, meant: str) -> None:
    assert instance_meant(asked, KNOWN) == meant


def test_where_one_is_wanted_there_must_be_one() -> None:
    with pytest.raises(NotFoundError, match=r"no such job `nosuch`$"):
        instance_meant("nosuch", KNOWN)
