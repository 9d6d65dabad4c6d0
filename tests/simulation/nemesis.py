"""Does harm to a cluster, one fault at a time, and at the end undoes all of it.

Each fault is one that the design promises to survive. What is a known limit is not in here, or only where
a scenario asks for it by name (`delete_lease`, `evict_lease`).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.core.nouns import JobName
from orchestrator.core.spec import ClusterSpec
from tests.simulation.history import LONG_AGO
from tests.simulation.machine import Machine
from tests.simulation.world import CALM, World

SILENCING = frozenset({"stop_main", "suspend", "cut", "pause_server"})
"""Faults that keep a holder from putting its lease back."""

EVICTIONS = 30
"""How often an evicted lease key vanishes: for about a ttl and a half."""

JOBS = (JobName("service"), JobName("cron"))


class Nemesis:
    """Knows true time and everybody's secrets, and hurts where it hurts most."""

    def __init__(self, world: World, machines: Sequence[Machine], spec: ClusterSpec, chance: random.Random) -> None:
        """Plan the snapshots from which a stale replica is made."""
        self.world = world
        self._spec = spec
        self.machines = machines
        self.chance = chance
        self.ttl_s = world.timing.ttl_s
        self._clock_goes = chance.choice((-1, 1))
        self._stepped = False
        self._forward_at = LONG_AGO
        self._ordered = False
        self._replica = world.store.snapshot()
        self._follow()

    def strike(self, name: str) -> None:
        """Do one harm, have it in the transcript, and let held batches arrive right after it."""
        timing = self.world.timing
        if name in SILENCING and self.world.at - self._forward_at < 2 * timing.heartbeat_s + timing.request_timeout_s:
            return
        self.world.note("nemesis", name)
        FAULTS[name](self)
        self.world.let_go(0.5, self.world.timing.heartbeat_s)

    def make_peace(self) -> None:
        """Undo what still lasts."""
        world = self.world
        world.weather = replace(CALM, strain=world.weather.strain)
        world.let_go(1.0, 1.0)
        if world.server_away:
            world.server_back()
        for machine in self.machines:
            machine.mend_link()
            machine.resume()
            machine.continue_main()
            machine.sick = False
            machine.hardware.set_wall_clock(0.0)
            machine.reload(self._spec)
            machine.start_main()
        if self._ordered:
            world.order(JOBS, "running")

    # --- to a node --------------------------------------------------------------------------------

    def stop_main(self) -> None:
        """SIGSTOP of main, then SIGCONT."""
        machine = self._holder()
        machine.stop_main()
        self.world.later(self._while(0.1, 3), machine.continue_main)

    def suspend(self) -> None:
        """The whole machine sleeps."""
        machine = self._holder()
        if not machine.suspended:
            machine.suspend()
            self.world.later(self._while(0.1, 3), machine.resume)

    def cut(self) -> None:
        """No way between a machine and the server."""
        machine = self.chance.choice((self._holder(), self._anybody()))
        machine.cut_link()
        self.world.later(self._while(0.1, 3), machine.mend_link)

    def kill_main(self) -> None:
        """SIGKILL of main; it is started again."""
        machine = self._holder()
        if machine.core is not None:
            machine.kill_main()
            self.world.later(self._while(0.02, 1), machine.start_main)

    def kill_leash(self) -> None:
        """SIGKILL of a leash; its tree lives on for a while."""
        machine = self._holder()
        if machine.leashes and not machine.suspended:
            self.chance.choice(list(machine.leashes.values())).snap()

    def kill_machine(self) -> None:
        """Power off; started again later."""
        machine = self._anybody()
        if machine.core is not None and not machine.suspended:
            machine.lose_power()
            self.world.later(self._while(0.05, 2), machine.start_main)

    def leave(self) -> None:
        """An ordered end; started again later."""
        machine = self._holder()
        if machine.core is not None:
            machine.leave()
            self.world.later(self._while(0.2, 2), machine.start_main)

    def set_clock(self) -> None:
        """Somebody sets a machine's wall clock, forward or back, and later puts it right."""
        machine = self._holder()
        machine.hardware.set_wall_clock(self.chance.choice((-3600.0, -90.0, -5.0, 5.0, 90.0, 3600.0)))
        self.world.later(self._while(0.1, 2), lambda: machine.hardware.set_wall_clock(0.0))

    def sicken(self) -> None:
        """Services crash on a machine for a while: a missing file, a full disk."""
        machine = self._holder()
        machine.sick = True
        for leash in list(machine.leashes.values()):
            leash.crash()

        def recover() -> None:
            machine.sick = False

        self.world.later(self._while(1, 4), recover)

    def reload(self) -> None:
        """Somebody edits a machine's file, and later puts it back; the other machines keep theirs."""
        machine = self.chance.choice((self._holder(), self._anybody()))
        machine.reload(self._edited())
        self.world.later(self._while(0.01, 2), lambda: machine.reload(self._spec))

    def _edited(self) -> ClusterSpec:
        """Return the file with one job changed, or gone. Keys and numbers of its lease stay: they are a cluster's."""
        victim = self.chance.choice(self._spec.jobs)
        changes: tuple[dict[str, Any] | None, ...] = ({"argv": ("y",)}, {"tags": ("t",)}, {"instance": 7}, None)
        change = self.chance.choice(changes)
        others = tuple(job for job in self._spec.jobs if job is not victim)
        return replace(self._spec, jobs=others if change is None else (*others, replace(victim, **change)))

    # --- to the server ----------------------------------------------------------------------------

    def pause_server(self) -> None:
        """The server answers late."""
        if not self.world.server_away:
            self.world.pause_server()
            self.world.later(self._while(0.01, 2), self.world.server_back)

    def flush(self) -> None:
        """FLUSHALL."""
        self.world.store.flush()
        self.world.history.forgot([machine.name for machine in self.machines if machine.cut])

    def empty_restart(self) -> None:
        """Another server process without any data."""
        self.flush()
        self.world.store.restart()

    def promote_stale(self) -> None:
        """A replica that lags takes over."""
        self.world.store.restore(self._replica)
        self.world.store.restart()
        self.world.history.forgot([machine.name for machine in self.machines if machine.cut])

    def step_clock(self) -> None:
        """The server's wall clock is set: forward, or once in a story back.

        Two opposite steps are a known limit: a node that was away for both sees none. So is a step forward
        that ends a lease whose holder is cut off just then, before a node without a past (which saw no step).
        """
        if self._clock_goes > 0:
            if self.world.server_away or any(machine.impaired for machine in self.machines):
                return
            self._forward_at = self.world.at
            self.world.server_offset += self.chance.choice((4.0, 0.6, 0.2)) * self.ttl_s
        elif not self._stepped:
            self.world.server_offset -= self.chance.choice((0.6, 0.2)) * self.ttl_s
        self._stepped = True
        self.world.history.clock_stepped()

    def delete_lease(self) -> None:
        """DEL of one lease key by hand."""
        self.world.store.delete(self.chance.choice(JOBS))

    def evict_lease(self) -> None:
        """One lease key vanishes again and again, until no standby remembers it."""
        key, at = self.chance.choice(JOBS), 0.0
        for _ in range(EVICTIONS):
            self.world.later(at, lambda: self.world.store.delete(key))
            at += self._while(0.01, 0.09)

    # --- to both, and by people -------------------------------------------------------------------

    def lose_rack(self) -> None:
        """The holder's machine and the server's fail together; a replica takes over."""
        machine = self._holder()
        if machine.core is not None and not machine.suspended:
            machine.lose_power()
            self.world.later(self._while(0.05, 2), machine.start_main)
        self.world.later(self._while(0.0, 0.3), self.promote_stale)

    def stop_jobs(self) -> None:
        """Somebody orders jobs to stop, and to start again: soon, or when everything has stopped."""
        if self.world.server_away:
            return
        self._ordered = True
        jobs = self.chance.choice((JOBS, JOBS[:1], JOBS[1:]))
        self.world.order(jobs, "stopped")
        delay_s = self.chance.choice((self._while(0.01, 0.1), self._while(0.1, 2)))
        self.world.later(delay_s, lambda: None if self.world.server_away else self.world.order(jobs, "running"))

    def pause_job(self) -> None:
        """Somebody pauses the schedule, and lets it go on."""
        if self.world.server_away:
            return
        self._ordered = True
        self.world.order(JOBS[1:], "paused")
        delay_s = self._while(0.05, 3)
        self.world.later(delay_s, lambda: None if self.world.server_away else self.world.order(JOBS[1:], "running"))

    def trigger(self) -> None:
        """Somebody orders one run now."""
        if not self.world.server_away:
            self.world.trigger(JOBS[1])

    def restart_and_fail_over(self) -> None:
        """Somebody restarts the jobs, and then a replica takes over that has not heard of it."""
        if self.world.server_away:
            return
        self._ordered = True
        self.world.order(JOBS, "stopped")
        self.world.later(self._while(0.0, 0.05), lambda: self.world.order(JOBS, "running"))
        self.world.later(self._while(0.05, 0.2), self.promote_stale)

    # --- inside -----------------------------------------------------------------------------------

    def _anybody(self) -> Machine:
        return self.chance.choice(self.machines)

    def _holder(self) -> Machine:
        holders = [machine for machine in self.machines if any(machine.holds(job) for job in JOBS)]
        return self.chance.choice(holders or self.machines)

    def _while(self, least_ttls: float, most_ttls: float) -> float:
        return self.chance.uniform(least_ttls, most_ttls) * self.ttl_s

    def _follow(self) -> None:
        self._replica = self.world.store.snapshot()
        self.world.later(self._while(0.02, 0.8), self._follow)


FAULTS: dict[str, Callable[[Nemesis], None]] = {
    "stop_main": Nemesis.stop_main,
    "suspend": Nemesis.suspend,
    "cut": Nemesis.cut,
    "kill_main": Nemesis.kill_main,
    "kill_leash": Nemesis.kill_leash,
    "kill_machine": Nemesis.kill_machine,
    "leave": Nemesis.leave,
    "pause_server": Nemesis.pause_server,
    "flush": Nemesis.flush,
    "empty_restart": Nemesis.empty_restart,
    "promote_stale": Nemesis.promote_stale,
    "step_clock": Nemesis.step_clock,
    "delete_lease": Nemesis.delete_lease,
    "evict_lease": Nemesis.evict_lease,
    "lose_rack": Nemesis.lose_rack,
    "stop_jobs": Nemesis.stop_jobs,
    "restart_and_fail_over": Nemesis.restart_and_fail_over,
    "sicken": Nemesis.sicken,
    "reload": Nemesis.reload,
    "set_clock": Nemesis.set_clock,
    "pause_job": Nemesis.pause_job,
    "trigger": Nemesis.trigger,
}
