"""A first process as tests start it: forked by a small leash that reports all that came of it."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

# A process of its own, because a fork of pytest would be one of many threads, and the way a launcher is started,
# because what is loaded in the child must be found there, too.
LEASH = f"""
import json, os, sys
sys.path.append({str(ROOT)!r})
from orchestrator.runs import first_process, identity  # now: whoever it becomes may not be able to read it
from orchestrator.runs.first_process import fork_errand, fork_job, ignored_signals
case = json.load(sys.stdin)
if case["unprivileged"] and os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
pipes = [os.pipe() for _ in range(3)]
output, report = (pipes[0][1], pipes[1][1]), pipes[2][1]
ignored = ignored_signals()
if case["errand"]:
    pid = fork_errand(case["errand"], case["what"], case["env_over"], ignored, output, report)
else:
    pid = fork_job(case["what"], ignored, output, report)
for _, write_end in pipes:
    os.close(write_end)
report = os.read(pipes[2][0], 4096)
if case["leash_dies"]:
    print(json.dumps(dict(status=0, out=str(pid), err="", why=first_process.explain(report), size=0)))
    sys.exit()
_, status = os.waitpid(pid, 0)
out, err = (os.read(read_end, 65536).decode() for read_end, _ in pipes[:2])
size = len(report)
print(json.dumps(
    dict(status=os.waitstatus_to_exitcode(status), out=out, err=err, why=first_process.explain(report), size=size)
))
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a first process did.

    Attributes:
        why: What its leash learns of a start that failed.
        size: Of that, in bytes as sent.
    """

    status: int
    out: str
    err: str
    why: str
    size: int


@dataclass(frozen=True, slots=True)
class Case:
    """What a leash is sent, as far as the first process is concerned; Any: what JSON holds.

    Attributes:
        errand: Run instead of `argv`, beside it as it were.
        unprivileged: The leash is not root's.
        leash_dies: As soon as the program runs; `out` is its pid then.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/bin:/bin"})
    named: tuple[str, ...] = ()
    cwd: str | None = "/"
    open_files: int = 1024
    cgroup: str | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    errand: tuple[str, ...] = ()
    env_over: dict[str, str] = field(default_factory=dict)
    unprivileged: bool = False
    leash_dies: bool = False


def seen(case: Case) -> Seen:
    """Run a first process to its end."""
    nothing: dict[str, object] = dict.fromkeys(("user", "group", "umask", "nice", "oom_score_adj"))
    names = ("argv", "env", "named", "cwd", "open_files", "cgroup")
    what = {name: getattr(case, name) for name in names}
    what["identity"] = {**nothing, "limits": [], "env_files": [], **case.identity}
    told = {"what": what} | {name: getattr(case, name) for name in ("errand", "env_over", "unprivileged", "leash_dies")}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LEASH],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    return Seen(**json.loads(done.stdout))


def shell(script: str, **case: Any) -> Seen:
    """Run `sh -c`; `case` as in `Case`, and what is no attribute of it is the identity's. Any: as there."""
    known = {name: value for name, value in case.items() if name in Case.__slots__}
    identity = {name: value for name, value in case.items() if name not in known}
    return seen(Case(("sh", "-c", script), identity=identity, **known))


def refused(**case: Any) -> str:
    """Return why a process cannot start, and assert that this is all that comes of it. Any: as in `shell`."""
    found = shell("echo it runs", **case)
    assert (found.status, found.out, found.err) == (127, "", "")
    return found.why
