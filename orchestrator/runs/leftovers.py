"""Killing what an earlier main left behind, before anything is started: processes, cgroups, and the proof.

A node whose main, launcher and leash die in one moment leaves trees that nobody holds. Which runs those were
says the ledger; this file finds what belongs to them, and does not return while any of it lives.

What belongs to a run that nobody closed:

    its leash and its launcher   by pid and start time
    its first process            by pid and start time
    what is below one of these   as the kernel says, in every round anew
    its session                  the first process founded it, and its number cannot be given to another one while
                                 a member lives; void once the number is a younger process's pid
    its daemons                  by ORCHESTRATOR_RUN_ID in their environment, exactly this run's
    its cgroup                   where it had one: then nothing escapes at all

Rules of this file:
1. Identity is pid and start time (field 22 of /proc/PID/stat), read again in every round; a signal goes through
   a pidfd whose start time was read after it was opened. A pid that was given to another process is never hit.
2. Nothing that is older than the run belongs to it, nor does this process, what it descends from, or what is
   below it. An environment alone proves nothing: without an open entry of this boot nobody looks at it.
3. A leash that lives is ending its run by itself, since its main is gone: it is left to it for a while (the job
   gets its grace), then helped. It goes last: while it lives nothing leaves the tree.
4. Whatever was once seen to belong is remembered: its parent's death does not hide it.
5. What nobody holds is frozen first (SIGSTOP), until a pass finds nothing new, and then killed at once: no pass
   over /proc is fast enough for processes that start each other again when one dies. Below a leash that is not
   needed, see `tree`.
6. Where something lives on after SIGKILL the node must not start. It says what, whose, and what cures it.

What gets away without a cgroup, once launcher and leash were killed before we came: a daemon that left its
session and cleared its environment, and what does nothing but fork and exit, faster than /proc can be read.

It knows processes; it must never know how the ledger is kept.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from orchestrator.errors import OrchestratorError
from orchestrator.runs import cgroups, linux, tree

LEASH_GRACE_S = 5.0
"""A leash at work is left alone so long; that is the step-down grace of a lease with the default ttl."""
KILL_LIMIT_S = 10.0
"""What lives so long after that stops the node from starting; a busy machine needs far less (40 ms at most)."""

_FREEZE_S = 1.0
"""What is never seen twice (it forks and exits) is not worth to be waited for longer."""
_HOLDERS_GO_AFTER_S = 2.0
"""A leash or launcher that is still there so long after killing began is frozen."""
_PAUSES_S = ((1.0, 0.01), (float("inf"), 0.1))
"""How long to wait between two rounds, by the age of the first."""


class Identity(NamedTuple):
    """A process that no later one can be taken for.

    Attributes:
        pid: 0: not known.
        start: In clock ticks since boot, as in /proc/PID/stat.
    """

    pid: int
    start: int


UNKNOWN = Identity(0, 0)


class Process(NamedTuple):
    """One process as /proc shows it."""

    pid: int
    state: str
    parent: int
    session: int
    threads: int
    start: int

    @property
    def identity(self) -> Identity:
        """What tells it from a later process with its pid."""
        return Identity(self.pid, self.start)

    @property
    def dead(self) -> bool:
        """Whether nothing of it runs; the first thread may be a zombie while others go on."""
        return self.state in "ZX" and self.threads <= 1


class Trace(NamedTuple):
    """What is known of one run.

    Attributes:
        run: Its id, as it stands in the environment of its processes.
        serial: Of the run, within its main.
        since: Nothing that started earlier belongs to it; in clock ticks since boot.
        launcher: The launcher that its leash is a child of.
        leash: Its leash.
        leader: Its first process, which founded its session.
        cgroup: The directory of its own cgroup.
    """

    run: str
    serial: int
    since: int
    launcher: Identity = UNKNOWN
    leash: Identity = UNKNOWN
    leader: Identity = UNKNOWN
    cgroup: str | None = None


def look_at(pid: int) -> Process | None:
    """Return a process as it is now; None if there is none with that pid."""
    fields = linux.stat_fields(pid)
    if not fields:
        return None
    # Counted from the state, which is field 3 of proc_pid_stat(5).
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[17]), int(fields[19]))


class Leftovers:
    """One sweep over the runs that nobody closed.

    Attributes:
        found: Every process of theirs that was seen alive.
        runs: The ids of the runs of which anything was seen alive.
    """

    def __init__(self, traces: Iterable[Trace], loose: Iterable[str] = (), *, now: Callable[[], float]) -> None:
        """Kill nothing yet.

        Args:
            traces: The runs.
            loose: Cgroups of runs that nobody knows of.
            now: The boot clock, in seconds.
        """
        self._traces = tuple(traces)
        self._loose = tuple(loose)
        self._now = now
        self._refused: set[int] = set()
        self._frozen: set[Identity] = set()
        self._freezing = False
        self._freezing_since_s = 0.0
        self.found: set[Identity] = set()
        self.runs: set[str] = set()

    def clear(self, on_wait: Callable[[], object]) -> None:
        """Kill until nothing is left.

        Args:
            on_wait: Called before each pause.

        Raises:
            OrchestratorError: Something cannot be killed.
        """
        began = self._now()
        # One pass over /proc is no snapshot: that nothing is left must be seen twice.
        while left := self._round(self._now() - began) or self._round(self._now() - began):
            age_s = self._now() - began
            if age_s >= LEASH_GRACE_S + KILL_LIMIT_S:
                raise OrchestratorError(self._complaint(left))
            if not self._freezing:
                on_wait()
                time.sleep(next(pause_s for until_s, pause_s in _PAUSES_S if age_s < until_s))
        for path in self._cgroups():
            cgroups.remove(path)

    def _round(self, age_s: float) -> list[int]:
        """Do what is due at this age; return what was alive."""
        sight = Sight(self._traces, self.found)
        self.found |= sight.members | sight.holders
        self.runs |= sight.runs
        patient = age_s < LEASH_GRACE_S
        self._refused.clear()
        for holder in sight.holders:
            self._send(holder, signal.SIGCONT)  # a frozen one finds out that main is gone, and does its work
        for path in self._cgroups(left_to=sight.leashes if patient else frozenset()):
            cgroups.kill(path)
        self._strike(sight.members - (sight.held if patient else set()), age_s)
        if age_s >= LEASH_GRACE_S + _HOLDERS_GO_AFTER_S:
            for holder in sight.holders:
                self._send(holder, signal.SIGKILL)
        alive = {process.pid for process in sight.members | sight.holders}
        return sorted(alive.union(*(cgroups.processes(path) for path in self._cgroups())))

    def _strike(self, members: set[Identity], age_s: float) -> None:
        fresh = members - self._frozen
        self._frozen |= fresh
        if not self._freezing:
            self._freezing_since_s = age_s
        self._freezing = bool(fresh) and age_s < self._freezing_since_s + _FREEZE_S
        for member in fresh if self._freezing else members:
            self._send(member, signal.SIGSTOP if self._freezing else signal.SIGKILL)

    def _cgroups(self, *, left_to: AbstractSet[Identity] = frozenset()) -> list[str]:
        """Return the cgroups of all runs, but of those whose leash is among `left_to`."""
        known = [trace.cgroup for trace in self._traces if trace.cgroup and trace.leash not in left_to]
        return [*known, *self._loose]

    def _send(self, target: Identity, signum: signal.Signals) -> None:
        try:
            descriptor = os.pidfd_open(target.pid)
        except ProcessLookupError:
            return
        try:
            seen = look_at(target.pid)
            if seen is not None and seen.identity == target:
                signal.pidfd_send_signal(descriptor, signum)
        except ProcessLookupError:
            return
        except PermissionError:
            self._refused.add(target.pid)
        finally:
            os.close(descriptor)

    def _complaint(self, left: list[int]) -> str:
        why = tree.why_alive(left, sorted(self._refused))
        return (
            f"an earlier start of this node left processes behind, and they live on after SIGKILL: {why};"
            f" this node must not start beside them. End them (`kill -9 {' '.join(map(str, left[:5]))}` as root,"
            " or a reboot), then start it again"
        )


class Sight:
    """What is alive of some runs, in one pass over /proc.

    Attributes:
        leashes: The leashes.
        holders: Leashes and launchers: they go by themselves once nothing is left below them.
        members: Everything else.
        held: The members below a living leash.
        runs: The ids of the runs that any of this was found by.
    """

    def __init__(self, traces: Iterable[Trace], found: AbstractSet[Identity]) -> None:
        """Look.

        Args:
            traces: The runs.
            found: What earlier passes saw.
        """
        self._table = _look_around()
        self._below: dict[int, list[Process]] = {}
        self._sessions: dict[int, list[Process]] = {}
        for process in self._table.values():
            self._below.setdefault(process.parent, []).append(process)
            self._sessions.setdefault(process.session, []).append(process)
        self._spared = self._ourselves()
        self.runs: set[str] = set()
        self.leashes: set[Identity] = set()
        self.holders: set[Identity] = set()
        roots = {identity for identity in found if self._sees(identity)}
        for trace in traces:
            roots |= self._look_for(trace)
        roots |= self._daemons({trace.run: trace.since for trace in traces})
        everything = self._with_all_below(roots)
        self.members = everything - self.holders
        self.held = self._with_all_below(self.leashes) & self.members

    def _look_for(self, trace: Trace) -> set[Identity]:
        """Note the holders of a run; return them, its first process, and the members of its session."""
        leash = {trace.leash} if self._sees(trace.leash) else set()
        launcher = {trace.launcher} if self._sees(trace.launcher) else set()
        self.leashes |= leash
        self.holders |= leash | launcher
        own = leash | self._session(trace)
        if own:
            self.runs.add(trace.run)
        return own | launcher

    def _session(self, trace: Trace) -> set[Identity]:
        founder = self._table.get(trace.leader.pid)
        if trace.leader.pid == 0 or (founder is not None and founder.start != trace.leader.start):
            return set()  # the number was given away, so the session had no member left
        return {
            process.identity
            for process in self._sessions.get(trace.leader.pid, [])
            if process.start >= trace.since and self._sees(process.identity)
        }

    def _daemons(self, since_by_run: Mapping[str, int]) -> set[Identity]:
        names = {b"ORCHESTRATOR_RUN_ID=" + os.fsencode(run): run for run in since_by_run}
        earliest = min(since_by_run.values(), default=0)
        found = set()
        for process in self._table.values():
            if process.start < earliest or not self._sees(process.identity):
                continue
            for word in names.keys() & set(linux.read_file(f"/proc/{process.pid}/environ").split(b"\0")):
                if process.start >= since_by_run[names[word]]:
                    found.add(process.identity)
                    self.runs.add(names[word])
        return found

    def _sees(self, identity: Identity) -> bool:
        process = self._table.get(identity.pid)
        return (
            process is not None
            and process.identity == identity
            and not process.dead
            and process.pid not in self._spared
        )

    def _with_all_below(self, roots: AbstractSet[Identity]) -> set[Identity]:
        found = set(roots)
        waiting = [identity.pid for identity in roots]
        for pid in waiting:
            fresh = [each.identity for each in self._below.get(pid, []) if each.pid not in self._spared]
            waiting += [each.pid for each in fresh if each not in found]
            found.update(fresh)
        return {each for each in found if not self._table[each.pid].dead}

    def _ourselves(self) -> set[int]:
        """Return this process, what it descends from, and what is below it."""
        spared: set[int] = set()
        pid = os.getpid()
        while pid and pid not in spared and pid in self._table:
            spared.add(pid)
            pid = self._table[pid].parent
        waiting = [os.getpid()]
        for pid in waiting:
            waiting += [process.pid for process in self._below.get(pid, [])]
        return spared.union(waiting)


def _look_around() -> dict[int, Process]:
    seen = (look_at(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - thousands of names, no need of paths
    return {process.pid: process for process in seen if process is not None}
