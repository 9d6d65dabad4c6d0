from orchestrator.core.nouns import LeaseValue, NodeName, Token
from orchestrator.core.snapshot import JobView, LeaseReading
from orchestrator.view import lease
from tests.view.picture import BEAT, IMPORT, NOW, drawn

READING = LeaseReading(
    key="orchestrator:{shop:3}:beat:lease",
    value=LeaseValue(Token(1_789_999_000_000), NodeName("n1"), "4f2a"),
    malformed=False,
    left_ms=12_400,
    token=1_789_999_000_000,
    released=1_789_990_000_000,
    state=None,
    last=None,
)
PAIRS = [(BEAT, lease.lease_of(BEAT, READING)), (IMPORT, lease.lease_of(IMPORT, None))]


def test_all_leases_stand_in_one_table() -> None:
    assert drawn(lease.leases(PAIRS, node="n1", now_utc=NOW), 120) == [
        "   JOB     HOLDER  TOKEN          LEASE             HELD FOR  KEY",
        "●  beat    n1*     1789999000000  ▮▮▮▮▮▯ 12.4s/15s  16m40s    orchestrator:{shop:3}:beat:lease",
        "◌  import  -       -                     -/15s      -         -",
    ]


def test_a_pipe_gets_the_same_columns_without_bar() -> None:
    assert lease.plain_leases(PAIRS, node="n1", now_utc=NOW).splitlines() == [
        "JOB     HOLDER  TOKEN          LEASE      HELD FOR  KEY",
        "beat    n1*     1789999000000  12.4s/15s  16m40s    orchestrator:{shop:3}:beat:lease",
        "import  -       -              -/15s      -         -",
    ]


def test_one_lease_is_told_with_its_token_its_age_and_its_key() -> None:
    shown = drawn(lease.card(*PAIRS[0], node="n1", now_utc=NOW), 120)

    assert shown == [
        "● beat",
        "  state           running",
        "  holder          n1*",
        "  incarnation     4f2a",
        "  token           1789999000000",
        "  issued          2026-09-21T13:56:40.000Z (16m40s ago)",
        "  left            12.4s/15s  ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▯▯▯▯▯",
        "  run since       2026-09-18T10:13:20.000Z (3d04h ago)",
        "  key             orchestrator:{shop:3}:beat:lease",
        "  newest token    1789999000000",
        "  last released   1789990000000",
    ]


def test_a_free_lease_says_since_which_token_and_why() -> None:
    told = lease.plain_card(*PAIRS[1], node="n1", now_utc=NOW).splitlines()

    assert told[:3] == [
        "job             import",
        "state           unheld: no node holds the lease",
        "holder          -",
    ]


def test_the_incarnation_of_an_older_holder_is_not_shown_under_a_newer_token() -> None:
    newer = JobView("beat", "service", "running", holder="n2", token=1_789_999_000_009)

    assert lease.lease_of(newer, READING).incarnation is None


def test_a_token_written_by_hand_tells_no_time() -> None:
    assert lease.issued_at(999_999_999_999_999) is None
    assert lease.issued_at(0) is None
