"""The kinds of value a jobs.yaml has: durations, sizes, numbers, names, texts with variables.

Knows how one value is written and what it means; must never know which key it stands under. What only
a process is given stands in `process_values.py`, where something answers in `addresses.py`.

Every reader takes what `document.py` gives (`Plain` for an unquoted scalar, `str` for a quoted one) and
returns a value or raises `ValueError` with what is wrong and what to write instead. A value that was
not written down, that is, a default, passes no reader.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import cast
from zoneinfo import ZoneInfo, available_timezones

from pydantic import ValidationInfo

from orchestrator.config.document import Plain
from orchestrator.core.instants import instant_of

LONGEST_S = 10 * 366 * 86400.0
"""Ten years: more than anyone means, and far below what Redis takes for a time to live."""
LONGEST_NAME = 100
NAME_PATTERN = rf"^[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}$"
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
DURATION_PATTERN = "^(?=.)" + "".join(rf"([0-9]+(\.[0-9]+)?{unit})?" for unit in _UNITS_S) + "$"
_DURATION = re.compile(DURATION_PATTERN, re.ASCII)
_DURATION_PART = re.compile("([0-9.]+)(ms|[dhms])")
_SIZE_UNITS = {"B": 1, "kB": 1000, "KB": 1000, "KiB": 1024, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
SIZE_PATTERN = rf"^[0-9]+({'|'.join(_SIZE_UNITS)})$"
INSTANT_PATTERN = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
"""For editors; `instants.py` decides."""
_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<odd>\{))"
)


def text(value: object) -> str:
    """Read a text: any scalar, exactly as written."""
    if isinstance(value, Plain) and value.is_null:
        raise ValueError('has no value; write one, "" for the empty text, or remove the key')
    if not isinstance(value, str):
        raise ValueError(f"must be text; is {kind_of(value)}")  # noqa: TRY004 - pydantic gathers ValueErrors only
    if "\0" in value:
        raise ValueError("contains a NUL character, which no process can be given; remove it")
    return str(value)


def name(value: object) -> str:
    """Read a name that becomes part of keys and file names."""
    read = text(value)
    if not _NAME.fullmatch(read):
        raise ValueError(
            f"`{read[:LONGEST_NAME]}` is no name; use letters, digits, `-`, `_` and `.`,"
            f" a letter, a digit or `_` first, at most {LONGEST_NAME} characters"
        )
    return read


def seconds(value: object) -> float:
    """Read a duration such as `500ms`, `15s` or `1h30m`; return seconds."""
    read = text(value)
    if _DURATION.fullmatch(read):
        return sum(float(count) * _UNITS_S[unit] for count, unit in _DURATION_PART.findall(read))
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", read, re.ASCII):
        raise ValueError(f"a duration needs a unit; write {read}s, {read}m or {read}h")
    raise ValueError("use a duration such as 500ms, 15s, 2m, 1h, 2d or 1h30m")


def duration(at_least: float, at_most: float = LONGEST_S) -> Callable[[object], float]:
    """Return a reader of durations that must lie between two bounds, in seconds."""

    def bounded(value: object) -> float:
        read = seconds(value)
        if read < at_least:
            raise ValueError(f"must be at least {written(at_least)}")
        if read > at_most:
            raise ValueError(f"must be at most {written(at_most)}")
        return read

    return bounded


def written(duration_s: float) -> str:
    """Return a duration as one writes it: `1h30m`, `500ms`."""
    rest_ms = round(duration_s * 1000)
    parts = []
    for unit, unit_s in _UNITS_S.items():
        count, rest_ms = divmod(rest_ms, round(unit_s * 1000))
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def size(value: object) -> int:
    """Read a size such as `10MB` or `512KiB`; return bytes."""
    read = text(value)
    if not (found := re.fullmatch(SIZE_PATTERN, read, re.ASCII)) or len(read) > len("999999999GiB"):
        raise ValueError("use a size such as 10MB (10,000,000 bytes), 512KiB (524,288 bytes) or 4096B")
    if not (count := int(read.removesuffix(found[1])) * _SIZE_UNITS[found[1]]):
        raise ValueError("must be at least 1B")
    return count


def size_between(at_least: int, at_most: int) -> Callable[[object], int]:
    """Return a reader of sizes that must lie between two bounds, in bytes."""

    def bounded(value: object) -> int:
        if not at_least <= (read := size(value)) <= at_most:
            raise ValueError(f"must be {written_size(at_least)} to {written_size(at_most)}")
        return read

    return bounded


def written_size(size_bytes: int) -> str:
    """Return a size as one writes it, in the largest unit that needs no fraction."""
    unit = next(unit for unit in ("GB", "MB", "MiB", "kB", "KiB", "B") if size_bytes % _SIZE_UNITS[unit] == 0)
    return f"{size_bytes // _SIZE_UNITS[unit]}{unit}"


def flag(value: object) -> bool:
    """Read `true` or `false`; YAML 1.1's `yes`, `no`, `on` and `off` are words, not truths."""
    if isinstance(value, Plain) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise ValueError("write true or false, without quotes")


def whole(at_least: int, at_most: int) -> Callable[[object], int]:
    """Return a reader of whole numbers between two bounds."""

    def bounded(value: object) -> int:
        if not isinstance(value, Plain) or not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", value, re.ASCII):
            raise ValueError(f"must be a whole number, {at_least} to {at_most}, without quotes")
        if not at_least <= int(value) <= at_most:
            raise ValueError(f"must be {at_least} to {at_most}")
        return int(value)

    return bounded


def number(at_least: float, at_most: float) -> Callable[[object], float]:
    """Return a reader of decimal numbers between two bounds."""

    def bounded(value: object) -> float:
        if not isinstance(value, Plain) or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", value, re.ASCII):
            raise ValueError(f"must be a number, {at_least:g} to {at_most:g}, without quotes")
        if not at_least <= float(value) <= at_most:
            raise ValueError(f"must be {at_least:g} to {at_most:g}")
        return float(value)

    return bounded


def zone(value: object) -> str:
    """Read an IANA time zone."""
    read = text(value)
    if _zone_exists(read):
        return read
    if read.lower() in {"local", "localtime", "host", "system"}:
        raise ValueError("the host's own zone differs from node to node; write it out, such as Europe/Berlin")
    near = meant(read, available_timezones())
    raise ValueError(f"no such time zone{near or '; use an IANA name such as Europe/Berlin'}")


def instant(value: object) -> str:
    """Read an instant; return it as it is written, since its zone may stand under another key."""
    read = text(value)
    instant_of(read, "UTC")
    return read


@lru_cache(maxsize=1024)
def _zone_exists(key: str) -> bool:
    try:
        ZoneInfo(key)
    except (LookupError, ValueError, OSError):  # unknown, not a relative path, a directory such as `America`
        return False
    return True


def expanded(value: object, info: ValidationInfo) -> str:
    """Read a text in which `${X}`, `${X:-default}` and `$$` are replaced from `info.context["environ"]`.

    As in a shell, the default serves where the variable is unset or empty. Everything else that begins
    with a dollar sign stays as it is.
    """
    environ = cast("dict[str, Mapping[str, str]]", info.context)["environ"]

    def replaced(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        if found["odd"]:
            raise ValueError("`${` without a name and `}`; write ${NAME}, ${NAME:-default}, or $$ for a dollar sign")
        given = environ.get(found["name"], "")
        if found["default"] is not None:
            return given or found["default"]
        if found["name"] not in environ:
            raise ValueError(
                f"the variable `{found['name']}` is not set; set it, or write ${{{found['name']}:-default}}"
            )
        return given

    return text(_VARIABLE.sub(replaced, text(value)))


def expanded_name(value: object, info: ValidationInfo) -> str:
    """Read a name after its variables."""
    return name(expanded(value, info))


def expanded_path(value: object, info: ValidationInfo) -> str | None:
    """Read a path after its variables; None where they came out empty."""
    read = expanded(not_empty(value), info)
    if read.startswith("~"):
        raise ValueError("`~` is not expanded; write ${HOME}")
    return read or None


def expanded_file(value: object, info: ValidationInfo) -> str | None:
    """Read the path of a file that is written; None where its variables came out empty."""
    read = expanded_path(value, info)
    if read and (read.endswith("/") or read.rsplit("/", 1)[-1] in {".", ".."}):
        raise ValueError(f"is a directory; name a file in it, such as {read.rstrip('/')}/job.log")
    if read == "/dev/null":
        raise ValueError("write `log: none` to drop the output")
    if read is not None and read.startswith("/dev/"):
        raise ValueError("is no file that can be rotated; write `log: journal` for the node's own stderr")
    return read


def one_or_more(value: object) -> object:
    """Read the short form of a list with one text, which is that text alone."""
    if isinstance(value, dict):
        raise ValueError("must be a text, or a list of texts; is a mapping")  # noqa: TRY004 - as above
    return [value] if isinstance(value, str) else value


def not_empty(value: object) -> object:
    """Refuse a text that was written empty; variables may come out so, and then the default serves."""
    if value == "" and not isinstance(value, Plain):
        raise ValueError("is empty; write a value, or remove the key")
    return value


def kind_of(value: object) -> str:
    """Return what a value is, for a complaint."""
    if isinstance(value, Plain) and value.is_null:
        return "empty"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "a mapping"


def listed(words: Iterable[str], joint: str = "or") -> str:
    """Return words as one lists them: `a`, `b` or `c`."""
    *others, last = [f"`{word}`" for word in words]
    return f"{', '.join(others)} {joint} {last}" if others else last


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` where one of the `known` words is near, else ""."""
    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
