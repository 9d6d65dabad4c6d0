"""One seed, one story: a cluster, a nemesis, and at the end a quiet in which everything must be well again.

`EVERYDAY` are the flavours in which nothing may go wrong; `story(seed)` takes one after the other.
`DELETIONS` holds lease keys that are deleted by hand. One deletion costs nothing (the holder puts its key
back), but together with a second fault two runs at once are a known limit: the holder is cut off at that
moment, or the taker has just started or was cut off and remembers nothing, or sits in the quarantine of
a clock step. It is bounded: H + RT + K where the holder reaches Redis (its next beat finds the other one,
and it kills), else T - M (heartbeat, request timeout, kill time, ttl, margin). There it is measured, and
only a longer one is a broken promise.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.core.attempts import MOST_RERUNS
from orchestrator.core.nouns import NodeName
from orchestrator.core.spec import (
    ClusterSpec,
    JobSpec,
    Kind,
    Misfire,
    OnLost,
    RetrySpec,
    ScheduleSpec,
    StopSpec,
)
from orchestrator.core.spec import Overlap as OverlapPolicy
from orchestrator.core.timing import LeaseTiming
from tests.simulation.history import History, LimitS, Overlap, Violation
from tests.simulation.machine import Machine
from tests.simulation.nemesis import JOBS, Nemesis
from tests.simulation.stored import Ticks
from tests.simulation.world import ORDINARY, Weather, World

STORY_TTLS = 24
"""How long a story lasts, in ttls; the last `QUIET_TTLS` are quiet."""

QUIET_TTLS = 6
FAULTS_A_STORY = 9
BURSTS_A_STORY = 3

SERVICE, CRON = JOBS


@dataclass(frozen=True, slots=True)
class Scenario:
    """Which faults a story may hold.

    Attributes:
        faults: Names out of `FAULTS`; one that stands twice comes twice as often.
        tight: In how many of the stories the slack is shrunk, so that it cannot hide an error.
        bursts: Faults come a few at once instead of one by one.
        measured: Overlaps are a known limit: they are measured against their bound.
    """

    name: str
    faults: tuple[str, ...]
    weather: Weather = ORDINARY
    tight: float = 0.3
    bursts: bool = False
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What a story came to.

    Attributes:
        violation: The broken promise, "" if none was.
        simulated_s: True time that passed in it.
        overlaps: How long each overlap lasted, where they are measured.
    """

    seed: int
    scenario: str
    violation: str
    simulated_s: float
    starts: int
    overlaps: tuple[float, ...]
    transcript: tuple[str, ...]

    @property
    def well(self) -> bool:
        """Whether nothing went wrong, not even within a known limit."""
        return not self.violation and not self.overlaps


def tell(seed: int, scenario: Scenario) -> Told:
    """Play one seed to its end or to the first broken promise."""
    chance = random.Random(f"story {seed}")  # noqa: S311 - a story must replay, not be secret
    spec = _cluster(chance, scenario)
    timing = spec.jobs[0].lease
    machines: list[Machine] = []
    limit_s = _limit(machines, timing) if scenario.measured else None
    schedule = spec.jobs[1].schedule
    attempts = 1 + spec.jobs[1].retries.count + MOST_RERUNS
    history = History(timing, schedule.every_s if schedule is not None else 0.0, limit_s, attempts)
    world = World(seed, timing, scenario.weather, history)
    machines += [Machine(world, spec, NodeName(f"n{i}")) for i in range(chance.choice((2, 3, 3)))]
    violation = ""
    try:
        _play(world, machines, spec, scenario, chance)
    except Violation as broken:
        violation = f"seed {seed} ({scenario.name}): {broken}"
    lengths = tuple(history.overlaps)
    return Told(seed, scenario.name, violation, world.at, history.starts, lengths, tuple(world.transcript))


def _play(
    world: World, machines: Sequence[Machine], spec: ClusterSpec, scenario: Scenario, chance: random.Random
) -> None:
    ttl_s = world.timing.ttl_s
    for machine in machines:
        world.later(chance.uniform(0, 2 * ttl_s), machine.start_main)
    nemesis = Nemesis(world, machines, spec, chance)
    for at, name in zip(_moments(chance, scenario), chance.choices(scenario.faults, k=FAULTS_A_STORY), strict=True):
        world.later(at * ttl_s, partial(nemesis.strike, name))
    world.run_until((STORY_TTLS - QUIET_TTLS) * ttl_s)
    nemesis.make_peace()
    world.run_until((STORY_TTLS - 3) * ttl_s)
    ticks_before = len(world.history.ticks)
    world.run_until(STORY_TTLS * ttl_s)
    world.history.finish(world.at)
    expect_health(world, machines, ticks_before)


def _moments(chance: random.Random, scenario: Scenario) -> list[float]:
    """Choose when the faults come, in ttls."""
    last = STORY_TTLS - QUIET_TTLS - 3
    if not scenario.bursts:
        return [chance.uniform(1.5, last) for _ in range(FAULTS_A_STORY)]
    begins = [chance.uniform(1.5, last) for _ in range(BURSTS_A_STORY)]
    return [chance.choice(begins) + chance.uniform(0, 0.6) for _ in range(FAULTS_A_STORY)]


def _cluster(chance: random.Random, scenario: Scenario) -> ClusterSpec:
    ttl_s = chance.choice((30.0, 60.0, 60.0, 120.0))
    timing = LeaseTiming.scaled(ttl_s)
    if chance.random() < scenario.tight:
        timing = LeaseTiming.scaled(
            ttl_s,
            margin_s=chance.choice((0.02, 0.5)),
            request_timeout_s=ttl_s / 12,
            kill_time_s=0.1,
            clock_rate_error=chance.choice((0.0001, 0.001, 0.01)),
        )
    stop = StopSpec(timeout_s=chance.choice((2.0, ttl_s / 2, 2 * ttl_s)))
    schedule = ScheduleSpec(every_s=chance.choice((0.5, 2.0)) * ttl_s)
    grace_s = chance.choice((600.0, 2 * ttl_s))
    service = JobSpec(SERVICE, "service", Kind.SERVICE, ("x",), timing, key="service", definition="d", stop=stop)
    cron = JobSpec(
        CRON, "cron", Kind.CRON, ("x",), timing, key="cron", definition="d", schedule=schedule, stop=stop,
        misfire_grace_s=grace_s,
        misfire=chance.choice((Misfire.ONCE, Misfire.ONCE, Misfire.SKIP, Misfire.ALL)),
        overlap=chance.choice(
            (OverlapPolicy.SKIP, OverlapPolicy.SKIP, OverlapPolicy.QUEUE, OverlapPolicy.REPLACE)
        ),
        on_lost=chance.choice((OnLost.SKIP, OnLost.RERUN)),
        retries=chance.choice((RetrySpec(), RetrySpec(count=2, delay_s=ttl_s / 10))),
        jitter_s=chance.choice((0.0, 0.3)) * schedule.every_s,
    )  # fmt: skip
    return ClusterSpec("sim", (service, cron))


def _limit(machines: Sequence[Machine], timing: LeaseTiming) -> LimitS:
    """Return the bound of an overlap: see the head of this file."""

    def limit_s(overlap: Overlap) -> float:
        holder = next(machine for machine in machines if machine.name == overlap.older.node)
        if holder.troubled_at >= overlap.since - timing.heartbeat_s:
            return timing.ttl_s - timing.margin_s
        return timing.heartbeat_s + timing.request_timeout_s + timing.kill_time_s + timing.margin_s

    return limit_s


def expect_health(world: World, machines: Sequence[Machine], ticks_before: int) -> None:
    """After the quiet every job is held by one node, the service runs once, and ticks go on."""
    for name in JOBS:
        holders = [machine.name for machine in machines if machine.holds(name)]
        if len(holders) != 1:
            raise Violation(f"{world.at:.3f} {name}: after the quiet it is held by {holders or 'nobody'}")
    holder = next(machine for machine in machines if machine.holds(SERVICE))
    waits = holder.core is not None and holder.core.jobs[SERVICE].restarts.ready_at > holder.hardware.boot()
    if world.history.runs(SERVICE) != 1 and not waits:
        raise Violation(f"{world.at:.3f} service: after the quiet it does not run")
    _expect_the_counts(world)
    if len(world.history.ticks) == ticks_before:
        raise Violation(f"{world.at:.3f} cron: after the quiet its ticks do not run")


def _expect_the_counts(world: World) -> None:
    """Of every tick it is known what became of it: ran + skipped + missed are all since the counts began."""
    counted: Ticks = world.store.data["tick", CRON]
    told = counted.ran + counted.skipped + counted.missed
    due = world.history.ticks_between(counted.since_ms, counted.last_ms)
    if told != due and not world.history.has_forgotten:
        raise Violation(f"{world.at:.3f} cron: {due} ticks, of which {told} are accounted for: {counted}")


BASE = (
    "stop_main", "suspend", "cut", "kill_main", "kill_leash", "kill_machine", "leave", "pause_server",
    "flush", "empty_restart", "promote_stale", "step_clock",
)  # fmt: skip

PLAIN = Scenario("plain", BASE)
"""One fault after the other, in ordinary weather."""

STRAINED = Scenario(
    "strained",
    ("cut", "cut", "cut", "stop_main", "suspend", "pause_server", "kill_main", "kill_leash", "step_clock"),
    Weather(slow=0.3, strain=1.0),
    tight=0.7,
)
"""Answers come at the last moment, kills and schedulers take all they may, and hardly any slack is left."""

TREACHEROUS = Scenario("treacherous", (*BASE, "cut", "stop_jobs", "flush", "step_clock"), Weather(held=0.06))
"""Batches are carried out long after their client gave up, and when it hurts."""

ORDERED = Scenario(
    "ordered",
    ("leave", "leave", "stop_jobs", "stop_jobs", "stop_jobs", "stop_jobs", "kill_leash", "cut", "pause_server"),
    Weather(slow=0.05, held=0.1, strain=1.0),
)
"""People stop and start jobs and nodes while the network plays tricks."""

RACKS = Scenario("racks", (*BASE, *("lose_rack",) * 3, *("restart_and_fail_over",) * 2, "stop_jobs"), bursts=True)
"""Faults come together."""

PROMOTIONS = Scenario(
    "promotions", (*("promote_stale",) * 5, "restart_and_fail_over", "leave", "kill_machine", "kill_main", "stop_main")
)
"""Replicas that lag take over again and again, while leases change hands."""

DEPLOYS = Scenario(
    "deploys",
    (*("reload",) * 5, "sicken", "sicken", "stop_jobs", "leave", "kill_main", "kill_leash", "cut", "stop_main"),
    Weather(slow=0.05, held=0.05, strain=1.0),
)
"""Files change under running jobs, and services crash on one machine and not on the others."""

SCHEDULES = Scenario(
    "schedules",
    (*("trigger",) * 4, *("set_clock",) * 4, "pause_job", "pause_job", "stop_jobs", "kill_main", "kill_leash",
     "kill_machine", "leave", "cut", "stop_main", "suspend", "step_clock", "pause_server"),
    Weather(slow=0.05, held=0.08, strain=1.0),
)  # fmt: skip
"""Somebody sets the clocks of machines, orders runs, and pauses the schedule, while nodes fail under it."""

EVERYDAY = (PLAIN, STRAINED, TREACHEROUS, ORDERED, RACKS, PROMOTIONS, DEPLOYS, SCHEDULES)
"""All flavours in which nothing may go wrong."""

DELETIONS = Scenario("deletions", (*BASE, *("delete_lease",) * 4, "evict_lease"), measured=True)
"""With lease keys deleted by hand: see the head of this file."""

SCENARIOS = {scenario.name: scenario for scenario in (*EVERYDAY, DELETIONS)}


def story(seed: int) -> Told:
    """Tell an everyday story, in the flavour that is this seed's turn."""
    return tell(seed, EVERYDAY[seed % len(EVERYDAY)])
