"""What people and machines are shown: the word of Redis and the word of the local node, side by side."""

import json
from collections.abc import Mapping

import pytest

from orchestrator.core.nouns import Intent, JobName, LeaseValue, Member, NodeName, Token
from orchestrator.core.snapshot import (
    ClusterReading,
    ClusterView,
    JobView,
    LeaseReading,
    NodeView,
    cluster_view,
    iso_utc,
    stopped_by,
)

BARE = JobView("beat", "service", ttl_ms=15_000, tags=("billing",))
RUNNING: Mapping[str, object] = {"token": 17, "state": "running", "pid": 4711, "since": "2027", "why": ""}
STOP = Intent("stopped", "ann@desk", "new credentials", 1)


def lease(holder: str | None = "b", state: Mapping[str, object] | None = RUNNING, **changes: object) -> LeaseReading:
    fields: dict[str, object] = {
        "key": "orchestrator:{shop:12}:beat:lease",
        "value": LeaseValue(Token(17), NodeName(holder), "b1") if holder else None,
        "malformed": False,
        "left_ms": 12_000 if holder else 0,
        "token": 17,
        "released": 0,
        "state": state,
        "last": {"outcome": "ok"},
    }
    return LeaseReading(**(fields | changes))  # type: ignore[arg-type] # a test names the fields it changes


def redis(reading: LeaseReading | None = None, intent: Intent | None = None) -> ClusterReading:
    return ClusterReading(
        members=(Member(NodeName("b"), "b1", 2000, {"host": "h"}), Member(NodeName("a"), "a1", 1000, {})),
        intents={JobName("beat"): intent} if intent else {},
        leases={JobName("beat"): reading} if reading else {},
        server_ms=5000,
    )


def own(**changes: object) -> ClusterView:
    row = JobView("beat", "service", **changes)  # type: ignore[arg-type] # a test names the fields it changes
    return ClusterView("shop", node="a", jobs=(row,), redis={"ok": False, "problem": "READONLY"})


def row(reading: ClusterReading | None, view: ClusterView | None = None) -> JobView:
    """Return the one row of the picture."""
    (shown,) = cluster_view("shop", [BARE], reading, view).jobs
    return shown


# What Redis says


def test_the_state_is_the_one_that_the_holder_published() -> None:
    shown = row(redis(lease()))

    assert (shown.state, shown.holder, shown.token, shown.lease_ms) == ("running", "b", 17, 12_000)
    assert (shown.pid, shown.since) == (4711, "2027")


def test_what_an_earlier_holder_published_says_nothing() -> None:
    shown = row(redis(lease(state={**RUNNING, "token": 16})))

    assert (shown.state, shown.pid) == ("starting", None)
    assert shown.why == "the holder has published nothing yet"


def test_a_lease_that_nobody_holds_says_so() -> None:
    assert (row(redis(lease(None))).state, row(redis(lease(None))).why) == ("unheld", "no node holds the lease")


def test_what_is_no_lease_is_told_from_an_absent_one() -> None:
    assert row(redis(lease(None, malformed=True))).why == "what stands under the lease key is no lease"


def test_a_job_that_was_stopped_names_who_stopped_it() -> None:
    shown = row(redis(lease(None), STOP))

    assert (shown.state, shown.why) == ("stopped", "stopped by ann@desk: new credentials")


def test_a_job_that_is_still_held_shows_its_holder_s_word_though_it_was_stopped() -> None:
    assert row(redis(lease(state={**RUNNING, "state": "stopping"}), STOP)).state == "stopping"


def test_the_bare_row_keeps_what_the_file_says() -> None:
    shown = row(redis(lease()))

    assert (shown.kind, shown.ttl_ms, shown.tags) == ("service", 15_000, ("billing",))
    assert (shown.key, shown.last) == ("orchestrator:{shop:12}:beat:lease", {"outcome": "ok"})


def test_a_job_that_redis_has_never_heard_of_stays_bare() -> None:
    assert row(redis()) == BARE


@pytest.mark.parametrize("pid", ["4711", None, 1.5, []], ids=["a text", "none", "a fraction", "a list"])
def test_a_published_pid_that_is_no_number_is_left_out(pid: object) -> None:
    assert row(redis(lease(state={**RUNNING, "pid": pid}))).pid is None


# What the node says


def test_where_the_node_here_is_the_holder_its_own_word_is_fresher() -> None:
    shown = row(redis(lease("a")), own(state="backoff", holder="a", token=17, why="exit 1; try 2 follows"))

    assert (shown.state, shown.why) == ("backoff", "exit 1; try 2 follows")
    assert (shown.key, shown.lease_ms) == ("orchestrator:{shop:12}:beat:lease", 12_000)


def test_where_another_node_holds_it_redis_speaks() -> None:
    shown = row(redis(lease("b")), own(state="running", holder="a", token=16))

    assert (shown.holder, shown.state, shown.token) == ("b", "running", 17)


def test_a_holder_whose_key_has_vanished_still_speaks_for_itself() -> None:
    shown = row(redis(lease(None)), own(state="running", holder="a", token=17, lease_ms=9000))

    assert (shown.state, shown.holder, shown.lease_ms) == ("running", "a", 9000)


@pytest.mark.parametrize(
    ("state", "shown_state"), [("blocked", "blocked"), ("failed", "failed"), ("standby", "unheld")]
)
def test_the_node_knows_better_why_nobody_holds_it(state: str, shown_state: str) -> None:
    shown = row(redis(lease(None)), own(state=state, why="quarantine: 9 s more"))

    assert (shown.state, shown.why) == (shown_state, "quarantine: 9 s more")


def test_without_redis_the_node_alone_speaks() -> None:
    view = own(state="running", holder="a")

    assert cluster_view("shop", [BARE], None, view) is view


def test_with_neither_the_bare_rows_are_left() -> None:
    assert cluster_view("shop", [BARE], None).jobs == (BARE,)


def test_the_node_tells_its_luck_with_redis() -> None:
    assert cluster_view("shop", [BARE], redis(), own()).redis == {"ok": False, "problem": "READONLY"}
    assert cluster_view("shop", [BARE], redis()).redis == {"ok": True}


# Nodes


def test_the_nodes_stand_in_the_order_of_their_names() -> None:
    nodes = cluster_view("shop", [], redis()).nodes

    assert nodes == (NodeView("a", "1970-01-01T00:00:01.000Z"), NodeView("b", "1970-01-01T00:00:02.000Z", host="h"))


def test_what_a_node_says_of_itself_is_not_trusted_to_have_the_right_shape() -> None:
    odd = Member(NodeName("z"), "z1", 0, {"host": 7, "pid": "x", "tags": "web", "version": None})
    reading = ClusterReading((odd,), {}, {}, 0)

    (shown,) = cluster_view("shop", [], reading).nodes

    assert (shown.host, shown.pid, shown.tags) == ("7", None, ())


# The shape


def test_the_shape_survives_the_socket() -> None:
    view = cluster_view("shop", [BARE], redis(lease()), own())

    assert ClusterView.from_json(json.loads(json.dumps(view.to_json()))) == view


def test_a_shape_of_another_version_is_read_as_far_as_it_is_known() -> None:
    view = ClusterView.from_json(
        {"cluster": "shop", "new": 1, "jobs": [{"name": "beat", "kind": "service", "new": 1}, 7], "nodes": "?"}
    )

    assert view == ClusterView("shop", jobs=(JobView("beat", "service"),))


def test_a_row_is_found_by_its_name() -> None:
    view = own()

    assert view.job("beat") == view.jobs[0]
    assert view.job("stranger") is None


@pytest.mark.parametrize(
    ("utc", "text"),
    [(0.0, "1970-01-01T00:00:00.000Z"), (1_800_000_000.5, "2027-01-15T08:00:00.500Z")],
    ids=["the beginning", "half a second"],
)
def test_an_instant_is_always_as_wide(utc: float, text: str) -> None:
    assert iso_utc(utc) == text


@pytest.mark.parametrize(
    ("intent", "words"),
    [(STOP, "stopped by ann@desk: new credentials"), (Intent("stopped", "ann@desk", "", 1), "stopped by ann@desk")],
    ids=["with a reason", "without one"],
)
def test_a_stop_is_told_with_who_and_why(intent: Intent, words: str) -> None:
    assert stopped_by(intent) == words


@pytest.mark.parametrize(
    ("utc", "said"),
    [(-5.0, "1970-01-01T00:00:00.000Z"), (1e15, "9999-12-31T23:59:59.000Z"), (1e300, "9999-12-31T23:59:59.000Z")],
    ids=["before all clocks", "15 digits", "as large as a number can be"],
)
def test_an_instant_that_no_calendar_has_is_said_all_the_same(utc: float, said: str) -> None:
    assert iso_utc(utc) == said
