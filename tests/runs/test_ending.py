"""The rules by which one run comes to its end; no process in sight."""

import pytest

from orchestrator.runs.ending import ENDING, KILLING, RUNNING, Ending
from orchestrator.runs.linux import NEVER

FAR = 1000.0


def test_nothing_ends_a_run_whose_deadlines_lie_ahead() -> None:
    ending = Ending()

    ending.look(10.0, term_at=11.0, kill_at=12.0)

    assert (ending.phase, ending.cause, ending.due_at(11.0)) == (RUNNING, "", 11.0)


def test_a_run_without_a_lease_has_nothing_to_wait_for() -> None:
    assert Ending().due_at(NEVER) == NEVER


def test_a_lease_that_was_not_extended_asks_and_then_kills() -> None:
    ending = Ending()

    ending.look(11.0, term_at=11.0, kill_at=12.0)
    assert (ending.phase, ending.cause, ending.asks, ending.due_at(11.0)) == (ENDING, "deadline", True, 12.0)

    ending.look(12.0, term_at=11.0, kill_at=12.0)
    assert ending.phase == KILLING


def test_a_step_down_that_began_is_not_undone_by_a_late_renewal() -> None:
    ending = Ending()
    ending.look(11.0, term_at=11.0, kill_at=12.0)

    ending.look(11.5, term_at=FAR, kill_at=FAR)
    ending.look(12.0, term_at=FAR, kill_at=FAR)

    assert (ending.phase, ending.cause) == (KILLING, "deadline")


def test_a_stop_lasts_as_long_as_its_grace_while_the_lease_is_extended() -> None:
    ending = Ending()
    ending.stop(0.0, grace_s=600.0)

    ending.look(599.0, term_at=605.0, kill_at=610.0)

    assert (ending.phase, ending.cause, ending.due_at(605.0)) == (ENDING, "stop", 600.0)


def test_a_lease_that_runs_out_cuts_a_stop_short_and_the_cause_stays() -> None:
    ending = Ending()
    ending.stop(0.0, grace_s=600.0)

    ending.look(50.0, term_at=50.0, kill_at=55.0)

    assert (ending.phase, ending.cause, ending.due_at(50.0)) == (ENDING, "stop", 55.0)


@pytest.mark.parametrize(("again_s", "kill_by"), [(2.0, 3.0), (60.0, 10.0)], ids=["shorter", "longer"])
def test_a_repeated_stop_may_only_shorten(again_s: float, kill_by: float) -> None:
    ending = Ending()
    ending.stop(0.0, grace_s=10.0)

    ending.stop(1.0, grace_s=again_s)

    assert ending.kill_by == kill_by


def test_the_tree_is_asked_once() -> None:
    ending = Ending()
    ending.stop(0.0, grace_s=10.0)
    ending.asks = False

    ending.stop(1.0, grace_s=5.0)
    ending.look(2.0, term_at=2.0, kill_at=4.0)
    ending.abandon(3.0, grace_s=5.0, kill_at=4.0)

    assert not ending.asks


def test_a_kill_does_not_ask() -> None:
    ending = Ending()

    ending.kill(5.0)

    assert (ending.phase, ending.cause, ending.asks) == (KILLING, "killed", False)


@pytest.mark.parametrize(
    ("kill_at", "kill_by"), [(NEVER, 7.0), (6.0, 6.0)], ids=["the grace comes first", "the lease comes first"]
)
def test_without_main_a_run_has_its_grace_but_no_more_than_its_lease(kill_at: float, kill_by: float) -> None:
    ending = Ending()

    ending.abandon(5.0, grace_s=2.0, kill_at=kill_at)

    assert (ending.cause, ending.asks, ending.due_at(FAR)) == ("abandoned", True, kill_by)


def test_a_first_process_that_exits_leaves_a_short_grace_to_the_rest() -> None:
    ending = Ending()

    ending.exited(5.0, grace_s=2.0)

    assert (ending.phase, ending.cause, ending.kill_by) == (ENDING, "exit", 7.0)


def test_a_first_process_that_exits_in_a_stop_does_not_shorten_the_grace_of_the_rest() -> None:
    ending = Ending()
    ending.stop(0.0, grace_s=60.0)

    ending.exited(1.0, grace_s=2.0)

    assert (ending.cause, ending.kill_by) == ("stop", 60.0)


@pytest.mark.parametrize(
    ("failure", "until"), [(False, 3.0), (True, NEVER)], ids=["everything is to be over", "its hook has its own time"]
)
def test_what_was_ordered_while_a_job_ended_holds_for_the_hook_that_follows(failure: bool, until: float) -> None:
    ending = Ending()
    ending.exited(0.0, grace_s=2.0)

    ending.stop(1.0, grace_s=2.0, failure=failure)

    assert (ending.cause, ending.failure, ending.hook_until()) == ("exit", False, until)


def test_a_stop_for_a_failure_is_remembered_and_a_later_order_to_be_over_holds_for_its_hook() -> None:
    ending = Ending()
    ending.stop(0.0, grace_s=10.0, failure=True)
    assert (ending.failure, ending.kill_by, ending.hook_until()) == (True, 10.0, NEVER)

    ending.stop(1.0, grace_s=5.0)
    assert (ending.failure, ending.kill_by, ending.hook_until()) == (True, 6.0, 6.0)

    ending.kill(2.0)
    assert (ending.cause, ending.hook_until()) == ("stop", 2.0)


def test_a_failure_that_comes_after_an_order_is_none() -> None:
    ending = Ending()
    ending.stop(0.0, grace_s=10.0)

    ending.stop(1.0, grace_s=5.0, failure=True)

    assert (ending.failure, ending.kill_by) == (False, 6.0)


@pytest.mark.parametrize("how", ["its lease ran out", "main is gone"])
def test_no_hook_follows_an_end_without_a_lease(how: str) -> None:
    ending = Ending()
    ending.exited(0.0, grace_s=2.0)

    if how == "main is gone":
        ending.abandon(1.0, grace_s=2.0, kill_at=FAR)
    else:
        ending.look(1.0, term_at=1.0, kill_at=1.5)

    assert ending.hook_until() == -NEVER


def test_a_hook_lives_until_its_limit_at_most() -> None:
    ending = Ending(limit=30.0)

    ending.look(29.0, term_at=FAR, kill_at=FAR)
    assert (ending.phase, ending.cause, ending.due_at(FAR)) == (RUNNING, "", 30.0)

    ending.look(30.0, term_at=FAR, kill_at=FAR)
    assert (ending.phase, ending.cause) == (KILLING, "limit")
