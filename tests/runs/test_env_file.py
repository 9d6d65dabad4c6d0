"""What may stand in a file of variables, and what is said of the rest."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runs import env_file
from orchestrator.runs.env_file import EnvFileError


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=value", "value"),
        ("A=", ""),
        ("export A=value", "value"),
        ("export\tA=value", "value"),
        ("  A=value  ", "value"),
        ("A=two words", "two words"),
        ("A= value", "value"),
        ("A=value\r", "value"),
        ("A=a=b", "a=b"),
        ("A=$HOME ${B:-c}", "$HOME ${B:-c}"),
        ("A=it's # not a comment", "it's # not a comment"),
        (r"A=C:\new\"", r"C:\new\""),
        ("A='a value'", "a value"),
        ("A=' kept '\r", " kept "),
        (r"""A='as "it" \n stands $B'""", r'as "it" \n stands $B'),
        ("A=''", ""),
        ('A="a value"  ', "a value"),
        (r'A="a \"word\""', 'a "word"'),
        (r'A="one\ntwo"', "one\ntwo"),
        (r'A="\\n"', r"\n"),
        (r'A="\$B \`c\`"', "$B `c`"),
        (r'A="\d\t"', r"\d\t"),
        (r'A="a\\"', "a\\"),
        ("A=größe", "größe"),
        ("A=one\ftwo\u2028three", "one\ftwo\u2028three"),
    ],
    ids=[
        "plain",
        "empty",
        "exported",
        "exported after a tab",
        "blanks around",
        "blanks within",
        "a blank before the value",
        "CR LF",
        "an equals sign within",
        "nothing is expanded",
        "quotes and marks within",
        "backslashes outside quotes",
        "single quotes",
        "blanks within quotes",
        "nothing is special between single quotes",
        "empty quotes",
        "double quotes",
        "a quoted quote",
        "a quoted new line",
        "a quoted backslash",
        "a quoted dollar",
        "unknown escapes",
        "a backslash at the end",
        "beyond ASCII",
        "what only Unicode takes for a line's end",
    ],
)
def test_a_line_sets_a_variable(line: str, value: str) -> None:
    assert env_file.parse(line.encode()) == {"A": value}


@pytest.mark.parametrize("name", ["A", "_", "a1", "spring.port", "a-b"])
def test_a_name_is_what_programs_use(name: str) -> None:
    assert env_file.parse(f"{name}=1".encode()) == {name: "1"}


@pytest.mark.parametrize("line", ["", "   ", "\r", "# A=1", "  #A=1"])
def test_a_line_that_sets_nothing(line: str) -> None:
    assert env_file.parse(line.encode()) == {}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"A", "not NAME=value"),
        (b"export A", "not NAME=value"),
        (b"=1", "not NAME=value"),
        (b"1A=1", "not NAME=value"),
        (b"-A=1", "not NAME=value"),
        (b"A =1", "not NAME=value"),
        (b"A: 1", "not NAME=value"),
        ("ä=1".encode(), "not NAME=value"),
        (b"A='a", "no closing quote"),
        (b"A='", "no closing quote"),
        (b'A="a', "no closing quote"),
        (b'A="a\\"', "no closing quote"),
        (b"A='a' # b", "text after the closing quote"),
        (b"A='it's'", "text after the closing quote"),
        (b'A="a"b', "text after the closing quote"),
        (b"A=\xe4", "not UTF-8"),
        (b"A=a\0b", "a NUL character"),
    ],
    ids=[
        "a name alone",
        "an exported name alone",
        "no name",
        "a digit first",
        "a dash first",
        "a blank before the equals sign",
        "YAML",
        "a name beyond ASCII",
        "an open single quote",
        "nothing but a quote",
        "an open double quote",
        "its last quote is quoted",
        "a comment after a quoted value",
        "a quote within quotes",
        "text after quotes",
        "Latin-1",
        "NUL",
    ],
)
def test_a_line_that_is_wrong(line: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        env_file.parse(line)


def test_a_later_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_bytes(b"\xef\xbb\xbfA=1\r\n\r\n# B=2\r\nC=3\r\nA=4")

    assert env_file.read(str(path)) == {"A": "4", "C": "3"}


def test_an_error_names_the_line_and_never_its_text(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_bytes(b"A=1\n\nPASSWORD secret\n")

    with pytest.raises(EnvFileError) as refused:
        env_file.read(str(path))

    assert str(refused.value) == f"env_file '{path}' line 3: not NAME=value"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(EnvFileError) as missing:
        env_file.read(str(tmp_path / "nowhere"))
    with pytest.raises(EnvFileError) as directory:
        env_file.read(str(tmp_path))

    assert str(missing.value) == f"env_file '{tmp_path}/nowhere': no such file"
    assert str(directory.value) == f"env_file '{tmp_path}': is a directory"


def test_nobody_waits_for_whoever_writes_into_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    with pytest.raises(EnvFileError) as refused:
        env_file.read(str(path))

    assert str(refused.value) == f"env_file '{path}': a pipe, not a file"


@pytest.mark.parametrize("too_many", [False, True], ids=["as large as may be", "one byte more"])
def test_a_file_has_a_largest_size(tmp_path: Path, *, too_many: bool) -> None:
    path = tmp_path / "env"
    path.write_bytes(b"#" * (env_file.MAX_BYTES + too_many))
    problem = f"env_file '{path}': larger than 1 MiB" if too_many else ""

    try:
        told = str(env_file.read(str(path)) or "")
    except EnvFileError as error:
        told = str(error)

    assert told == problem


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(EnvFileError, match="larger than 1 MiB"):
        env_file.read("/dev/zero")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\n'"), min_size=1))
def test_what_is_quoted_as_a_shell_would_is_read_as_it_was(value: str) -> None:
    assert env_file.parse(f"A='{value}'".encode()) == {"A": value}


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_what_is_escaped_within_double_quotes_is_what_a_shell_reads(value: str) -> None:
    escaped = "".join(f"\\{letter}" if letter in '"\\$`' else letter for letter in value)

    assert env_file.parse(f'A="{escaped}"'.encode()) == {"A": value}


def test_a_shell_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text('export A=\'a "b" $c\'\nB="\\$x \\\\ \\"y\\" \\d"\nC=\nD=plain\nD=again\n')
    by_shell = subprocess.run(
        ["env", "-i", "sh", "-c", f'set -a; . {path}; printf "%s|" "$A" "$B" "$C" "$D"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert "".join(f"{value}|" for value in env_file.read(str(path)).values()) == by_shell
