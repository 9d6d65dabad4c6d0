"""The store model of the simulation and the real scripts: asked the same in any order, they answer the same."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.servers import Server
from tests.store.agreement import Agreement
from tests.store.cron_rules import CronRules
from tests.store.lease_rules import LeaseRules


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(LeaseRules, id="of leases and members and orders"),
        pytest.param(CronRules, id="of ticks and runs"),
    ],
)
def test_the_model_answers_as_the_scripts_do(module_server: Server, rules: Callable[[Server], Agreement]) -> None:
    run_state_machine_as_test(
        lambda: rules(module_server),  # type: ignore[arg-type] # it takes any factory
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
