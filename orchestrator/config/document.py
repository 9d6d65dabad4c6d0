"""YAML text as plain data that remembers where each value stands.

Knows YAML and places; must never know what a key means, so that every rule about jobs lives in
`model.py` and `resolve.py`.

Rules:

1. No scalar is interpreted here. An unquoted one becomes `Plain` (its text, exactly as written), a
   quoted one `str`; the field it stands in decides. So YAML 1.1's traps cannot bite: `no`, `0777`,
   `1:30` and `2026-01-01` reach a text field as they were written.
2. A key given twice is a complaint with both places. PyYAML would silently take the last one.
3. Aliases and `<<` work, as people know them from compose files; a tag (`!!int`, `!include`) is a complaint.
4. Nothing a file can contain leaves this module as anything but a complaint; depth and number of
   values are bounded, so that no file of nested aliases can eat the machine.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the file: `("jobs", "beat", "tags", 0)`."""

MAX_DEPTH = 40
"""Levels of nesting; a correct file has six at most. libyaml itself stops at 1,000."""
MAX_VALUES = 300_000
"""Values of one file with its aliases written out: some 15,000 jobs."""
SHOWN_CHARACTERS = 110
"""Of a source line under a complaint."""

_TAGS = {
    yaml.ScalarNode: "tag:yaml.org,2002:str",
    yaml.SequenceNode: "tag:yaml.org,2002:seq",
    yaml.MappingNode: "tag:yaml.org,2002:map",
}
_UNTAGGED = frozenset({*_TAGS.values(), "!"})
"""What a node without a tag of its own carries; `!` says "not resolved", which is what we do anyway."""
_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What YAML 1.2 (5.1, c-printable) does not allow to stand in a file."""
_PASSWORD = re.compile(r"(?<=://)[^/\s]*(?=@)")


class Plain(str):
    """An unquoted scalar, exactly as written."""

    __slots__ = ()

    NULLS = frozenset({"", "~", "null", "Null", "NULL"})

    @property
    def is_null(self) -> bool:
        """Whether YAML takes it for "no value"."""
        return str(self) in self.NULLS


class Place(NamedTuple):
    """A position in the text, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, order=True)
class Complaint:
    """One thing that is wrong: where, under which path, what and what to write instead."""

    place: Place
    path: str
    what: str


@dataclass(slots=True)
class Document:
    """One file: its data, the places of its keys and values, and what is wrong with it as YAML.

    Attributes:
        name: How the file is called in complaints.
        data: Mappings, lists, `Plain` and `str`; None where the text could not be read at all.
        keys: Where the key of a mapping entry stands. These are PyYAML's own marks: a large file has tens of
            thousands, and only those of a complaint become a `Place`.
        values: Where a value stands.
    """

    name: str
    text: str
    data: object = None
    keys: dict[Path, yaml.Mark] = field(default_factory=dict)
    values: dict[Path, yaml.Mark] = field(default_factory=dict)
    complaints: list[Complaint] = field(default_factory=list)

    def complaint(self, path: Path, what: str, *, at_key: bool = False) -> Complaint:
        """Return a complaint about `path`, placed at its nearest ancestor that stands in the file."""
        known = path
        while known and known not in self.values:
            known = known[:-1]
        mark = self.keys.get(known) if at_key or known != path else None
        mark = mark or self.values.get(known)
        return Complaint(_at(mark) if mark else Place(1, 1), shown(path), what)

    def source(self, job: Path, key: str) -> Path:
        """Return where a job's value was written that may come from `defaults`."""
        own = (*job, key)
        return own if own in self.values or ("defaults", key) not in self.values else ("defaults", key)

    def render(self, complaint: Complaint) -> str:
        """Return `file:line:col: path: what`, the source line and a caret below the place.

        A password in a URL is starred: complaints end up in journals and chats.
        """
        place = complaint.place
        path = f"{complaint.path}: " if complaint.path else ""
        head = f"{self.name}:{place.line}:{place.column}: {path}{complaint.what}"
        lines = self.text.splitlines()
        if place.line > len(lines) or not lines[place.line - 1].strip():
            return head
        source = _PASSWORD.sub(lambda found: "*" * len(found[0]), lines[place.line - 1]).replace("\t", " ")
        start = max(0, place.column - SHOWN_CHARACTERS // 2) if len(source) > SHOWN_CHARACTERS else 0
        return f"{head}\n    {source[start : start + SHOWN_CHARACTERS]}\n    {' ' * (place.column - 1 - start)}^"


def shown(path: Path) -> str:
    """Return a path as people write it: `jobs.beat.tags[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def read(text: str, name: str) -> Document:
    """Read YAML text; what is wrong with it stands in the result's `complaints`."""
    document = Document(name, text)
    if unprintable := _UNPRINTABLE.search(text):
        what = f"the character U+{ord(unprintable[0]):04X} may not stand in a YAML file; remove it"
        document.complaints.append(Complaint(_place_of(text, unprintable.start()), "", what))
        return document
    try:
        node = yaml.compose(text, _Loader)
    except yaml.MarkedYAMLError as error:
        document.complaints.append(_syntax_complaint(error, text))
    except (yaml.YAMLError, RecursionError) as error:
        document.complaints.append(Complaint(Place(1, 1), "", f"is not YAML: {_one_line(str(error))}"))
    else:
        if node is None or (isinstance(node, yaml.ScalarNode) and not node.style and Plain(node.value).is_null):
            what = "is empty; name at least one job: jobs: {hello: {command: echo hello}}"
            document.complaints.append(Complaint(Place(1, 1), "", what))
        else:
            document.data = _Walk(document).value(node, ())
    return document


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml where PyYAML was built with it: 7 times faster
    """Composes nodes and resolves nothing: every plain scalar keeps its text."""

    yaml_implicit_resolvers: dict[str, object] = {}  # noqa: RUF012 - overrides PyYAML's class attribute of this name

    def resolve(self, kind: type[yaml.Node], value: object, implicit: object) -> str:  # noqa: ARG002 - PyYAML's signature
        """Return the tag of a node that has none, without PyYAML's look for a better one: it is called for each."""
        return _TAGS[kind]


class _Walk:
    """Turns the composed nodes into data, and notes places and complaints on the way."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._values = 0

    def value(self, node: yaml.Node, path: Path) -> object:
        """Return the data of a node that stands at `path`."""
        self._document.values[path] = node.start_mark
        self._values += 1
        if len(path) > MAX_DEPTH or self._values > MAX_VALUES:
            return self._too_much(_at(node.start_mark), path)
        if node.tag not in _UNTAGGED:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self._complain(_at(node.start_mark), path, f"the tag `{tag}` means nothing here; remove it")
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.style else Plain(node.value)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node, merged in self._entries(node, path):
            key = key_node.value
            below = (*path, key)
            if key not in data:
                self._document.keys[below] = key_node.start_mark
                data[key] = self.value(value_node, below)
            elif not merged:
                place, first = _at(key_node.start_mark), _at(self._document.keys[below]).line
                self._complain(place, path, f"duplicate key `{key}` (first at line {first}); remove one of them")
        return data

    def _entries(
        self, node: yaml.MappingNode, path: Path, depth: int = 0
    ) -> Iterator[tuple[yaml.ScalarNode, yaml.Node, bool]]:
        """Yield a mapping's own entries, then those that `<<` brings in."""
        brought_in: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._complain(_at(key_node.start_mark), path, "a key must be text; is a list or a mapping")
            elif key_node.value == "<<" and not key_node.style:
                brought_in += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            else:
                yield key_node, value_node, depth > 0
        for other in brought_in:
            if isinstance(other, yaml.MappingNode) and depth < MAX_DEPTH:
                yield from self._entries(other, path, depth + 1)
            else:
                self._complain(_at(other.start_mark), path, "`<<` takes a mapping, or a list of mappings")

    def _too_much(self, place: Place, path: Path) -> object:
        what = "nested too deeply" if len(path) > MAX_DEPTH else f"more than {MAX_VALUES} values"
        if not any(what in known.what for known in self._document.complaints):
            self._complain(place, path[:3], f"{what}; does an alias contain itself?")
        return Plain("")

    def _complain(self, place: Place, path: Path, what: str) -> None:
        self._document.complaints.append(Complaint(place, shown(path), what))


def _at(mark: yaml.Mark) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _place_of(text: str, offset: int) -> Place:
    before = text[:offset]
    return Place(before.count("\n") + 1, offset - before.rfind("\n"))


def _syntax_complaint(error: yaml.MarkedYAMLError, text: str) -> Complaint:
    """Say a syntax error with its place, and the commonest ones in the words of their cure."""
    mark = error.problem_mark or error.context_mark
    place = _at(mark) if mark else Place(1, 1)
    line = (text.split("\n")[place.line - 1 : place.line] or [""])[0]
    if line[: place.column].strip(" ").startswith("\t"):
        return Complaint(place, "", "a tab indents this line; YAML indents with spaces only")
    if "flow mapping" in (error.context or "") and "${" in line:
        return Complaint(place, "", "inside `{ }` and `[ ]` a text with `${...}` must stand in quotes")
    if "mapping values are not allowed" in (error.problem or ""):
        return Complaint(place, "", "a second `: ` in one line; put the text in quotes, or start a new line")
    if "another document" in (error.problem or ""):
        return Complaint(place, "", "a second document begins here; one file is one document, remove the `---`")
    what = " ".join(part for part in (error.context, error.problem) if part)
    return Complaint(place, "", f"is not YAML: {_one_line(what)}")


def _one_line(text: str) -> str:
    return " ".join(text.split())
