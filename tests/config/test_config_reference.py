"""What is made from the model: the shipped JSON Schema and the reference page."""

import json
from pathlib import Path

import orchestrator
from orchestrator import config
from orchestrator.config import reference
from orchestrator.config.model import Backoff, Entry, File, Job, JobLease, Log, Node, Stop

ROOT = Path(__file__).parents[2]
ENTRIES: list[type[Entry]] = [File, Node, Job, JobLease, Stop, Backoff, Log]


def test_the_shipped_schema_is_current() -> None:
    shipped = Path(orchestrator.__file__).parent / "jobs.schema.json"

    assert shipped.read_text(encoding="utf-8") == reference.schema_text(), "run `make reference`"


def test_the_reference_page_is_current() -> None:
    assert (ROOT / "docs/jobs-yaml.md").read_text(encoding="utf-8") == reference.markdown(), "run `make reference`"


def test_every_key_has_a_meaning() -> None:
    assert [
        f"{entry.__name__}.{key}" for entry in ENTRIES for key in entry.model_fields if not described(entry, key)
    ] == []


def described(entry: type[Entry], key: str) -> bool:
    """Say whether a key has a docstring."""
    return bool(entry.model_fields[key].description)


def test_the_schema_shows_values_as_people_write_them() -> None:
    schema = json.loads(reference.schema_text())
    lease = schema["$defs"]["JobLease"]["properties"]

    assert lease["ttl"]["default"] == "15s"
    assert lease["ttl"]["type"] == "string"
    assert "default" not in lease["key"]
    assert schema["$defs"]["Log"]["properties"]["max_size"]["default"] == "10MB"
    assert schema["$defs"]["Job"]["properties"]["timeout"]["type"] == "string"
    assert schema["additionalProperties"] is False


def test_the_example_is_sound() -> None:
    cluster = config.load(ROOT / "jobs.example.yaml", {})

    assert {spec.kind.value for spec in cluster.jobs} == {"service", "cron"}


def test_the_examples_first_line_names_the_shipped_schema() -> None:
    first = (ROOT / "jobs.example.yaml").read_text(encoding="utf-8").split("\n")[0]

    assert first == "# yaml-language-server: $schema=./orchestrator/jobs.schema.json"


def test_the_example_of_the_reference_page_is_sound() -> None:
    text = reference.markdown().split("```yaml\n")[1].split("```")[0]

    assert [spec.name for spec in config.parse(text, "f", {}).jobs] == ["beat", "invoices"]
