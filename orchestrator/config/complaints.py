"""What pydantic found, in the words of this project and at the places of the file.

Knows pydantic's error types; must never decide what is right or wrong: the model has decided already.
"""

import re

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.config.document import Complaint, Document, Path
from orchestrator.config.entry import Entry
from orchestrator.config.model import BRANCHES, entry_at
from orchestrator.config.values import kind_of, meant


def complaints_of(error: ValidationError, document: Document, above: Path = ()) -> list[Complaint]:
    """Return one complaint for each error; `above` is where the validated data stands in the file."""
    return [_complaint(detail, document, above) for detail in error.errors(include_url=False)]


def path_of(detail: ErrorDetails, document: Document, above: Path = ()) -> Path:
    """Return where an error stands in the file: pydantic's location without the names of a union's branches."""
    path = above
    *inner, last = [part for part in detail["loc"] if part not in BRANCHES] or [""]
    for part in inner:
        path = (*path, part) if (*path, part) in document.values else path
    is_branch = (*path, last) not in document.values and detail["type"] != "missing"
    return path if is_branch else (*path, last)


def _complaint(detail: ErrorDetails, document: Document, above: Path) -> Complaint:
    path = path_of(detail, document, above)
    at_key = detail["loc"][-1:] == ("[key]",) or detail["type"] in {"extra_forbidden", "missing"}
    return document.complaint(path, _what(detail, path), at_key=at_key)


def _what(detail: ErrorDetails, path: Path) -> str:
    """Return what is wrong and what to write instead."""
    given = detail["input"]
    context = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            return str(context["error"])
        case "extra_forbidden":
            return _unknown_key(path)
        case "missing":
            return _missing(str(path[-1]))
        case "model_type" if len(path) == 2 and path[0] == "jobs":  # noqa: PLR2004 - `jobs` and the name of one
            return f"must be a mapping with at least `command`; is {kind_of(given)}"
        case "model_type" | "dict_type":
            return f"must be a mapping; is {kind_of(given)}"
        case "tuple_type":
            item = f"; write [{given}]" if isinstance(given, str) and given else ""
            return f"must be a list; is {kind_of(given)}{item}"
        case "enum" | "literal_error":
            return _no_choice(given, context["expected"], path)
        case _:
            # No error type of the model ends here; a new one shows pydantic's own words rather than none.
            return detail["msg"]


def _unknown_key(path: Path) -> str:
    entry, key = entry_at(path[:-1]) or Entry, str(path[-1])
    if key in entry.PLANNED:
        return "planned, not in this version; remove it"
    if path[0] == "defaults" and key in (entry_at(("jobs", "any", *path[1:-1])) or Entry).fields_by_key():
        return "cannot be a default; write it into the jobs"
    known = sorted(entry.fields_by_key())
    return "unknown key" + (meant(key, known) or f"; known are {', '.join(known)}")


def _missing(key: str) -> str:
    example = {"command": "command: [python, worker.py]", "jobs": "jobs: {hello: {command: echo hello}}"}[key]
    return f"is missing; write for example {example}"


def _no_choice(given: object, expected: str, path: Path) -> str:
    """Say which words are known. pydantic lists them as `'a', 'b' or 'c'`."""
    if path[-1:] == ("log",):
        return "must be journal, none, or a mapping such as {max_size: 10MB}"
    words = re.findall("'([^']*)'", expected)
    near = meant(given, words) if isinstance(given, str) else f"; is {kind_of(given)}"
    return f"must be {', '.join(words[:-1])} or {words[-1]}{near}"
