"""Reports of ticks that were lost, doubled or moved when a node died, was started again, or could not reach its Redis.

Each test names what holds, its docstring what was reported and where; all reports stand in
`schedule_reports.txt`.
"""

import random
from collections.abc import Callable
from functools import partial

import pytest

from orchestrator.core.nouns import JobName
from orchestrator.core.spec import ClusterSpec, Misfire
from tests.bugs.days import CRON, SOON_S, TTL_S, Days, OrderlyMachine, cron, instant, service

TAKEN_OVER_S = 1.5 * TTL_S
MINUTELY = "* * * * *"

Fault = Callable[[OrderlyMachine], None]


# The lease and who may run


def test_a_node_that_cannot_get_its_lease_runs_nothing() -> None:
    """redbeat#208: what failed while acquiring was swallowed, and the standby scheduled as if it led."""
    days = Days(cron(MINUTELY), nodes=2, begin="2027-01-15T09:59:10Z")
    (standby,) = days.standbys()

    standby.cut_link()
    days.go("10:10:30")

    assert days.ticks() == [f"10:{minute:02}:00" for minute in range(11)]
    assert {start.node for start in days.starts} == {days.holder().name}


def test_idle_nodes_stay_candidates_for_ever() -> None:
    """redbeat#306: the lock ran out at a change of the clocks, and nobody led until somebody restarted it."""
    days = Days(cron(MINUTELY), nodes=4, begin="2027-01-15T09:28:30Z")
    days.go("10:00:30")

    days.holder().lose_power()
    days.world.store.delete(CRON)  # its key, too
    days.pass_s(TAKEN_OVER_S)

    assert days.holder().life == 1, "it was never restarted"
    days.go("10:05:30")
    assert len(days.ticks()) == len(set(days.ticks())) == 37
    days.assert_every_tick_is_told_of()


def test_a_standby_with_another_file_changes_nothing_of_the_schedule_and_the_drift_is_said() -> None:
    """redbeat#198, PR#335: in a rolling deploy a standby wrote its schedule over the leader's."""
    files = [[cron("*/10 * * * *")], [cron(MINUTELY)]]
    days = Days(files=files, begin="2027-01-15T09:08:30Z", begun=False)
    old, new = days.machines
    old.start_main()
    days.go("09:15:00")

    new.start_main()
    days.go("10:01:00")

    assert days.ticks() == ["09:10:00", "09:20:00", "09:30:00", "09:40:00", "09:50:00", "10:00:00"]
    assert {start.node for start in days.starts} == {old.name}
    assert {saying.fields["node"] for saying in days.said("file.differs")} == {old.name, new.name}


# Ticks over a failover


@pytest.mark.parametrize("fault", [OrderlyMachine.kill_main, OrderlyMachine.lose_power])
def test_a_period_is_not_begun_anew_by_a_failover(fault: Fault) -> None:
    """redbeat#151, PR#233, celery#251: intervals began anew with each leader; 29 min passed for a job of every 15."""
    days = Days(cron(every_s=900.0), nodes=2, begin="2027-01-15T09:32:00Z")

    days.go("09:59:30")
    fault(days.holder())
    days.go("10:31:00")

    assert days.ticks() == ["09:45:00", "10:00:00", "10:15:00", "10:30:00"]
    assert all(start.late_s < TTL_S for start in days.starts)


def test_all_jobs_of_a_dead_holder_are_held_again_and_each_of_their_ticks_runs_or_is_told() -> None:
    """dkron#998, #1210: after the election of a new leader nothing ran until the cluster was restarted."""
    names = [JobName(f"job{number}") for number in range(20)]
    days = Days(*(cron(MINUTELY, name=name) for name in names), nodes=1, begin="2027-01-15T09:57:30Z")
    add_node(days)
    days.go("10:00:50")

    days.machines[0].lose_power()
    days.pass_s(TAKEN_OVER_S)

    assert [name for name in names if not days.machines[1].holds(name)] == []
    days.go("10:05:30")
    for name in names:
        assert days.ticks(name)[-6:] == [f"10:0{minute}:00" for minute in range(6)]
        days.assert_every_tick_is_told_of(name)


def add_node(days: Days) -> None:
    """Have one node more, which stands by."""
    first = days.machines[0]
    assert first.core is not None
    jobs = tuple(job.spec for job in first.core.jobs.values())
    days.join(ClusterSpec("days", jobs))


def test_a_tick_of_another_zone_does_not_run_again_at_a_failover() -> None:
    """nomad#2721: a job of 09:00 in Paris was started at 09:21Z, when another leader was elected."""
    days = Days(cron("0 9 * * *", timezone="Europe/Paris"), nodes=2, begin="2017-06-12T06:50:00Z")

    days.go("09:21:00")
    days.holder().lose_power()
    days.go("10:00:00")

    assert days.ticks() == ["07:00:00"]


# Runs over a failover


def test_the_next_tick_runs_though_the_node_of_the_last_run_died_and_that_run_is_told_as_lost() -> None:
    """dkron#349: with `forbid`, a job whose node had crashed while it ran was skipped for ever."""
    days = Days(cron(MINUTELY), nodes=2, begin="2027-01-15T09:57:30Z", lasts_s={CRON: 40.0})

    days.go("10:05:20")
    dead = days.holder()
    dead.lose_power()
    days.go("10:07:50")

    told = {entry["tick"]: (entry["outcome"], entry["node"]) for entry in days.past().entries}
    assert told["2027-01-15T10:05:00.000Z"] == ("lost", dead.name)
    assert told["2027-01-15T10:06:00.000Z"] == ("ok", days.holder().name)
    assert days.ticks()[-3:] == ["10:05:00", "10:06:00", "10:07:00"]
    days.assert_every_tick_is_told_of()


@pytest.mark.parametrize(
    "fault", [OrderlyMachine.leave, OrderlyMachine.kill_main, OrderlyMachine.lose_power, OrderlyMachine.suspend]
)
def test_no_restart_upgrade_or_failover_lets_a_run_begin_beside_another(fault: Fault) -> None:
    """dkron#1569, #377, #452, #655, nomad#11052: `forbid` did not hold after a restart, an upgrade, an election."""
    days = Days(cron(MINUTELY), nodes=2, begin="2027-01-15T09:57:30Z", lasts_s={CRON: 90.0})
    days.go("10:02:30")

    for _ in range(4):
        struck = days.holder()
        fault(struck)
        days.pass_s(70.0)
        struck.resume()
        struck.start_main()
        days.pass_s(100.0)

    skipped = [str(why) for outcome, _, _, _, why in days.not_run() if outcome == "skipped"]
    assert skipped
    assert all(why.endswith("still runs (overlap: skip)") for why in skipped)
    days.assert_every_tick_is_told_of()  # and the ledger raises where two run at once


def test_a_run_may_take_far_longer_than_its_lease() -> None:
    """ShedLock#9, #1502, #132: the lock had to last as long as the job: one that ran longer ran twice."""
    days = Days(cron("0 * * * *"), nodes=2, begin="2027-01-15T09:57:30Z", lasts_s={CRON: 600.0})

    days.go("11:15:00")

    assert days.ticks() == ["10:00:00", "11:00:00"]
    assert [entry["elapsed_s"] for entry in days.past().entries] == [600.0, 600.0]
    assert len(days.said("lease.acquired")) == 1


def test_a_crash_in_a_long_run_frees_the_job_within_a_ttl_and_a_half() -> None:
    """ShedLock#9, #1502: a crash left the job locked for the longest time that it might ever take."""
    days = Days(cron("0 * * * *"), nodes=2, begin="2027-01-15T09:57:30Z", lasts_s={CRON: 600.0})
    days.go("10:05:00")
    dead = days.holder()

    dead.kill_main()
    days.pass_s(TAKEN_OVER_S)

    assert days.holder() is not dead
    days.go("11:00:30")
    assert days.ticks() == ["10:00:00", "11:00:00"]


# Redis forgets, or is away


def test_a_job_whose_ticks_redis_lost_goes_on_without_a_tick_lost_or_twice() -> None:
    """redbeat#291: Redis evicted an entry, and the task was gone with one warning."""
    days = Days(cron("*/5 * * * *"), nodes=2, begin="2027-01-15T09:47:30Z")
    days.go("10:02:00")

    days.world.store.delete(CRON, part="tick")
    days.ledger.forgot()
    days.go("10:12:00")
    days.holder().lose_power()
    days.go("10:22:00")

    assert days.ticks() == [f"{at}:00" for at in ("09:50", "09:55", "10:00", "10:05", "10:10", "10:15", "10:20")]


def test_after_an_outage_of_the_store_all_jobs_are_led_and_what_was_due_is_run_or_told() -> None:
    """dkron#152: the store had no leader for some seconds; leadership was lost and never given again."""
    names = [JobName(f"job{number}") for number in range(5)]
    days = Days(*(cron(MINUTELY, name=name, ttl_s=60.0) for name in names), nodes=3, begin="2027-01-15T09:55:30Z")
    days.go("10:00:30")

    days.world.pause_server()
    days.pass_s(3 * 60.0)
    days.world.server_back()
    days.pass_s(60.0 + 60.0 / 5)

    assert {days.holder(name).holds(name) for name in names} == {True}
    days.go("10:10:30")
    for name in names:
        assert days.ticks(name)[-1] == "10:10:00"
        days.assert_every_tick_is_told_of(name)


# Starts, deploys, new jobs


def test_a_tick_in_a_deploy_runs_once_after_it_and_is_marked() -> None:
    """apscheduler#296, sidekiq-cron#463, #111, good_job#1484, sidekiq#6656: a grace of 1 s or 60 s, or none.

    Runs were lost at each deploy. Here 14:57 to 15:03 is well within the default.
    """
    days = Days(cron("0 15 * * *"), nodes=2, begin="2027-01-15T14:50:00Z")
    days.go("14:57:00")

    for machine in days.machines:
        machine.leave()
    days.go("15:03:00")
    for machine in days.machines:
        machine.start_main()
    days.go("15:30:00")

    (run,) = days.starts
    assert (days.ticks(), run.reason) == (["15:00:00"], "catch_up")
    assert run.at < instant("2027-01-15T15:03:00Z") + 2 * TTL_S
    assert days.past().ran == 1


def test_a_new_job_does_not_fire_for_the_past_and_neither_do_restarts() -> None:
    """sidekiq-cron#73, yacron#67, ShedLock#8: a job that was new, or whose node was started again, ran at once."""
    nightly = cron("0 3 * * *", ttl_s=60.0)
    days = Days(service(ttl_s=60.0), nodes=2, begin="2027-01-15T11:50:00Z")
    days.go("12:00:00")

    for machine in days.machines:
        machine.reload(ClusterSpec("days", (service(ttl_s=60.0), nightly)))
    days.go("13:00:00")
    for _ in range(3):
        for machine in days.machines:
            machine.lose_power()
        days.pass_s(600.0)
        for machine in days.machines:
            machine.start_main()
        days.pass_s(600.0)
    assert days.of() == []
    days.go("2027-01-16T04:00:00Z")

    assert days.ticks() == ["03:00:00"]


def test_an_edited_job_does_not_fire_for_the_past() -> None:
    """sidekiq-cron#73: with another expression whose time of today had passed, the job ran at once."""
    days = Days(cron("0 18 * * *"), begin="2027-01-15T12:00:00Z")
    days.go("12:10:00")

    days.machines[0].reload(ClusterSpec("days", (cron("5 12 * * *"),)))
    days.go("13:00:00")

    assert days.starts == []


def test_restarts_move_no_period() -> None:
    """sidekiq-scheduler#251, redbeat#74, #153: a restart began each period anew, or put off the first run."""
    days = Days(cron("@every 1h"), begin="2027-01-15T09:40:00Z")
    (machine,) = days.machines

    for at in ("10:10:00", "10:25:00", "10:45:00"):
        days.go(at)
        machine.lose_power()
        days.pass_s(30.0)
        machine.start_main()
    days.go("12:30:00")

    assert days.ticks() == ["10:00:00", "11:00:00", "12:00:00"]
    assert all(abs(start.late_s) < SOON_S for start in days.starts)


# A whole day


@pytest.mark.parametrize("misfire", list(Misfire))
def test_every_tick_of_a_bad_day_is_told_of(misfire: Misfire) -> None:
    """oban#1290: a cron ran "30 % of the time", and no log said anything of the others."""
    chance = random.Random(f"a bad day {misfire}")  # noqa: S311 - a day must replay, not be secret
    spec = cron("*/5 * * * *", ttl_s=60.0, misfire=misfire)
    days = Days(spec, nodes=3, begin="2027-01-14T23:52:30Z", lasts_s={CRON: 420.0})
    days.go("2027-01-15T00:00:00Z")
    strike(days, chance)

    days.go("2027-01-16T00:02:30Z")

    past = days.past()
    assert past.settled_ms == 1000 * instant("2027-01-16T00:00:00Z")
    told = [past.ran, past.skipped, past.missed]
    assert sum(told) == 24 * 12 + 2
    assert min(told) > 0
    days.assert_every_tick_is_told_of()


def strike(days: Days, chance: random.Random) -> None:
    """Have something happen to the holder every half an hour, and to Redis now and then."""
    for number in range(47):
        at_s = 1800.0 * number + chance.uniform(0, 1200.0)
        days.world.later(at_s, partial(_strike_once, days, chance.choice(FAULTS), chance.uniform(30.0, 1500.0)))
    for at_s in (6 * 3600.0, 14 * 3600.0):
        days.world.later(at_s, days.world.pause_server)
        days.world.later(at_s + 1500.0, days.world.server_back)


def _strike_once(days: Days, fault: Fault, for_s: float) -> None:
    struck = next((machine for machine in days.machines if machine.holds(CRON)), days.machines[0])
    fault(struck)
    days.world.later(for_s, partial(_recover, struck))


def _recover(machine: OrderlyMachine) -> None:
    machine.mend_link()
    machine.resume()
    machine.continue_main()
    machine.start_main()


FAULTS: tuple[Fault, ...] = (
    OrderlyMachine.kill_main,
    OrderlyMachine.lose_power,
    OrderlyMachine.leave,
    OrderlyMachine.cut_link,
    OrderlyMachine.stop_main,
    OrderlyMachine.suspend,
)
