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
import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from orchestrator.runs import cgroups
from orchestrator.runs.linux import boot, die_with_parent, name_process
from orchestrator.runs.page import Page

MAX_REPORT_BYTES = 512
"""Of the one clause that a child may write: one write, one read."""

MAX_COMMAND_BYTES = 65536
"""Of what a waiting child is told: one message of `wire`."""

_NO_PROGRAM = ["/dev/null/none"]
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

    def begin() -> str:
        _leave_behind(leash, output)
        env = _set_up(what, ignored, leash)
        return _exec(argv, {**env, **env_over})

    pid = os.fork()
    if not pid:
        _become(begin, report)
    return pid


def wait_for_command(
    orders: socket.socket,
    sample: dict[str, Any],
    page: Page,
    place: tuple[int, int],
    leash: int,
    ignored: list[int],
    output: tuple[int, int],
    report: int,
) -> NoReturn:
    """Wait in a forked child for its command, then become it as a process of `fork_job` does.

    Args:
        orders: Where the command comes from: a message RUN. At its end the child goes.
        sample: As `what` of `fork_job`; played through before, so that each page that has to be copied is by then.
        page: The shared page.
        place: Slot and serial of the run on it.
        leash: The parent.
        ignored: As for `fork_job`.
        output: Its stdout and stderr.
        report: As for `fork_job`.
    """

    def begin() -> str:
        _leave_behind(leash, output)
        name_process("orch-ready")
        orders.setblocking(True)
        what = json.loads(json.dumps(sample))
        _exec(_NO_PROGRAM, _set_up(what, ignored, leash))
        told = orders.recv(MAX_COMMAND_BYTES)
        if not told:
            os._exit(_CANNOT_START)  # nobody needs it any more
        _, what = json.loads(told)
        if not what["separate"]:
            os.dup2(1, 2)
        if what["cgroup"]:
            cgroups.make(what["cgroup"])
        env = _set_up(what, ignored, leash)
        now = boot()
        if now >= page.term_at(*place):
            return "its lease was over before it could start"
        page.begin(*place, now)
        return _exec(what["argv"], env)

    _become(begin, report)


def explain(report: bytes, _what: object = None) -> str:
    """Return the clause that a child wrote."""
    return report.decode(errors="ignore")  # a cut may have met a character


def _become(begin: Callable[[], str], report: int) -> NoReturn:
    """Become a program; where that is impossible, report the reason and end."""
    try:
        os.write(report, _why_not(begin))
    finally:
        os._exit(_CANNOT_START)


def _why_not(begin: Callable[[], str]) -> bytes:
    try:
        why = begin()
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


def _leave_behind(leash: int, output: tuple[int, int]) -> None:
    """Take over nothing of the leash but its output pipes: a session of its own, nothing to read."""
    os.setsid()
    _die_with(leash)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output[0], 1)
    os.dup2(output[1], 2)  # everything else is closed on exec (PEP 446)


def _set_up(what: dict[str, Any], ignored: list[int], leash: int) -> dict[str, str]:
    """Make this process what its program must find, and return the environment."""
    if what["cgroup"] is not None:
        cgroups.join(what["cgroup"])
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    soft = what["open_files"]
    with contextlib.suppress(ValueError):  # more than the hard limit allows by now: ours is the best there is
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
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
