"""What a process is given, as it is written: its command, signals, environment, user, umask and limits.

As in `values.py`: a reader takes what `document.py` gives and returns a value, or raises `ValueError` with what
is wrong and what to write instead. Must never ask this machine whether a user exists or a limit can be
set: the file describes a whole cluster, and is often checked where none of it will run.
"""

import re
import signal
from collections.abc import Callable

from orchestrator.config.document import Plain
from orchestrator.config.values import kind_of, meant, seconds, size, text, whole

UNLIMITED = -1
"""As in the kernel's RLIM_INFINITY."""
UMASK_PATTERN = "^0?[0-7]{1,3}$"
LARGEST_COUNT = 999_999_999
HIGHEST_ID = 2**32 - 2
"""Of a user or a group; the one above it means "no change" to the kernel (setresuid(2))."""
_NO_STOP_SIGNALS = {"SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCONT", "SIGCHLD"}
_NO_RELOAD_SIGNALS = {"SIGKILL", "SIGSTOP", "SIGTSTP"}
_ACCOUNT = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@\\-]*\$?", re.ASCII)
"""More than useradd takes, since directories (AD, LDAP) have names such as `DOMAIN\\user` and `user@domain`."""


def command(value: object) -> tuple[str, ...]:
    """Read a command; return what is exec'd."""
    if isinstance(value, str):
        if not text(value).strip():
            raise ValueError("is empty; write what is to run")
        return ("/bin/sh", "-c", text(value))
    if not isinstance(value, list):
        raise ValueError(f"must be a list of words, or a text for `sh -c`; is {kind_of(value)}")  # noqa: TRY004 - pydantic gathers ValueErrors only
    argv = []
    for at, item in enumerate(value, start=1):
        try:
            argv.append(text(item))
        except ValueError as error:
            raise ValueError(f"word {at} of the list {error}") from None
    if not argv or not argv[0]:
        raise ValueError("is empty; the first word of the list is the program")
    return tuple(argv)


def hook(value: object) -> object:
    """Read the short form of a hook, which is its command alone."""
    return value if isinstance(value, dict) else {"command": value}


def retries(value: object) -> object:
    """Read the short form of retries, which is how many there are."""
    return value if isinstance(value, dict) else {"count": value}


def stop_signal(value: object) -> str:
    """Read the name of a signal that asks a process to end; return it with its `SIG`."""
    full = _signal(value, "SIGTERM, SIGINT or SIGHUP")
    if full in _NO_STOP_SIGNALS:
        raise ValueError(f"{full} ends no process; use SIGTERM, SIGINT, SIGQUIT or SIGHUP")
    return full


def reload_signal(value: object) -> str:
    """Read the name of a signal at which a process reads its configuration again; return it with its `SIG`."""
    full = _signal(value, "SIGHUP, SIGUSR1 or SIGUSR2")
    if full in _NO_RELOAD_SIGNALS:
        raise ValueError(f"{full} ends or halts a process, and reloads nothing; use SIGHUP, SIGUSR1 or SIGUSR2")
    return full


def _signal(value: object, examples: str) -> str:
    read = text(value)
    if by_number := {str(known.value): known.name for known in signal.Signals}.get(read):
        raise ValueError(f"write the name, not the number: {by_number}")
    full = read.upper() if read.upper().startswith("SIG") else f"SIG{read.upper()}"
    if full not in signal.Signals.__members__:
        short = (known.removeprefix("SIG") for known in signal.Signals.__members__)
        raise ValueError(f"no such signal{meant(full.removeprefix('SIG'), short) or f'; use {examples}'}")
    return full


def success_exit_codes(value: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse a list of exit codes without which every run would be a failure."""
    if not value:
        raise ValueError("must have at least one code")
    return value


def env_name(value: object) -> str:
    """Read the name of an environment variable."""
    read = text(value)
    if not read or "=" in read:
        raise ValueError("the name of a variable is not empty and contains no `=`")
    return read


def env_inherit(value: object) -> str | tuple[str, ...]:
    """Read `all`, `none` or a list of names."""
    if isinstance(value, list):
        return tuple(env_name(item) for item in value)
    if isinstance(value, str) and value in {"all", "none"}:
        return str(value)
    raise ValueError("must be all, none, or a list of names: [PATH, LANG]")


def account(value: object) -> str:
    """Read the name or the number of a user or a group."""
    read = text(value)
    if ":" in read:
        raise ValueError("is one name or number; write `user` and `group` as two keys")
    if not _ACCOUNT.fullmatch(read):
        raise ValueError(f"`{read[:100]}` is neither a name nor a number; write it as in /etc/passwd or /etc/group")
    if read.isdigit() and (read != str(int(read[:20])) or int(read) > HIGHEST_ID):
        raise ValueError(f"a number is 0 to {HIGHEST_ID}, without leading zeros")
    return read


def umask(value: object) -> int:
    """Read the permissions that new files do not get, in octal digits with or without a leading zero."""
    read = text(value)
    if not re.fullmatch(UMASK_PATTERN, read, re.ASCII):
        raise ValueError("write three octal digits, such as 027 (nothing for others) or 077 (all for the user only)")
    return int(read, 8)


def count_limit(value: object) -> int:
    """Read how many of something a process may have."""
    return _or_unlimited(value, whole(1, LARGEST_COUNT), f"must be a whole number, 1 to {LARGEST_COUNT}, or unlimited")


def size_limit(value: object) -> int:
    """Read how large something may be, 0 for nothing at all; return bytes."""
    if isinstance(value, str) and value in {"0", "0B"}:
        return 0
    return _or_unlimited(value, size, "use a size such as 64MiB or 4096B, 0, or unlimited")


def time_limit(value: object) -> int:
    """Read a time that the kernel counts in whole seconds; here a bare number is in its own unit."""
    return _or_unlimited(value, _whole_seconds, "use whole seconds such as 30s, 10m or 600, or unlimited")


def _whole_seconds(value: object) -> int:
    if isinstance(value, Plain) and value.isdigit():
        return whole(1, LARGEST_COUNT)(value)
    read = seconds(value)
    if not 1 <= read <= LARGEST_COUNT or read != int(read):
        raise ValueError("not whole")
    return int(read)


def _or_unlimited(value: object, read: Callable[[object], int], otherwise: str) -> int:
    if value == "unlimited":
        return UNLIMITED
    try:
        return read(value)
    except ValueError:
        raise ValueError(f"{otherwise}; is {kind_of(value)}" if not isinstance(value, str) else otherwise) from None
