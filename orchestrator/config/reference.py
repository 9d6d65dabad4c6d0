"""The JSON Schema and the reference page, both made from the model, so that neither can be wrong for long.

    python -m orchestrator.config.reference schema > orchestrator/jobs.schema.json
    python -m orchestrator.config.reference markdown > docs/jobs-yaml.md

`make reference` runs both; a test holds the files in the repository against them.
Knows how the model is shown; must never add a rule of its own.
"""

import json
import sys
from collections.abc import Collection, Iterable
from importlib import resources
from typing import Any

from orchestrator.config import process_values, values
from orchestrator.config.entry import Entry
from orchestrator.config.model import File, Job, Node
from orchestrator.config.sections import Backoff, Health, History, Hook, JobLease, Limits, Log, Reload, Retries, Stop

Schema = dict[str, Any]
"""A piece of JSON Schema."""

SECTIONS: tuple[tuple[str, type[Entry]], ...] = (
    ("The file", File),
    ("`node`", Node),
    ("A job", Job),
    ("`lease`", JobLease),
    ("`stop`", Stop),
    ("`reload`", Reload),
    ("`backoff`", Backoff),
    ("`retries`", Retries),
    ("`history`", History),
    ("`health`", Health),
    ("Hooks", Hook),
    ("`limits`", Limits),
    ("`log`", Log),
)
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What runs, and when", ("command", "cron", "every", "at", "after", "timezone", "timeout", "enabled", "tags")),
    (
        "Which of its ticks run",
        ("not_before", "not_after", "dst", "jitter", "misfire", "misfire_grace", "overlap", "max_instances"),
    ),
    ("Where, and in which order", ("scope", "instances", "lease", "on_redis_loss", "priority")),
    (
        "When it has ended",
        (
            *("restart", "success_exit_codes", "no_restart_exit_codes", "backoff", "healthy_after", "max_failures"),
            *("on_crash_loop", "retries", "pause_after_failures", "on_lost", "history"),
        ),
    ),
    ("While it runs", ("health", "on_unhealthy", "max_age", "max_rss", "reload", "stop")),
    ("Commands at its turns", ("on_start", "on_success", "on_failure", "on_step_down")),
    ("Environment", ("cwd", "env", "env_file", "env_inherit")),
    ("User and limits", ("user", "group", "umask", "nice", "oom_score_adj", "limits")),
    ("Output", ("log",)),
)
"""The keys of a job in the order in which one looks for them; a table of fifty rows is read by nobody."""
_PATTERNS = {
    values.DURATION_PATTERN: "duration",
    values.SIZE_PATTERN: "size",
    values.NAME_PATTERN: "name",
    values.INSTANT_PATTERN: "instant",
    process_values.UMASK_PATTERN: "octal digits",
}
_TRUTH = "`true` \\| `false`"


def schema_text() -> str:
    """Return the JSON Schema of a jobs.yaml, as the file that is shipped."""
    schema = File.model_json_schema(mode="validation")
    described = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "jobs.yaml of orchestrator",
        "$defs": {name: _for_editors(entry) for name, entry in sorted(schema["$defs"].items())},
    }
    return json.dumps(_for_editors(described), indent=2, ensure_ascii=False) + "\n"


def markdown() -> str:
    """Return the reference page."""
    head = resources.files("orchestrator.config").joinpath("reference_head.md").read_text(encoding="utf-8")
    return head + "".join(_section(title, entry) for title, entry in SECTIONS) + _planned()


def _for_editors(entry: Schema) -> Schema:
    """Return an object's schema with what an editor shows as one writes it.

    Pydantic gives defaults as the model holds them (15.0, null), where the file says `15s` or nothing,
    and a title for each key that only repeats the key.
    """
    if "properties" not in entry:
        return entry
    return {**entry, "properties": {key: _property(shape) for key, shape in entry["properties"].items()}}


def _property(shape: Schema) -> Schema:
    shape = {key: value for key, value in shape.items() if key != "title"}
    if options := [option for option in shape.pop("anyOf", []) if option != {"type": "null"}]:
        # A key without a value is refused: None is what a left-out key is, and no file can say it.
        shape = {**(options[0] if len(options) == 1 else {"anyOf": options}), **shape}
    default = shape.get("default")
    if default is None or isinstance(default, dict):
        shape.pop("default", None)
    elif shape.get("pattern") == values.DURATION_PATTERN:
        shape["default"] = values.written(default)
    elif shape.get("pattern") == values.SIZE_PATTERN:
        shape["default"] = values.written_size(default)
    return shape


def _section(title: str, entry: type[Entry]) -> str:
    schema = json.loads(schema_text())
    properties = schema["properties"] if entry is File else schema["$defs"][entry.__name__]["properties"]
    required = [key for key, field in entry.fields_by_key().items() if field.is_required()]
    if entry is Job:
        tables = [f"### {group}\n\n{_table(entry, properties, keys, required)}" for group, keys in GROUPS]
    else:
        tables = [_table(entry, properties, dict.fromkeys([*required, *entry.fields_by_key()]), required)]
    return f"\n## {title}\n\n{_prose(entry)}\n\n" + "\n".join(tables)


def _table(entry: type[Entry], properties: Schema, keys: Iterable[str], required: Collection[str]) -> str:
    rows = [
        f"| `{key}` | {_kind(properties[key])} | {_default(key, properties[key], required)} | {_meaning(entry, key)} |"
        for key in keys
    ]
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _prose(entry: type[Entry]) -> str:
    return "\n".join(line.strip() for line in (entry.__doc__ or "").strip().splitlines())


def _kind(shape: Schema) -> str:
    """Return what a value looks like, in a word or two."""
    if "pattern" in shape:
        return _PATTERNS[shape["pattern"]]
    if "$ref" in shape:
        return _referred(shape["$ref"].rsplit("/", 1)[-1])
    if "enum" in shape or "const" in shape:
        return " \\| ".join(f"`{word}`" for word in shape.get("enum", [shape.get("const")]))
    if options := shape.get("anyOf", shape.get("oneOf")):
        kinds = dict.fromkeys(_kind(option) for option in options)
        if kinds.keys() & {
            "text",
            "octal digits",
        }:  # what the schema lists as number or truth beside a text is read as the text it is
            kinds = dict.fromkeys(kind for kind in kinds if kind not in {"number", _TRUTH})
        return " \\| ".join(kinds)
    if shape.get("type") == "array":
        return f"list of {_kind(shape['items'])}s"
    if shape.get("type") == "object":
        return "mapping"
    return {"string": "text", "integer": "number", "number": "number", "boolean": _TRUTH}[shape["type"]]


def _referred(name: str) -> str:
    sections = {entry.__name__: title for title, entry in SECTIONS}
    if name in {"JobDefaults", "Lease"}:
        return "mapping"
    if name in sections:
        return f"mapping, see {sections[name]}"
    return _kind(File.model_json_schema()["$defs"][name])


def _default(key: str, shape: Schema, required: Collection[str]) -> str:
    if key in required:
        return "required"
    default = shape.get("default")
    return "" if default is None else f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _meaning(entry: type[Entry], key: str) -> str:
    return " ".join((entry.fields_by_key()[key].description or "").split()).replace("|", "\\|")


def _planned() -> str:
    """Return the section on keys that are refused as "planned"."""
    rows = [
        f"| {title} | {', '.join(f'`{key}`' for key in sorted(entry.PLANNED))} |"
        for title, entry in SECTIONS
        if entry.PLANNED
    ]
    table = "\n".join(["| where | keys |", "|---|---|", *rows])
    return f"\n## Planned\n\nThese keys are refused as planned, not in this version.\n\n{table}\n"


if __name__ == "__main__":
    sys.stdout.write({"schema": schema_text, "markdown": markdown}[sys.argv[1]]())
