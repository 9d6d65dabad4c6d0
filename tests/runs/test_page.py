"""The shared page: who may write what, and what a reader makes of it."""

import os
from collections.abc import Iterator

import pytest

from orchestrator.runs.linux import NEVER
from orchestrator.runs.page import SLOTS, Page, Slots


@pytest.fixture
def page() -> Iterator[Page]:
    created = Page.create()
    yield created
    created.close()


def test_a_run_reads_its_own_instants(page: Page) -> None:
    page.claim(3, 17, term_at=10.0, kill_at=12.0)

    assert (page.term_at(3, 17), page.kill_at(3, 17), page.bound(3, 17)) == (10.0, 12.0, 12.0)


def test_another_mapping_sees_what_main_writes(page: Page) -> None:
    other = Page(os.dup(page.fd))
    page.claim(SLOTS - 1, 1, term_at=1.0, kill_at=2.0)

    page.extend(SLOTS - 1, term_at=5.0, kill_at=6.0)

    assert (other.term_at(SLOTS - 1, 1), other.kill_at(SLOTS - 1, 1)) == (5.0, 6.0)
    other.close()


def test_instants_only_move_later(page: Page) -> None:
    page.claim(0, 1, term_at=10.0, kill_at=12.0)

    page.extend(0, term_at=9.0, kill_at=13.0)

    assert (page.term_at(0, 1), page.kill_at(0, 1)) == (10.0, 13.0)


def test_a_leash_never_reads_the_time_of_a_later_run(page: Page) -> None:
    page.claim(0, 1, term_at=10.0, kill_at=12.0)
    page.clear(0)
    page.claim(0, 2, term_at=99.0, kill_at=99.0)

    assert page.term_at(0, 1) < 0
    assert page.kill_at(0, 1) < 0


def test_a_leash_never_writes_into_a_later_run(page: Page) -> None:
    page.claim(0, 2, term_at=99.0, kill_at=99.0)

    page.commit(0, 1, kill_by=5.0)
    page.acting(0, 1, now=5.0)

    assert page.bound(0, 2) == 99.0
    assert page.acting_at(0) < 0


def test_a_leash_that_began_to_end_its_run_is_bound_by_that(page: Page) -> None:
    page.claim(0, 1, term_at=10.0, kill_at=12.0)

    page.commit(0, 1, kill_by=12.0)
    page.extend(0, term_at=50.0, kill_at=52.0)

    assert page.bound(0, 1) == 12.0


def test_a_slot_given_back_binds_nobody(page: Page) -> None:
    page.claim(0, 1, term_at=10.0, kill_at=12.0)

    page.clear(0)

    assert page.bound(0, 1) is None


def test_a_slot_that_a_spare_waits_for_binds_nobody_until_a_run_has_it(page: Page) -> None:
    assert page.bound(0, 1, abandoned_at=5.0) is None

    page.claim(0, 1, term_at=NEVER, kill_at=NEVER)

    assert page.bound(0, 1) == NEVER


def test_a_leash_is_frozen_a_while_after_its_bound_or_after_the_grace_since_main_was_gone(page: Page) -> None:
    page.claim(0, 1, term_at=10.0, kill_at=12.0, backup_s=0.25, grace_s=3.0)

    assert page.bound(0, 1) == 12.25
    assert page.bound(0, 1, abandoned_at=5.0) == 8.25
    assert page.bound(0, 1, abandoned_at=11.0) == 12.25


def test_when_a_spare_s_first_process_began_is_forgotten_with_its_run(page: Page) -> None:
    page.claim(0, 1, term_at=10.0, kill_at=12.0)
    page.begin(0, 1, 7.0)
    page.begin(0, 2, 8.0)  # a stranger

    assert page.began_at(0, 1) == 7.0

    page.clear(0)
    page.claim(0, 3, term_at=10.0, kill_at=12.0)
    assert (page.began_at(0, 1), page.began_at(0, 3)) == (0.0, 0.0)


def test_serials_never_repeat_and_slots_do() -> None:
    slots = Slots()
    first = slots.take()
    assert first is not None
    slots.give_back(first[0])

    taken = [slots.take() for _ in range(SLOTS)]

    assert None not in taken
    assert len({each[0] for each in taken if each}) == SLOTS
    assert first[1] not in {each[1] for each in taken if each}
    assert slots.take() is None
