"""The hunt for mutants: which story, or which test, convicts each.

A story convicts a mutant when it goes wrong with the rule off, and is well with only those rules off that
would cover for it. A masked mutant is convicted by its test, which must pass before and fail under it.
"""

import contextlib
import io
import time
from dataclasses import dataclass

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.scenario import tell

MASKED_RULES = "tests/simulation/test_masked_rules.py"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        convicted: It was caught, by a story or by the test it names.
        evidence: Which one, in one clause.
    """

    name: str
    convicted: bool
    evidence: str
    took_s: float


def hunt(name: str, stories: int) -> Verdict:
    """Try one mutant; at most so many stories are told."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    begun = time.process_time()
    convicted, evidence = _by_test(mutant) if mutant.masked_by else _by_story(mutant, stories)
    return Verdict(name, convicted, evidence, time.process_time() - begun)


def _by_story(mutant: Mutant, stories: int) -> tuple[bool, str]:
    for seed in range(stories):
        with mutant.switched():
            broken = tell(seed, mutant.scenario)
        if broken.well:
            continue
        with mutant.control():
            control = tell(seed, mutant.scenario)
        if control.well:
            what = broken.violation.partition(": ")[2] or f"overlap of {max(broken.overlaps):.3f} s"
            return True, f"{mutant.scenario.name} {seed}: {what}"
    return False, f"{stories} stories in {mutant.scenario.name} are well without it"


def _by_test(mutant: Mutant) -> tuple[bool, str]:
    node_id = f"{MASKED_RULES}::{mutant.masked_by}"
    if _outcome(node_id) is not pytest.ExitCode.OK:
        return False, f"{node_id} does not pass, or does not exist"
    with mutant.switched():
        if _outcome(node_id) is not pytest.ExitCode.TESTS_FAILED:
            return False, f"{node_id} does not fail without it"
    return True, f"masked; its test fails: {mutant.masked_by}"


def _outcome(node_id: str) -> pytest.ExitCode:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return pytest.ExitCode(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", node_id]))
