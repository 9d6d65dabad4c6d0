"""One cgroup per run, where this process was given a part of the cgroup tree: the kernel's own kill-them-all.

`cgroup.kill` reaches what no signal of ours does: a process of another user, and one that nobody's child leads
to any more. It is an addition, never the proof: the proof of an end stays ECHILD (see `tree`).

    <own>/                     what systemd delegated to the service (Delegate=yes); main and its helpers live in it
    <own>/run-<serial>-<pid>   one run: the run's serial, the pid of the main it belongs to

It knows paths below /sys/fs/cgroup; it must never know runs, leases or deadlines.

Rules of this file:
1. Only a directory that is marked as delegated is ours to divide: there is one writer for each part of the
   tree, elsewhere that is systemd or a container's engine. The mark is the extended attribute `user.delegate`
   or `trusted.delegate` with the value 1 (systemd sets both since version 250, before that only the latter).
   Writable is not enough: to root everything is.
2. No controller is switched on below it, so that processes may live in the directory itself ("no internal
   processes" holds for domain controllers only), and a run costs one mkdir and one rmdir.
3. Nothing here raises for the kernel's reasons, and nothing waits: where a cgroup cannot be made or joined the
   run has none, and its leash does without, as everywhere else.
"""

import os

from orchestrator.runs.linux import read_file

MAX_SUBGROUPS = 1000
"""Of a run that divided its own cgroup, so many are looked at, and removed, at once."""

_PREFIX = "run-"
_DELEGATED = b"1"


def own() -> str | None:
    """Return the delegated directory that this process lives in; None where there is none, or no cgroup.kill.

    Kernels have `cgroup.kill` since 5.14, and never in the root of the tree.
    """
    path = next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), None)
    if path is None or "/.." in path:  # it lies outside of this process's cgroup namespace
        return None
    for mounted, root in _mounts():
        inside = path if root == "/" else path.removeprefix(root)
        if root in ("/", path) or path.startswith(root + "/"):
            directory = (mounted + inside).rstrip("/")
            return directory if _is_delegated(directory) and _is_usable(directory) else None
    return None


def make(path: str) -> bool:
    """Make the cgroup of one run; tell whether it is there."""
    try:
        os.mkdir(path)  # noqa: PTH102 - pathlib is too heavy for a leash
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


def join(path: str) -> bool:
    """Move this process into a cgroup; called in the forked child before exec. Tell whether it is in it."""
    return _write(f"{path}/cgroup.procs", b"0")


def kill(path: str) -> bool:
    """SIGKILL everything in a cgroup and below it, whoever's it is; False where that cannot be done.

    A fork that goes on meanwhile is killed too. What waits in the kernel (state D) dies when it wakes up.
    """
    return _is_a_run_s(path) and _write(f"{path}/cgroup.kill", b"1")


def _is_a_run_s(path: str) -> bool:
    """Tell whether a directory is the cgroup of a run: a damaged record may name any, `/` and all below it too."""
    return path.rpartition("/")[2].startswith(_PREFIX) and bool(read_file(f"{path}/cgroup.events"))


def populated(path: str) -> bool:
    """Tell whether anything lives in a cgroup or below it; zombies do not count."""
    return b"populated 1" in read_file(f"{path}/cgroup.events")


def processes(path: str) -> set[int]:
    """Return what lives in a cgroup or below it; empty if there is no such cgroup."""
    if not populated(path):
        return set()  # spares the walk
    return {int(pid) for group in _with_subgroups(path) for pid in read_file(f"{group}/cgroup.procs").split()}


def remove(path: str) -> bool:
    """Remove an empty cgroup, and what a run made below it; False if it is still there.

    It cannot be removed while anything lives in it; the caller comes again.
    """
    if not _is_a_run_s(path):
        return not os.path.exists(path)  # noqa: PTH110 - pathlib is too heavy for a leash
    if _rmdir(path):
        return True
    for group in reversed(_with_subgroups(path)[1:]):
        _rmdir(group)
    return _rmdir(path)


def left_over(directory: str) -> list[str]:
    """Return the cgroups of runs below a delegated directory whose main does not live in it any more.

    Another node may live in the same directory (two in one container): the pid at the end of a run's name
    tells whose it is. Whoever has our pid is dead: we have just begun.
    """
    living = {*read_file(f"{directory}/cgroup.procs").split()} - {b"%d" % os.getpid()}
    try:
        names = os.listdir(directory)  # noqa: PTH208 - pathlib is too heavy for a leash
    except OSError:
        return []
    return [
        f"{directory}/{name}"
        for name in sorted(names)
        if name.startswith(_PREFIX) and name.rpartition("-")[2].encode() not in living
    ]


def _with_subgroups(path: str) -> list[str]:
    """Return a cgroup and those below it, each after the one it lies in."""
    found = [path]
    for group in found:  # grows while it is walked
        try:
            names = os.listdir(group)  # noqa: PTH208 - pathlib is too heavy for a leash
        except OSError:
            continue
        below = [f"{group}/{name}" for name in names if os.path.isdir(f"{group}/{name}")]  # noqa: PTH112 - as above
        found += below[: MAX_SUBGROUPS - len(found)]
    return found


def _rmdir(path: str) -> bool:
    try:
        os.rmdir(path)  # noqa: PTH106 - pathlib is too heavy for a leash
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _write(path: str, text: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, text)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _lines(path: str) -> list[str]:
    return os.fsdecode(read_file(path)).splitlines()


def _mounts() -> list[tuple[str, str]]:
    """Return where cgroup2 is mounted, and which part of the tree; on hybrid systems that is not /sys/fs/cgroup."""
    found = []
    for line in _lines("/proc/self/mountinfo"):
        place, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            root, mounted = place.split()[3:5]
            found.append((mounted.replace("\\040", " "), root))
    return found


def _is_delegated(directory: str) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(directory, name) == _DELEGATED:
                return True
        except OSError:
            continue  # not there, or (trusted) not for us to read
    return False


def _is_usable(directory: str) -> bool:
    # A process may be moved by whoever may write the cgroup.procs of where it goes and of what both lie in.
    writable = all(os.access(path, os.W_OK) for path in (directory, f"{directory}/cgroup.procs"))
    return writable and os.path.exists(f"{directory}/cgroup.kill")  # noqa: PTH110 - pathlib is too heavy for a leash
