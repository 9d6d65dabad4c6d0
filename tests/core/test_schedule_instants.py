"""Instants as people write them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.instants import instant_of
from tests.core.test_schedule_walk import CHANGES

WRITE = "is no instant; write it as 2026-12-24T18:00, 2026-12-24T18:00:00Z or 2026-12-24"
NONE_SUCH = "is no instant; there is no such date, time or offset"
YEAR = "is out of range; write a year from 1971 to 2999"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", WRITE),
        ("noon", WRITE),
        ("18:00", WRITE),
        ("1766599200", WRITE),
        ("20261224", WRITE),
        ("2026-W52-4", WRITE),
        ("2026-12-24T18", WRITE),
        ("2026-12-24Z", WRITE),
        ("2026-12-24T18:00 Europe/Berlin", WRITE),
        ("2026-12-24\n18:00", WRITE),
        ("\u0662\u0660\u0662\u0666-12-24", WRITE),
        ("2026-02-30", NONE_SUCH),
        ("2026-12-24T24:00", NONE_SUCH),
        ("2026-12-24T18:00:60", NONE_SUCH),
        ("2026-12-24T18:00+24:00", NONE_SUCH),
        ("1970-12-31", YEAR),
        ("3000-01-01", YEAR),
    ],
)
def test_what_is_no_instant_is_refused_with_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        instant_of(text, "UTC")


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone 'Mars/Base' is unknown"):
        instant_of("2026-12-24T18:00", "Mars/Base")


@settings(deadline=None)
@given(st.integers(0, 1_000_000_000_000), st.sampled_from([zone for zone, _ in CHANGES]))
def test_what_a_clock_shows_is_read_as_its_first_pass(past_1971_ms: int, zone: str) -> None:
    utc = (datetime(1971, 1, 2, tzinfo=UTC) + timedelta(milliseconds=past_1971_ms)).timestamp()
    shown = datetime.fromtimestamp(round(utc, 3), ZoneInfo(zone))

    read = instant_of(shown.replace(tzinfo=None).isoformat(), zone)

    assert read == shown.replace(fold=0).timestamp()


@settings(deadline=None)
@given(st.sampled_from(CHANGES), st.integers(-4 * 60, 28 * 60))
def test_what_no_clock_shows_is_the_end_of_the_gap(place: tuple[str, str], minutes: int) -> None:
    zone, change = place
    info, before = ZoneInfo(zone), datetime.fromisoformat(change) - timedelta(days=2)
    wall = datetime.fromisoformat(change).astimezone(info).replace(tzinfo=None, fold=0) + timedelta(minutes=minutes)
    every = [(before + timedelta(minutes=number)).astimezone(info) for number in range(5 * 24 * 60)]

    read = instant_of(wall.isoformat(), zone)

    first = next(shown for shown in every if shown.replace(tzinfo=None, fold=0) >= wall)
    assert datetime.fromtimestamp(read, UTC) == first.astimezone(UTC)


@settings(deadline=None)
@given(st.integers(0, 10**12), st.integers(-23 * 60, 23 * 60))
def test_an_offset_is_believed(past_1971_ms: int, offset: int) -> None:
    moment = datetime(1971, 1, 3, tzinfo=UTC) + timedelta(milliseconds=past_1971_ms)
    sign, hours, minutes = "-" if offset < 0 else "+", *divmod(abs(offset), 60)
    shown = (moment + timedelta(minutes=offset)).replace(tzinfo=None).isoformat()

    assert instant_of(f"{shown}{sign}{hours:02}:{minutes:02}", "Asia/Tokyo") == pytest.approx(
        moment.timestamp(), abs=1e-3
    )
