"""What is made from the model: the shipped JSON Schema and the reference page."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

import orchestrator
from orchestrator import config
from orchestrator.config import reference
from orchestrator.config.entry import Entry
from orchestrator.config.model import File, Job, JobDefaults
from orchestrator.config.sections import Lease

ROOT = Path(__file__).parents[2]


def entries(entry: type[Entry] = File) -> Iterator[type[Entry]]:
    """Yield a mapping of the file, and those below it."""
    yield entry
    for key in entry.fields_by_key():
        if below := entry.below(key):
            yield from entries(below)


def test_the_shipped_schema_is_current() -> None:
    shipped = Path(orchestrator.__file__).parent / "jobs.schema.json"

    assert shipped.read_text(encoding="utf-8") == reference.schema_text(), "run `make reference`"


def test_the_reference_page_is_current() -> None:
    assert (ROOT / "docs/jobs-yaml.md").read_text(encoding="utf-8") == reference.markdown(), "run `make reference`"


def test_every_key_has_a_meaning() -> None:
    described = {f"{entry.__name__}.{key}": field.description for entry in entries() for key, field in keys_of(entry)}

    assert [key for key, description in described.items() if not description] == []


def keys_of(entry: type[Entry]) -> list[tuple[str, FieldInfo]]:
    """Return the keys of a mapping with their fields."""
    return list(entry.fields_by_key().items())


def test_every_mapping_has_a_section_in_the_reference() -> None:
    """What only `defaults` has stands in that of the job."""
    assert {entry for _, entry in reference.SECTIONS} == set(entries()) - {JobDefaults, Lease}


def test_every_key_of_a_job_stands_in_one_group_of_the_reference() -> None:
    grouped = [key for _, keys in reference.GROUPS for key in keys]

    assert sorted(grouped) == sorted(Job.fields_by_key())


def test_no_planned_key_is_built() -> None:
    assert [f"{entry.__name__}.{key}" for entry in entries() for key, _ in keys_of(entry) if key in entry.PLANNED] == []


def test_the_schema_shows_values_as_people_write_them() -> None:
    schema = json.loads(reference.schema_text())
    lease = schema["$defs"]["JobLease"]["properties"]

    assert lease["ttl"]["default"] == "15s"
    assert lease["ttl"]["type"] == "string"
    assert "default" not in lease["key"]
    assert schema["$defs"]["Log"]["properties"]["max_size"]["default"] == "10MB"
    assert schema["$defs"]["Job"]["properties"]["timeout"]["type"] == "string"
    assert schema["additionalProperties"] is False
    assert "as" in schema["$defs"]["Limits"]["properties"]
    assert {"$ref": "#/$defs/Hook"} in schema["$defs"]["Job"]["properties"]["on_start"]["anyOf"]


def test_no_key_may_be_null_in_the_schema() -> None:
    """A key without a value is refused."""
    assert '"null"' not in reference.schema_text()


def test_the_example_is_sound() -> None:
    cluster = config.load(ROOT / "jobs.example.yaml", {})

    assert {spec.kind.value for spec in cluster.jobs} == {"service", "cron"}


def test_the_examples_first_line_names_the_shipped_schema() -> None:
    first = (ROOT / "jobs.example.yaml").read_text(encoding="utf-8").split("\n")[0]

    assert first == "# yaml-language-server: $schema=./orchestrator/jobs.schema.json"


def test_the_examples_of_the_reference_page_are_sound() -> None:
    texts = [block.split("```")[0] for block in reference.markdown().split("```yaml\n")[1:]]

    assert [[spec.name for spec in config.parse(text, "f", {}).jobs] for text in texts] == [
        ["beat", "invoices"],
        ["invoices", "summary", "new-year"],
        ["web"],
    ]
