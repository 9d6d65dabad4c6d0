"""Reads a cron expression: what a person wrote becomes the dialect that cronsim walks, or one clause of complaint.

Knows fields, names, ranges, steps and aliases; must never know a zone or an instant.
Every complaint is a `ValueError` whose text names the field, what stands there and what to write instead.

1. Five fields (minute hour day-of-month month day-of-week), or six with the second first. Case does not matter.
2. `N/S` means `N-max/S` (Quartz, cronsim, croniter); a step past the range leaves the first value (`*/61`, Debian).
3. Day-of-week 0 and 7 are Sunday, 1 is Monday. As the end of a range `sun` is 7, so `mon-sun` is every day.
   No range runs backwards: Debian takes `fri-mon`, cronsim does not, and a silent wrap hides a slip.
4. `L` is the month's last day, `LW` its last Monday-to-Friday day, `5L` the last Friday, `5#2` the second Friday.
   `?` is `*` in the two day fields. `W` alone is refused: implementations disagree about `1W` and `31W`.
5. `H` is a value drawn from the job's name: always the same, equal on all nodes, different from job to job
   (Jenkins's meaning: `H`, `H/15`, `H(0-29)`, `H(8-18)/2`; a plain `H` day is at most the 28th). Each field draws
   for itself, and from SHA-256: a sum of characters, as dkron has it, puts similar names on the same minute.
6. `@daily` and its kin are plain expressions. `@every` is a period, and `@reboot` is no instant at all.
7. A job is *fixed-time* when none of its second, minute and hour fields begins with `*` (Debian's rule;
   what follows from it where clocks are changed stands in `schedule.py`).
"""

import re
from dataclasses import dataclass
from hashlib import sha256

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an expression.

    Attributes:
        low: Least value; the first of `names` stands for it.
        high: Greatest value.
        drawn_high: Greatest value that a plain `H` draws.
    """

    name: str
    low: int
    high: int
    drawn_high: int
    names: tuple[str, ...] = ()

    @property
    def cure(self) -> str:
        """What to write instead, for complaints."""
        names = f" or {self.names[0]} to {self.names[-1]}".lower() if self.names else ""
        return f"write {self.low} to {self.high}{names}"


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

MONTH = Field("month", 1, 12, 12, _MONTHS)
DAY_OF_MONTH = Field("day-of-month", 1, 31, 28)
DAY_OF_WEEK = Field("day-of-week", 0, 7, 6, _WEEKDAYS)
FIELDS = (
    Field("second", 0, 59, 59),
    Field("minute", 0, 59, 59),
    Field("hour", 0, 23, 23),
    DAY_OF_MONTH,
    MONTH,
    DAY_OF_WEEK,
)


@dataclass(frozen=True, slots=True)
class CronText:
    """An expression that was understood.

    Attributes:
        fields: Six fields in cronsim's dialect: numbers only, no `H`, no `?`.
        fixed_time: No second, minute or hour field begins with `*`.
    """

    fields: tuple[str, ...]
    fixed_time: bool

    @property
    def text(self) -> str:
        """The six fields as one line."""
        return " ".join(self.fields)


def read_cron(text: str, *, name: str) -> CronText:
    """Read an expression; `name` is the job's, from which `H` draws.

    Raises:
        ValueError: It cannot be understood; the text is one clause for people.
    """
    parts = _expand_alias(text).upper().split()
    fields = FIELDS[-len(parts) :]
    order = " ".join(field.name for field in fields)
    try:
        read = tuple(_read_field(field, part, name) for field, part in zip(fields, parts, strict=True))
    except ValueError as problem:
        raise ValueError(f"{problem} (the fields are: {order})") from None
    six = ("0",) * (len(FIELDS) - len(read)) + read
    return CronText(fields=six, fixed_time=not any(field.startswith("*") for field in six[:3]))


def read_period(text: str) -> float:
    """Return the period of an `@every` expression, in seconds.

    Raises:
        ValueError: It is no duration.
    """
    duration = text.strip()[len("@every") :].strip()
    match = _DURATION.fullmatch(duration)
    if not match or not duration:
        raise ValueError(f"@every {duration!r} is not a duration: write for example @every 90s, 5m, 1h30m or 1d")
    return sum(int(digits) * unit_s for digits, unit_s in zip(match.groups("0"), _UNITS_S, strict=True))


def is_period(text: str) -> bool:
    """Whether the expression is an `@every`."""
    return text.lower().split()[:1] == ["@every"]


_DURATION = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?(?:([0-9]{1,9})ms)?")
_UNITS_S = (86_400, 3_600, 60, 1, 0.001)

_ITEM = re.compile(
    r"(?:(?P<star>\*)|(?P<draw>H(?:\((?P<draw_low>[0-9A-Z]+)-(?P<draw_high>[0-9A-Z]+)\))?)"
    r"|(?P<first>[0-9A-Z]+)(?:-(?P<last>[0-9A-Z]+))?)(?:/(?P<step>[0-9]{1,9}))?"
)
_NTH = re.compile(r"(?P<day>[0-9A-Z]+)#(?P<nth>[1-5])")
_LAST = re.compile(r"(?P<day>[0-9]|[A-Z]{3})L")
_NEAREST = re.compile(r"[0-9]+W")


def _expand_alias(text: str) -> str:
    """Return the five or six fields as written, aliases spelled out; complain about what has no fields."""
    # Python reads the digits of every script as numbers, and upper-cases a dotless i to `I`.
    if not text.isascii():
        strange = next(character for character in text if not character.isascii())
        raise ValueError(f"{strange!a} is not ASCII: write the fields with plain digits and letters")
    written = text.strip()
    if written.lower() == "@reboot":
        raise ValueError(
            "@reboot is no instant: write a service with `restart: never`, which runs once, whichever node; an order to"
            " start it runs it again"
        )
    if written.startswith("@"):
        if written.lower() not in ALIASES:
            raise ValueError(f"alias {written!r} is unknown: write one of {', '.join(ALIASES)} or @every 5m")
        return ALIASES[written.lower()]
    if written.upper().startswith(("TZ=", "CRON_TZ=")):
        raise ValueError("a zone inside the expression is not read: write `timezone:` beside it")
    count = len(written.split())
    if count not in {5, 6}:
        raise ValueError(
            f"{count} field{'' if count == 1 else 's'}: write 5 (minute hour day-of-month month day-of-week)"
            " or 6 with the second first; there is no year"
        )
    return written


def _read_field(field: Field, part: str, name: str) -> str:
    if part == "?" and field in {DAY_OF_MONTH, DAY_OF_WEEK}:
        return "*"
    return ",".join(_read_item(field, item, name) for item in part.split(","))


def _read_item(field: Field, item: str, name: str) -> str:
    """Return one item of a field's list in cronsim's dialect."""
    if day := _read_special_day(field, item):
        return day
    match = _ITEM.fullmatch(item)
    if not match:
        raise ValueError(f"{field.name} {item.lower()!r} is not understood: {field.cure}")
    if match["step"] and not int(match["step"]):
        raise ValueError(f"{field.name} {item.lower()!r} has step 0: write a step of at least 1")
    step = f"/{int(match['step'])}" if match["step"] else ""
    if match["star"]:
        return f"*{step}"
    if match["draw"]:
        return _draw(field, match, name)
    first = _value(field, match["first"])
    if not match["last"]:
        return f"{first}{step}"
    last = _range_end(field, first, match["last"])
    # cronsim takes a range of one value for `N/S`, which goes on to the field's end.
    return f"{first}-{last}{step}" if first < last else f"{first}"


def _read_special_day(field: Field, item: str) -> str:
    """Return `L`, `LW`, `5L` or `5#2` in cronsim's dialect, "" for any other item."""
    if field is DAY_OF_MONTH:
        if _NEAREST.fullmatch(item):
            raise ValueError(f"day-of-month {item!r} is not supported: write a day, or LW for the last weekday")
        if item.startswith("L") and item not in {"L", "LW"}:
            raise ValueError(f"day-of-month {item!r} is not understood: write L (last day) or LW (last weekday) alone")
        return item if item in {"L", "LW"} else ""
    if field is DAY_OF_WEEK:
        if last := _LAST.fullmatch(item):
            return f"{_value(field, last['day'])}L"
        if nth := _NTH.fullmatch(item):
            return f"{_value(field, nth['day'])}#{nth['nth']}"
        if "#" in item:
            raise ValueError(f"day-of-week {item.lower()!r} is not understood: write for example fri#2 (1 to 5)")
    return ""


def _value(field: Field, text: str) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    if not text.isdigit():
        raise ValueError(f"{field.name} {text.lower()!r} is not understood: {field.cure}")
    # No field needs more digits, and Python refuses to convert thousands of them.
    value = int(text) if len(text.lstrip("0")) <= len(str(field.high)) else field.high + 1
    if not field.low <= value <= field.high:
        raise ValueError(f"{field.name} {text} is out of range: {field.cure}")
    return value


def _range_end(field: Field, first: int, text: str) -> int:
    last = _value(field, text)
    if field is DAY_OF_WEEK and text == "SUN" and first > 0:
        last = 7
    if last < first:
        raise ValueError(
            f"{field.name} range {first}-{last} runs backwards: write two ranges,"
            f" {first}-{field.high},{field.low}-{last}"
        )
    return last


def _draw(field: Field, match: re.Match[str], name: str) -> str:
    """Return what `H` stands for: one value, or with a step every so many from a drawn first one."""
    low, high = field.low, field.drawn_high
    if match["draw_low"]:
        low = _value(field, match["draw_low"])
        high = _range_end(field, low, match["draw_high"])
    width = high - low + 1
    drawn = int.from_bytes(sha256(f"{name}\0{field.name}".encode()).digest()[:8])
    if not match["step"]:
        return f"{low + drawn % width}"
    first = low + drawn % min(int(match["step"]), width)
    return f"{first}-{high}/{int(match['step'])}" if first < high else f"{first}"
