"""A short run of the simulation, and a checker that is itself checked. `make simulation` is the long run."""

import pytest

from orchestrator.core.answers import LeaseGranted, LeaseReleased, LeaseRenewed, TickClaimed, TicksSettled
from orchestrator.core.messages import Say
from orchestrator.core.nouns import JobName, LeaseValue, NodeName, RunId, Token
from orchestrator.core.requests import AcquireLease, ClaimTick, ReleaseLease, RenewLease, SettleTicks
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.timing import LeaseTiming
from tests.simulation.history import Execution, History, Violation
from tests.simulation.hunt import hunt
from tests.simulation.machine import Machine
from tests.simulation.mutants import MUTANTS
from tests.simulation.scenario import DELETIONS, EVERYDAY, expect_health, story, tell
from tests.simulation.world import CALM, World

TIMING = LeaseTiming.scaled(60.0)
JOB = JobName("cron")
N1, N2 = NodeName("n1"), NodeName("n2")
TICK_MS = 1_800_000_000_000
PERIOD_MS = 30_000
STORIES = 120


# --- the stories ----------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", range(len(EVERYDAY)), ids=[scenario.name for scenario in EVERYDAY])
def test_no_promise_is_broken(turn: int) -> None:
    told = [story(seed) for seed in range(turn, STORIES, len(EVERYDAY))]

    assert [tale.violation for tale in told if tale.violation] == []
    assert sum(tale.starts for tale in told) > 10 * len(told)


def test_deleted_leases_make_two_runs_no_longer_than_the_known_limit() -> None:
    told = [tell(seed, DELETIONS) for seed in range(30)]

    assert [tale.violation for tale in told if tale.violation] == []


def test_one_seed_tells_one_story() -> None:
    first, again = story(4), story(4)

    assert first == again
    assert len(first.transcript) > 20


def test_another_seed_tells_another_story() -> None:
    assert story(4).transcript != story(9).transcript


@pytest.mark.parametrize("name", ["no-local-deadline", "start-before-proof", "ask-before-proof"])
def test_a_rule_switched_off_is_noticed(name: str) -> None:
    verdict = hunt(name, stories=10)

    assert verdict.convicted, verdict.evidence


def test_every_mutant_has_a_name_of_its_own() -> None:
    names = [mutant.name for mutant in MUTANTS]

    assert len(set(names)) == len(names)


# --- the checker ----------------------------------------------------------------------------------


@pytest.fixture
def history() -> History:
    return History(TIMING, PERIOD_MS / 1000)


def value(token: int, node: NodeName) -> LeaseValue:
    return LeaseValue(Token(token), node, "i1")


def grant(history: History, token: int, node: NodeName, at: float) -> None:
    ask = AcquireLease(
        job=JOB,
        key=JOB,
        node=node,
        incarnation="i1",
        ttl_ms=60_000,
        longest_ttl_ms=60_000,
        floor=Token(0),
        seen=Token(0),
        ran=Token(0),
        epoch="e",
        expected_ms=0,
        tolerance_ms=0,
        quarantined=False,
        schedule="",
        tick_floor_ms=0,
        asked_at=at,
    )
    history.witness(ask, LeaseGranted(JOB, Token(token), 0, adopted=False, last_tick_ms=0, asked_at=at), at)


def start(history: History, token: int, node: NodeName, at: float, tick: str | None = None) -> Execution:
    execution = Execution(JOB, RunId(f"{node}.{at}"), node, Token(token), at)
    history.started(execution, tick, at)
    return execution


def renew(history: History, token: int, node: NodeName, at: float, *, put_back: bool = False) -> None:
    ask = RenewLease(JOB, JOB, value(token, node), 60_000, 0, asked_at=at)
    history.witness(ask, LeaseRenewed(JOB, Token(token), 0, put_back=put_back, asked_at=at), at)


def release(history: History, token: int, node: NodeName, at: float) -> None:
    ask = ReleaseLease(JOB, JOB, value(token, node), "e", "", 2000, 60_000, asked_at=at)
    history.witness(ask, LeaseReleased(JOB, Token(token), was_ours=True, asked_at=at), at)


def claim(history: History, token: int, tick: int, at: float) -> None:
    """Claim a tick by its number."""
    tick_ms, run = TICK_MS + tick * PERIOD_MS, RunId(f"r{tick}")
    ask = ClaimTick(JOB, JOB, value(token, N1), tick_ms, run, "mark", 1000, asked_at=at)
    history.witness(ask, TickClaimed(JOB, Token(token), tick_ms, run, asked_at=at), at)


def settle(history: History, token: int, tick: int, *, count: int) -> None:
    """Settle ticks up to one by its number."""
    until_ms = TICK_MS + tick * PERIOD_MS
    ask = SettleTicks(
        JOB, JOB, value(token, N1), until_ms, count, "missed", "e", "{}", 1, 1, ahead_ms=1000, asked_at=0.0
    )
    history.witness(ask, TicksSettled(JOB, Token(token), until_ms, until_ms, asked_at=0.0), 80.0)


def test_two_runs_at_once_are_noticed(history: History) -> None:
    grant(history, 1, N1, 0.0)
    start(history, 1, N1, 1.0)

    with pytest.raises(Violation, match=r"executes 2 times: n1\.1\.0 on n1 token 1 .*, n1\.2\.0 on n1 token 1"):
        start(history, 1, N1, 2.0)


def test_a_grant_while_another_run_executes_is_noticed(history: History) -> None:
    grant(history, 1, N1, 0.0)
    start(history, 1, N1, 1.0)

    with pytest.raises(Violation, match=r"token 2 granted to n2 while it runs: n1\.1\.0 on n1"):
        grant(history, 2, N2, 50.0)


def test_a_thawed_run_has_a_moment_to_end(history: History) -> None:
    grant(history, 1, N1, 0.0)
    frozen = start(history, 1, N1, 1.0)
    history.suspended(frozen, 2.0)
    grant(history, 2, N2, 90.0)
    start(history, 2, N2, 90.0)

    history.thawed(frozen, 100.0)
    history.check(JOB, 100.0 + history.thaw_s)
    with pytest.raises(Violation, match="executes 2 times"):
        history.check(JOB, 100.1 + history.thaw_s)


def test_a_falling_token_is_noticed(history: History) -> None:
    grant(history, 5, N1, 0.0)
    history.ended(start(history, 5, N1, 1.0), 2.0, 0.0)
    grant(history, 4, N2, 90.0)

    with pytest.raises(Violation, match="started on n2 with token 4 after 5 on n1"):
        start(history, 4, N2, 91.0)


def test_one_token_on_two_nodes_is_noticed(history: History) -> None:
    grant(history, 5, N1, 0.0)
    history.ended(start(history, 5, N1, 1.0), 2.0, 0.0)
    grant(history, 5, N2, 90.0)

    with pytest.raises(Violation, match="started on n2 with token 5 after 5 on n1"):
        start(history, 5, N2, 91.0)


def test_a_start_without_a_grant_is_noticed(history: History) -> None:
    with pytest.raises(Violation, match="token 1, which it was never granted"):
        start(history, 1, N1, 1.0)


def test_a_run_past_its_kill_at_is_noticed(history: History) -> None:
    grant(history, 1, N1, 0.0)
    run = start(history, 1, N1, 1.0)

    with pytest.raises(Violation, match=r"executed 2\.000 s past its kill_at"):
        history.ended(run, 60.0, 2.0)


def test_a_released_lease_that_stands_again_is_noticed(history: History) -> None:
    grant(history, 1, N1, 0.0)
    release(history, 1, N1, 10.0)

    with pytest.raises(Violation, match=r"1\|n1\|i1 stands again, though it was released"):
        renew(history, 1, N1, 11.0, put_back=True)


def test_an_outdated_lease_that_stands_again_is_noticed(history: History) -> None:
    grant(history, 1, N1, 0.0)
    grant(history, 2, N2, 10.0)

    with pytest.raises(Violation, match="stands again, though token 2 was issued"):
        renew(history, 1, N1, 11.0, put_back=True)


def test_an_ended_lease_that_stands_again_is_noticed(history: History) -> None:
    grant(history, 1, N1, 0.0)

    with pytest.raises(Violation, match=r"stands again, though it ended 39\.\d+ s ago"):
        renew(history, 1, N1, 100.0, put_back=True)


def test_a_lost_lease_may_be_put_back_in_time(history: History) -> None:
    grant(history, 1, N1, 0.0)
    renew(history, 1, N1, 30.0)

    renew(history, 1, N1, 80.0, put_back=True)


def test_a_start_made_twice_is_noticed(history: History) -> None:
    grant(history, 1, N1, 0.0)
    history.ended(start(history, 1, N1, 1.0, "t"), 2.0, 0.0)

    with pytest.raises(Violation, match=r"n1\.1\.0 started twice, now on n1"):
        history.started(Execution(JOB, RunId("n1.1.0"), N1, Token(1), 3.0), "t", 3.0)


def test_more_attempts_than_permitted_are_noticed(history: History) -> None:
    grant(history, 1, N1, 0.0)

    with pytest.raises(Violation, match="is more than 1 attempts"):
        history.started(Execution(JOB, RunId("cron@2027-01-15T08:00:00.000Z.2"), N1, Token(1), 1.0), "t", 1.0)


def test_a_claimed_tick_that_is_neither_run_nor_said_to_be_lost_is_noticed(history: History) -> None:
    claim(history, 1, 0, 0.0)

    with pytest.raises(Violation, match="n1 went on to a newer tick without a word about 2027-01-15T08:00:00"):
        claim(history, 1, 1, 30.0)


def test_a_claimed_tick_that_is_said_to_be_lost_is_in_order(history: History) -> None:
    claim(history, 1, 0, 0.0)
    history.said(Say("tick.lost", {"job": JOB, "tick": iso_utc(TICK_MS / 1000)}))

    claim(history, 1, 1, 30.0)


def test_ticks_passed_over_in_silence_are_noticed(history: History) -> None:
    claim(history, 1, 0, 0.0)

    with pytest.raises(Violation, match=r"2 ticks before 2027-01-15T08:01:30\.000Z passed over"):
        claim(history, 2, 3, 90.0)


def test_settled_ticks_are_in_order(history: History) -> None:
    claim(history, 1, 0, 0.0)
    settle(history, 2, 2, count=2)

    claim(history, 2, 3, 90.0)


def test_a_wrong_count_of_settled_ticks_is_noticed(history: History) -> None:
    claim(history, 1, 0, 0.0)

    with pytest.raises(Violation, match="1 ticks missed of 2"):
        settle(history, 2, 2, count=1)


def test_settled_ticks_that_come_back_are_noticed(history: History) -> None:
    claim(history, 1, 0, 0.0)

    with pytest.raises(Violation, match=r"granted with ticks settled up to 0, not 1800000000000"):
        grant(history, 2, N1, 40.0)


def test_an_overlap_is_measured_where_it_is_a_known_limit() -> None:
    history = History(TIMING, limit_s=lambda _overlap: 5.0)
    grant(history, 1, N1, 0.0)
    first = start(history, 1, N1, 1.0)
    grant(history, 2, N2, 10.0)
    start(history, 2, N2, 10.0)

    history.ended(first, 14.0, 0.0)

    assert history.overlaps == [4.0]


def test_an_overlap_past_its_limit_is_noticed() -> None:
    history = History(TIMING, limit_s=lambda _overlap: 5.0)
    grant(history, 1, N1, 0.0)
    start(history, 1, N1, 1.0)
    grant(history, 2, N2, 10.0)
    start(history, 2, N2, 10.0)

    with pytest.raises(Violation, match=r"executed twice for 10\.000 s, limit 5\.000"):
        history.finish(20.0)


def test_nobody_holding_anything_at_the_end_is_noticed(history: History) -> None:
    world = World(0, TIMING, CALM, history)

    with pytest.raises(Violation, match="service: after the quiet it is held by nobody"):
        expect_health(world, list[Machine](), ticks_before=0)
