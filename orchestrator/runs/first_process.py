"""The first process of a job: fork, set up, exec; and what to say when that fails.

It knows what a program must find when it begins: a session of its own, no signal ignored or blocked,
the old limit of open files, /dev/null as input, one pipe as output, and a parent whose death kills it.
It must never know deadlines or logs.
"""

import contextlib
import errno
import os
import resource
import signal
from typing import Any

from orchestrator.runs.linux import die_with_parent

_CANNOT_START = 127  # a shell's exit status for a command that it cannot start


def ignored_signals() -> list[int]:
    """Return what this process ignores; exec would hand it on, so the first process resets it."""
    return [number for number in range(1, signal.NSIG) if signal.getsignal(number) == signal.SIG_IGN]


def fork_job(what: dict[str, Any], ignored: list[int], output: int, report: int) -> int:
    """Fork the first process and return its pid; the caller learns from `report` whether exec succeeded.

    Args:
        what: `argv`, `env`, `cwd`, `open_files`.
        ignored: The signals to reset.
        output: Its stdout and stderr.
        report: The write end of a pipe that exec closes. Before that, at most "<step> <errno>" is written to it.

    Raises:
        OSError: No process can be forked.
    """
    leash = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    step = "setup"
    try:
        os.setsid()
        die_with_parent(signal.SIGKILL)
        if os.getppid() != leash:
            os._exit(_CANNOT_START)  # the leash died before the line above: nobody would tell us
        _set_up(what, ignored, output)
        step = "cwd"
        if what["cwd"] is not None:
            os.chdir(what["cwd"])
        step = "exec"
        os.execvpe(what["argv"][0], what["argv"], what["env"])  # noqa: S606 - running commands is what we are for
    except OSError as error:
        os.write(report, b"%s %d" % (step.encode(), error.errno or 0))
    except ValueError:
        os.write(report, b"%s %d" % (step.encode(), errno.EINVAL))  # a NUL in a word
    finally:
        os._exit(_CANNOT_START)


def _set_up(what: dict[str, Any], ignored: list[int], output: int) -> None:
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    soft = what["open_files"]
    with contextlib.suppress(ValueError):  # more than the hard limit allows by now: ours is the best there is
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)  # everything else is closed on exec (PEP 446)


def explain(report: bytes, what: dict[str, Any]) -> str:
    """Turn what the first process reported into one clause for people."""
    step, _, text = report.partition(b" ")
    number = int(text or b"0")
    program, cwd = what["argv"][0], what["cwd"]
    if step == b"cwd":
        return f"working directory {cwd!r}: {_reason(number)}"
    if step == b"exec":
        return _explain_exec(program, cwd, number)
    return f"cannot set up its process: {_reason(number)}"


def _explain_exec(program: str, cwd: str | None, number: int) -> str:
    if number == errno.ENOENT:
        if "/" not in program:
            return f"no such program on its PATH: {program!r}"
        place = os.path.join(cwd or ".", program)  # noqa: PTH118 - pathlib is too heavy for a leash
        if os.path.exists(place):  # noqa: PTH110 - as above
            return f"its interpreter is missing: {program!r} (see its first line)"
        return f"no such file: {program!r}"
    if number == errno.EACCES:
        return f"not permitted to execute: {program!r}"
    if number == errno.ENOEXEC:
        return f"neither a binary nor a script with a #! line: {program!r}"
    return f"cannot execute {program!r}: {_reason(number)}"


def _reason(number: int) -> str:
    text = os.strerror(number)
    return text[:1].lower() + text[1:]
