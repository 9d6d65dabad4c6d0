"""Every complaint about a file, with its place and its cure."""

from pathlib import Path

import pytest

from orchestrator import config
from orchestrator.errors import ConfigError

ENVIRON = {"HOME": "/home/me"}


def bad_files() -> list[object]:
    """Return the cases of the bad_*.txt as (text, complaints)."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("bad_*.txt"))]
    return [bad_file(block) for text in texts for block in text.split("\n=== ")[1:]]


def bad_file(block: str) -> object:
    """Return the case of one block: its name, the file, and after `->` its complaints."""
    name, *lines = block.strip("\n").split("\n")
    text = "".join(f"{line}\n" for line in lines if not line.startswith("-> "))
    complaints = [line.removeprefix("-> ") for line in lines if line.startswith("-> ")]
    return pytest.param(text, complaints, id=name)


def complaints_about(text: str) -> list[str]:
    """Return the first lines of all complaints, without the file's name."""
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "f", ENVIRON)
    return [complaint.split("\n")[0].removeprefix("f:") for complaint in caught.value.complaints]


@pytest.mark.parametrize(("text", "expected"), bad_files())
def test_a_bad_file_is_refused_with_place_and_cure(text: str, expected: list[str]) -> None:
    assert complaints_about(text) == expected


@pytest.mark.parametrize("text", ["", "\n", "---\n"], ids=["nothing", "an empty line", "a mark"])
def test_an_empty_file_is_refused_with_an_example(text: str) -> None:
    assert "jobs: {hello: {command: echo hello}}" in complaints_about(text)[0]


def test_a_control_character_is_named_with_its_place() -> None:
    assert complaints_about('jobs:\n  a: {command: "\x07"}\n') == [
        "2:17: the character U+0007 may not stand in a YAML file; remove it"
    ]


@pytest.mark.parametrize("indent", ["\t", "  \t"], ids=["alone", "after blanks"])
def test_a_tab_for_an_indent_is_called_one(indent: str) -> None:
    assert (
        "a tab indents this line; YAML indents with spaces only"
        in complaints_about(f"jobs:\n  a:\n{indent}command: x\n")[0]
    )


def test_a_name_may_have_100_characters_and_no_more() -> None:
    assert config.parse(f"jobs: {{{'a' * 100}: {{command: x}}}}", "f", {}).jobs[0].name == "a" * 100
    assert "at most 100 characters" in complaints_about(f"jobs: {{{'a' * 101}: {{command: x}}}}")[0]


def test_a_complaint_shows_its_line_and_a_caret() -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse("jobs:\n  a:\n    comand: x\n    command: y\n", "jobs.yaml", {})

    assert str(caught.value) == (
        "jobs.yaml:3:5: jobs.a.comand: unknown key; did you mean `command`?\n        comand: x\n        ^"
    )


def test_the_caret_stays_below_its_place_in_a_long_line() -> None:
    text = f"jobs: {{a: {{command: {'x' * 300}, retart: always, tags: [{'y' * 90}]}}}}"

    with pytest.raises(ConfigError) as caught:
        config.parse(text, "f", {})

    _, source, caret = str(caught.value).split("\n")
    assert source[caret.index("^") :].startswith("retart: always")
    assert len(source) < 120


def test_a_password_never_shows_in_a_complaint() -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse("redis: http://me:hunter2@10.0.0.5\njobs: {a: {command: x}}", "f", {})

    assert "hunter2" not in str(caught.value)


def test_complaints_of_values_and_of_relations_come_together_in_the_order_of_the_file() -> None:
    text = (
        "jobs:\n"
        "  a: {command: x, lease: {heartbeat: 9s}}\n"  # a relation
        "  b: {command: x, restart: 5}\n"  # a value
        "  c: {command: x, cron: '* * * * 9'}\n"  # a schedule
        "  a: {command: x}\n"  # YAML
    )

    assert [complaint.split(": ")[0] for complaint in complaints_about(text)] == ["2:26", "3:28", "4:25", "5:3"]


def test_thousands_of_complaints_are_cut_to_fifty() -> None:
    complaints = complaints_about("jobs: {a: {command: x}}\n" + "".join(f"zzz{n}: 1\n" for n in range(60)))

    assert len(complaints) == config.MAX_SHOWN + 1
    assert complaints[-1] == " and 10 more"


def test_nested_aliases_cannot_eat_the_machine() -> None:
    layers = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 12))

    complaints = complaints_about(f"x0: &x0 [a]\n{layers}")

    assert any("more than 300000 values" in complaint for complaint in complaints)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "], ids=["lists", "mappings", "block lists"])
def test_nesting_without_end_is_a_complaint(opening: str) -> None:
    assert complaints_about(opening * 100_000)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"jobs\.yaml: no such file; create it, or name another file$"):
        config.load(tmp_path / "jobs.yaml", {})


def test_a_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a directory; name the file, such as .*/jobs\.yaml$"):
        config.load(tmp_path, {})


def test_an_unreadable_file_is_one_sentence(tmp_path: Path) -> None:
    """A file used as a directory cannot be read by root either."""
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"cannot be read: .*Not a directory"):
        config.load(tmp_path / "file" / "jobs.yaml", {})


def test_a_file_without_permission_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the kernel's refusal is put in its place."""
    path = tmp_path / "jobs.yaml"
    monkeypatch.setattr(Path, "open", _refused)

    with pytest.raises(ConfigError, match=r"may not be read by this user; change its owner or mode$"):
        config.load(path, {})


def _refused(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_file_that_is_not_utf8_is_refused_at_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_bytes(b"jobs:\n  caf\xe9: {command: x}\n")

    with pytest.raises(ConfigError, match=r"jobs\.yaml:2:6: is not UTF-8; save the file as UTF-8$"):
        config.load(path, {})


def test_a_file_of_many_megabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_bytes(b"#" * (config.MAX_BYTES + 1))

    with pytest.raises(ConfigError, match="is larger than 10000000 bytes"):
        config.load(path, {})
