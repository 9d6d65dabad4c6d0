"""The first process of a job, and that of an errand beside it: fork, set up, exec; and what to say when that fails.

It knows what a program must find when it begins: a session of its own, no signal ignored or blocked, the old
limit of open files, /dev/null as input, pipes as output, and a parent whose death kills it.
It must never know deadlines or logs.

Rules of this file:
1. Whatever fails in the child is one clause for people in the report pipe, which exec closes; never a traceback.
2. The child never returns into the code of its leash.
3. The parent's death is looked for each time that it could have been missed: after the fork, and after a
   change of the user, which makes the kernel forget the order to die with the parent (prctl(2)).
"""

import contextlib
import errno
import os
import resource
import signal
from collections.abc import Mapping
from typing import Any

from orchestrator.runs import cgroups
from orchestrator.runs.linux import die_with_parent

MAX_REPORT_BYTES = 512
"""Of the one clause that a child may write: one write, one read."""

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
_CANNOT_START = 127  # a shell's exit status for a command that it cannot start


def ignored_signals() -> list[int]:
    """Return what this process ignores; exec would hand it on, so the first process resets it."""
    return [number for number in range(1, signal.NSIG) if signal.getsignal(number) == signal.SIG_IGN]


def fork_job(what: dict[str, Any], ignored: list[int], output: tuple[int, int], report: int) -> int:
    """Fork the first process of a job and return its pid; the caller learns from `report` whether exec succeeded.

    Args:
        what: `argv`, `env`, `named`, `cwd`, `open_files`, `identity`, `cgroup`: see `order.what_to_run`.
        ignored: The signals to reset.
        output: Its stdout and stderr.
        report: The write end of a pipe that exec closes. Before that, at most what `explain` takes is written to it.

    Raises:
        OSError: No process can be forked.
    """
    return fork_errand(what["argv"], what, {}, ignored, output, report)


def fork_errand(
    argv: list[str],
    what: dict[str, Any],
    env_over: Mapping[str, str],
    ignored: list[int],
    output: tuple[int, int],
    report: int,
) -> int:
    """Fork another command beside a job, in all that is not named here the same as its first process.

    Args:
        argv: What is exec'd.
        what: As for `fork_job`.
        env_over: Variables that win over all others.
        ignored: As for `fork_job`.
        output: As for `fork_job`.
        report: As for `fork_job`.

    Raises:
        OSError: No process can be forked.
    """
    leash = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.write(report, _run(argv, what, env_over, ignored, output, leash))
    finally:
        os._exit(_CANNOT_START)


def explain(report: bytes, _what: object = None) -> str:
    """Return the clause that a child wrote."""
    return report.decode(errors="ignore")  # a cut may have met a character


def _run(
    argv: list[str],
    what: dict[str, Any],
    env_over: Mapping[str, str],
    ignored: list[int],
    output: tuple[int, int],
    leash: int,
) -> bytes:
    """Exec; return only if that is impossible, with the reason."""
    try:
        os.setsid()
        _die_with(leash)
        env = _set_up(what, ignored, output, leash)
        why = _exec(argv, {**env, **env_over})
    except ValueError as error:
        why = str(error)
    except OSError as error:
        why = f"cannot set up its process: {_reason(error)}"
    except MemoryError:
        why = "cannot set up its process: out of memory"
    except BaseException as error:  # noqa: BLE001 - a bug of ours, which must end as a clause like all else
        why = f"cannot set up its process: {error!r}"
    told = why.encode(errors="backslashreplace")
    if len(told) > MAX_REPORT_BYTES:  # a very long path: the reason stands behind it, the key before it
        half = (MAX_REPORT_BYTES - 3) // 2
        told = told[:half] + b"..." + told[-half:]
    return told


def _die_with(leash: int) -> None:
    die_with_parent(signal.SIGKILL)
    if os.getppid() != leash:
        os._exit(_CANNOT_START)  # the leash died before the line above: nobody would tell us


def _set_up(what: dict[str, Any], ignored: list[int], output: tuple[int, int], leash: int) -> dict[str, str]:
    """Make this process what its program must find, and return the environment."""
    if what["cgroup"] is not None:
        cgroups.join(what["cgroup"])
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    soft = what["open_files"]
    with contextlib.suppress(ValueError):  # more than the hard limit allows by now: ours is the best there is
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output[0], 1)
    os.dup2(output[1], 2)  # everything else is closed on exec (PEP 446)
    env: dict[str, str] = what["env"]
    if any(value is not None and value != [] for value in what["identity"].values()):
        from orchestrator.runs import identity  # noqa: PLC0415 - loaded by the launcher it costs each leash 40 KiB

        env = identity.assume(what["identity"], env, what["named"])
        _die_with(leash)
    if what["cwd"] is not None:
        try:
            os.chdir(what["cwd"])
        except OSError as error:
            raise ValueError(f"working directory {what['cwd']!r}: {_reason(error)}") from error
    return env


def _exec(argv: list[str], env: Mapping[str, str]) -> str:
    """Exec; return only if that fails, with the reason."""
    program = argv[0]
    # Not os.execvpe: it imports a module by now, of a library that the new user may not be able to read.
    places = [program]
    if "/" not in program:
        places = [f"{directory or '.'}/{program}" for directory in env.get("PATH", os.defpath).split(os.pathsep)]
    obstacle = OSError(errno.ENOENT, "")
    for place in places:
        try:
            os.execve(place, argv, env)  # noqa: S606 - running commands is what we are for
        except OSError as error:
            if obstacle.errno in _NOT_THERE:  # else: a hit that cannot be executed says more than a later miss
                obstacle = error
        except ValueError as error:  # a NUL in a word
            return f"cannot execute {program!r}: {error}"
    return _why_not_executed(program, obstacle)


def _why_not_executed(program: str, error: OSError) -> str:
    if error.errno in _NOT_THERE and "/" not in program:
        return f"no such program on its PATH: {program!r}"
    if error.errno == errno.ENOENT:
        if os.path.exists(program):  # noqa: PTH110 - pathlib is too heavy for a leash
            return f"its interpreter is missing: {program!r} (see its first line)"
        return f"no such file: {program!r}"
    if error.errno == errno.EACCES:
        return f"not permitted to execute: {program!r}"
    if error.errno == errno.ENOEXEC:
        return f"neither a binary nor a script with a #! line: {program!r}"
    if error.errno == errno.EAGAIN:  # execve(2): its user was over the limit when the process became the user's
        return f"cannot execute {program!r}: its user has as many processes as the limit nproc allows"
    return f"cannot execute {program!r}: {_reason(error)}"


def _reason(error: OSError) -> str:
    text = os.strerror(error.errno or 0)
    return text[:1].lower() + text[1:]
