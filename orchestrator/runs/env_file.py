r"""Files of environment variables: `NAME=value`, line by line.

What systemd's EnvironmentFile= and docker's --env-file agree on, and where they differ what surprises least:

    # a comment: the first thing on its line        blank lines count for nothing
    NAME=value                                      `export NAME=value` is the same; a later line wins
    NAME='as it stands, "$HOME" and \ too'          nothing is special between single quotes
    NAME="a \"word\", a \\, a \$, a \n"             \n is a new line; before any other character \ stands for itself
    NAME=a 'b' #c                                   quotes that are not the first, # and \ stand for themselves

A value ends with its line, and blanks around it that are not within quotes are cut. Variables are not expanded.
Names are letters, digits, `_`, `.` and `-`, with no digit first. Lines may end in CR LF, the file is UTF-8.

This file knows the syntax; it must never know whose variables they are. Files are read in a forked child, so it
needs the standard library only, and little of that.
"""

import os

MAX_BYTES = 1 << 20
"""Of one file: far above what an environment may hold, far below what would make a start slow."""

_BLANKS = " \t\r"
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\", "$": "$", "`": "`"}
_FILE_TYPE, _FIFO = 0o170000, 0o010000  # of `st_mode`, by definition; the module `stat` is one more to load


class EnvFileError(ValueError):
    """A file cannot be used: one clause that names the file, and the line where one is to blame."""


def read(path: str) -> dict[str, str]:
    """Read a file of variables.

    Raises:
        EnvFileError: It cannot be read, or is not what it must be. What stands in it is never told: it may be secret.
    """
    try:
        data = _bytes_of(path)
    except OSError as error:
        number = error.errno or 0
        reason = "no such file" if isinstance(error, FileNotFoundError) else os.strerror(number).lower()
        raise EnvFileError(f"env_file {path!r}: {reason}") from error
    if len(data) > MAX_BYTES:
        raise EnvFileError(f"env_file {path!r}: larger than {MAX_BYTES >> 20} MiB")
    found: dict[str, str] = {}
    # Not splitlines: a form feed or U+2028 may stand in a value.
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            found.update(parse(line))
        except ValueError as error:
            raise EnvFileError(f"env_file {path!r} line {number}: {error}") from None
    return found


def _bytes_of(path: str) -> bytes:
    """Read one byte more than is allowed at most."""
    # O_NONBLOCK: to open a FIFO must not wait for whoever may write into it.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_mode & _FILE_TYPE == _FIFO:
            raise EnvFileError(f"env_file {path!r}: a pipe, not a file")
        parts: list[bytes] = []
        missing = MAX_BYTES + 1
        while missing and (part := os.read(fd, missing)):
            parts.append(part)
            missing -= len(part)
    finally:
        os.close(fd)
    return b"".join(parts)


def parse(raw: bytes) -> dict[str, str]:
    """Return the variable that a line sets, or nothing for a line that sets none.

    Raises:
        ValueError: What is wrong with the line.
    """
    try:
        line = raw.decode().strip(_BLANKS)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    if "\0" in line:
        raise ValueError("a NUL character")
    if not line or line.startswith("#"):
        return {}
    if line.startswith(("export ", "export\t")):
        line = line[len("export ") :].lstrip(_BLANKS)
    name, equals, value = line.partition("=")
    if not equals or not _is_name(name):
        raise ValueError("not NAME=value")
    value = value.lstrip(_BLANKS)
    if value.startswith("'"):
        return {name: _unquoted(value, value.find("'", 1))}
    if value.startswith('"'):
        return {name: _unescaped(_unquoted(value, _closing(value)))}
    return {name: value}


def _is_name(text: str) -> bool:
    letters = text.translate({ord(mark): "_" for mark in ".-"})
    return letters.isascii() and letters.isidentifier() and text[0] not in ".-"


def _closing(value: str) -> int:
    """Return where the double quote is that ends the value, -1 if nowhere."""
    at = 1
    while at < len(value) and value[at] != '"':
        at += 2 if value[at] == "\\" else 1
    return at if at < len(value) else -1


def _unquoted(value: str, end: int) -> str:
    if end < 0:
        raise ValueError("no closing quote")
    if value[end + 1 :].strip(_BLANKS):
        raise ValueError("text after the closing quote")
    return value[1:end]


def _unescaped(text: str) -> str:
    first, *others = text.split("\\")
    parts = [first]
    pending = iter(others)
    for part in pending:
        if not part:  # two in a row: the second one is meant
            parts += ["\\", next(pending, "")]
        elif part[0] in _ESCAPES:
            parts += [_ESCAPES[part[0]], part[1:]]
        else:
            parts += ["\\", part]
    return "".join(parts)
