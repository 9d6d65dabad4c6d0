"""What a mapping of the file is, and the kinds of value that stand in one.

Knows how each kind of value is read (`values.py`, `process_values.py`, `addresses.py`) and how the schema shows
it; must never know which keys there are: `model.py` and `sections.py` do.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.fields import FieldInfo

from orchestrator.config import addresses, process_values, values

AnyScalar = str | int | float | bool
"""How the schema shows a text: YAML reads `PORT: 8080` as a number, we as the text it is."""
AnyCommand = AnyScalar | list[AnyScalar]
_DurationText = Annotated[str, Field(pattern=values.DURATION_PATTERN, examples=["500ms", "15s", "2m", "1h30m"])]
_SizeText = Annotated[str, Field(pattern=values.SIZE_PATTERN, examples=["10MB", "512KiB"])]
_InstantText = Annotated[str, Field(pattern=values.INSTANT_PATTERN, examples=["2026-12-24T18:00", "2026-12-24T18:00Z"])]
_UmaskText = Annotated[str, Field(pattern=process_values.UMASK_PATTERN, examples=["027"])]
_AS_DURATION = PlainSerializer(values.written, return_type=str, when_used="json")
AS_SIZE = PlainSerializer(values.written_size, return_type=str, when_used="json")


class Entry(BaseModel):
    """A mapping of the file: its keys and no others.

    Attributes:
        PLANNED: Keys that later versions will know; they are refused in other words than a mistyped one.
        ONE_OF: Keys of which a mapping has exactly one; a job's own takes the place of another one in `defaults`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    PLANNED: ClassVar[frozenset[str]] = frozenset()
    ONE_OF: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def fields_by_key(cls) -> dict[str, FieldInfo]:
        """Return the fields by key; an attribute cannot be called `as`."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    @classmethod
    def below(cls, key: str) -> "type[Entry] | None":
        """Return the model of the mapping that stands under a key, None where none does."""
        field = cls.fields_by_key().get(key)
        return next(_entries_in(field.annotation), None) if field else None


def _entries_in(annotation: object) -> Iterator[type[Entry]]:
    if isinstance(annotation, type) and issubclass(annotation, Entry):
        yield annotation
    for part in get_args(annotation):
        yield from _entries_in(part)


def duration(at_least: float, at_most: float = values.LONGEST_S) -> BeforeValidator:
    """Return the reader of durations between two bounds, in seconds."""
    return BeforeValidator(values.duration(at_least, at_most), json_schema_input_type=_DurationText)


def whole(at_least: int, at_most: int) -> BeforeValidator:
    """Return the reader of whole numbers between two bounds."""
    return BeforeValidator(
        values.whole(at_least, at_most), json_schema_input_type=Annotated[int, Field(ge=at_least, le=at_most)]
    )


def number(at_least: float, at_most: float) -> BeforeValidator:
    """Return the reader of decimal numbers between two bounds."""
    return BeforeValidator(
        values.number(at_least, at_most), json_schema_input_type=Annotated[float, Field(ge=at_least, le=at_most)]
    )


def size_between(at_least: int, at_most: int) -> BeforeValidator:
    """Return the reader of sizes between two bounds, in bytes."""
    return BeforeValidator(values.size_between(at_least, at_most), json_schema_input_type=_SizeText)


Duration = Annotated[float, duration(0.001), _AS_DURATION]
DurationOrZero = Annotated[float, duration(0.0), _AS_DURATION]
Tenths = Annotated[float, duration(0.1), _AS_DURATION]
Seconds = Annotated[float, duration(1.0), _AS_DURATION]
Size = Annotated[int, BeforeValidator(values.size, json_schema_input_type=_SizeText), AS_SIZE]
Flag = Annotated[bool, BeforeValidator(values.flag, json_schema_input_type=bool)]
Text = Annotated[str, BeforeValidator(values.text, json_schema_input_type=str)]
ExpandedText = Annotated[str, BeforeValidator(values.expanded, json_schema_input_type=AnyScalar)]
Name = Annotated[
    str, BeforeValidator(values.name, json_schema_input_type=Annotated[str, Field(pattern=values.NAME_PATTERN)])
]
Instant = Annotated[str, BeforeValidator(values.instant, json_schema_input_type=_InstantText)]
Zone = Annotated[str, BeforeValidator(values.zone, json_schema_input_type=str)]
ExpandedName = Annotated[str, BeforeValidator(values.expanded_name, json_schema_input_type=str)]
ExpandedPath = Annotated[str | None, BeforeValidator(values.expanded_path, json_schema_input_type=str)]
ExpandedFile = Annotated[str | None, BeforeValidator(values.expanded_file, json_schema_input_type=str)]
ExpandedPaths = Annotated[
    tuple[ExpandedPath, ...], BeforeValidator(values.one_or_more, json_schema_input_type=str | list[str])
]

RedisUrl = Annotated[str | None, BeforeValidator(addresses.redis_url, json_schema_input_type=str)]
HttpUrl = Annotated[str, BeforeValidator(addresses.http_url, json_schema_input_type=str)]
TcpAddress = Annotated[str, BeforeValidator(addresses.tcp_address, json_schema_input_type=str)]

Command = Annotated[tuple[str, ...], BeforeValidator(process_values.command, json_schema_input_type=AnyCommand)]
StopSignal = Annotated[str, BeforeValidator(process_values.stop_signal, json_schema_input_type=str)]
ReloadSignal = Annotated[str, BeforeValidator(process_values.reload_signal, json_schema_input_type=str)]
ExitCode = Annotated[int, whole(0, 255)]
EnvName = Annotated[str, BeforeValidator(process_values.env_name)]
EnvInherit = Annotated[
    str | tuple[str, ...],
    BeforeValidator(process_values.env_inherit, json_schema_input_type=Literal["all", "none"] | list[str]),
]
Account = Annotated[str, BeforeValidator(process_values.account, json_schema_input_type=str | int)]
Umask = Annotated[int, BeforeValidator(process_values.umask, json_schema_input_type=_UmaskText | int)]
CountLimit = Annotated[
    int,
    BeforeValidator(
        process_values.count_limit, json_schema_input_type=Annotated[int, Field(ge=1)] | Literal["unlimited"]
    ),
]
SizeLimit = Annotated[
    int, BeforeValidator(process_values.size_limit, json_schema_input_type=_SizeText | Literal[0, "unlimited"])
]
TimeLimit = Annotated[
    int,
    BeforeValidator(
        process_values.time_limit,
        json_schema_input_type=_DurationText | Annotated[int, Field(ge=1)] | Literal["unlimited"],
    ),
]
