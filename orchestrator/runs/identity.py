"""Who a process is and what it may use: user and groups, limits, niceness, umask, and the variables that follow.

Loaded in the forked child alone, and only where a job asks for any of it: that takes 3 ms of such a start, while
loaded with the launcher it took 40 KiB of every leash (measured). It knows the system's users and its limits; it
must never know jobs, and nothing that is read here is told to anybody but the process itself.

Rules of this file:
1. What must be found or read comes first, while the process is as the node is: a limit of the job's must not
   break its own set-up, and a file of secrets may be root's alone.
2. What only root may raise comes before the change of the user, and that comes last.
3. Groups before the user: who is not root any more cannot change them.
4. Whatever fails is one clause that names the key of the job's definition and its value.
"""

import contextlib
import grp
import os
import pwd
import resource
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.runs import env_file
from orchestrator.runs.linux import read_file

_NOGROUP = 65534
"""The group of a user who has none: a number without an entry in the user database. Not the node's: that is root's."""
_UNCHANGED = 0xFFFFFFFF
"""To setuid and setgid this number means "as before": taken for a user it would leave the job root's."""
_FILE_TYPE, _FIFO = 0o170000, 0o010000  # of `st_mode`, by definition; the module `stat` is one more to load


class IdentityError(ValueError):
    """A process cannot be what its job asks for: one clause."""


class _Who:
    """The user and the group to become; the node's own where nothing else is asked for.

    Attributes:
        entry: Of the user in the user database, None where there is none.
        told: What of it is not the node's, as the job's definition has it, for errors.
    """

    __slots__ = ("entry", "gid", "told", "uid")

    def __init__(self, user: str | None, group: str | None) -> None:
        self.entry = None if user is None else _user_entry(user)
        self.uid = os.geteuid()
        self.gid = os.getegid()
        self.told = f"group {group!r}"
        if user is not None and (uid := self.entry.pw_uid if self.entry else int(user)) != self.uid:
            # The node's own user keeps the node's own groups: to change them would need root for nothing.
            self.uid = uid
            self.gid = self.entry.pw_gid if self.entry else _NOGROUP
            self.told = f"user {user!r}"
        if group is not None:
            self.gid = _group_id(group)

    @property
    def differs(self) -> bool:
        """Whether anything changes at all."""
        return (self.uid, self.gid) != (os.geteuid(), os.getegid())

    def variables(self) -> dict[str, str]:
        """Return what a login would set, so that `~` is not another user's."""
        if self.entry is None:
            return {}
        name = self.entry.pw_name
        home, shell = self.entry.pw_dir or "/", self.entry.pw_shell or "/bin/sh"
        return {"HOME": home, "USER": name, "LOGNAME": name, "SHELL": shell}


def assume(identity: Mapping[str, Any], env: Mapping[str, str], named: Iterable[str]) -> dict[str, str]:
    """Become what a job asks for, irrevocably, and return the environment that goes with it.

    The environment, later wins: what is inherited, HOME, USER, LOGNAME and SHELL of the user, the files in their
    order, what the job's definition and the orchestrator set by name.

    Args:
        identity: `user`, `group`, `umask`, `nice`, `oom_score_adj`, `limits`, `env_files`: see `order.what_to_run`.
        env: The environment without users and files.
        named: The names in `env` that win over both.

    Raises:
        ValueError: Why it cannot, in one clause. The process is something between then, and must end.
    """
    who = _Who(identity["user"], identity["group"])
    full = {**env, **who.variables()}
    for path in identity["env_files"]:
        full.update(env_file.read(path))
    full.update({name: env[name] for name in named if name in env})
    for name, value in identity["limits"]:
        _limit(name, value)
    if identity["nice"] is not None:
        _be_nice(identity["nice"])
    if identity["oom_score_adj"] is not None:
        _score(identity["oom_score_adj"])
    if identity["umask"] is not None:
        os.umask(identity["umask"])
    if who.differs:
        _become(who)
    return full


def _user_entry(user: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        if not _is_id(user):
            raise IdentityError(f"no such user: {user!r}") from None
    try:
        return pwd.getpwuid(int(user))
    except KeyError:
        return None


def _group_id(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        if not _is_id(group):
            raise IdentityError(f"no such group: {group!r}") from None
    return int(group)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < _UNCHANGED


def _limit(name: str, value: int) -> None:
    number: int | None = getattr(resource, f"RLIMIT_{name.upper()}", None)
    told = f"limit {name}={'unlimited' if value == resource.RLIM_INFINITY else value}"
    if number is None:
        raise IdentityError(f"{told}: this system has no such limit")
    try:
        resource.setrlimit(number, (value, value))
    except (OSError, ValueError):  # ValueError is how `resource` says EPERM and EINVAL
        raise IdentityError(f"{told}: more than the node may set ({_most(number, value)})") from None


def _most(number: int, value: int) -> str:
    """Return what a limit could have been raised to."""
    if number == resource.RLIMIT_NOFILE and os.geteuid() == 0:
        # Beyond this not even root gets.
        most = int(read_file("/proc/sys/fs/nr_open") or b"-1")
        if 0 <= most < value or value == resource.RLIM_INFINITY:
            return str(most)
    _, hard = resource.getrlimit(number)
    return "unlimited" if hard == resource.RLIM_INFINITY else str(hard)


def _be_nice(nice: int) -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except PermissionError:
        raise IdentityError(f"nice {nice}: not permitted") from None
    # Where the kernel groups processes by session (sched(7), autogroup), niceness counts only within one, and each
    # job has a session of its own: the group must be nice, too. Elsewhere there is no such file.
    with contextlib.suppress(OSError):
        _write("/proc/self/autogroup", nice)


def _score(adjustment: int) -> None:
    try:
        _write("/proc/self/oom_score_adj", adjustment)
    except PermissionError:
        raise IdentityError(f"oom_score_adj {adjustment}: not permitted") from None


def _write(path: str, value: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"%d" % value)
    finally:
        os.close(fd)


def _become(who: _Who) -> None:
    # Its output are pipes of ours. To open /dev/stdout means to open them anew, which takes their owner
    # (moby#31243: a server that is not root's cannot log to /dev/stdout).
    for fd in (1, 2):
        if os.fstat(fd).st_mode & _FILE_TYPE == _FIFO:
            with contextlib.suppress(OSError):
                os.fchown(fd, who.uid, -1)
    try:
        if who.entry is None:
            os.setgroups([])
        else:
            os.initgroups(who.entry.pw_name, who.gid)
        os.setresgid(who.gid, who.gid, who.gid)
        os.setresuid(who.uid, who.uid, who.uid)
    except PermissionError:
        if os.geteuid() == 0:
            raise IdentityError(f"{who.told}: not permitted, the node's root may not change who it is") from None
        kind = who.told.partition(" ")[0]
        raise IdentityError(f"runs as another {kind} only where the node runs as root: {who.told}") from None
    except OSError as error:
        raise IdentityError(f"cannot become {who.told}: {os.strerror(error.errno or 0).lower()}") from None
