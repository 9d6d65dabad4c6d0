"""Every tick has one fate, whatever befalls the two nodes that hold the job in turn: played with `cron_world.py`."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.spec import JobSpec, Misfire, OnLost, Overlap, RetrySpec
from orchestrator.core.timing import LeaseTiming
from tests.core.cron_world import World
from tests.core.house import cron

SPEC = cron(lease=LeaseTiming.scaled(60.0))

specs = st.builds(
    lambda misfire, overlap, on_lost, retries, grace_s, jitter_s: replace(
        SPEC,
        misfire=misfire,
        overlap=overlap,
        on_lost=on_lost,
        retries=retries,
        misfire_grace_s=grace_s,
        jitter_s=jitter_s,
        max_instances=2,
    ),
    st.sampled_from(Misfire),
    st.sampled_from(Overlap),
    st.sampled_from(OnLost),
    st.sampled_from([RetrySpec(), RetrySpec(count=2, delay_s=20.0), RetrySpec(count=1, delay_s=200.0)]),
    st.sampled_from([30.0, 200.0, 600.0]),
    st.sampled_from([0.0, 40.0]),
)
nodes = st.sampled_from("ab")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 240)),
        st.tuples(st.just("end"), st.integers(0, 3), st.sampled_from(["ok", "fail", "unproven", "never"])),
        st.tuples(st.just("crash"), nodes),
        st.tuples(st.just("cut"), nodes),
        st.tuples(st.just("lose_answers"), nodes, st.integers(1, 4)),
        st.tuples(st.just("order"), st.sampled_from(["paused", "running", "catch up"])),
        st.tuples(st.just("trigger")),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=60)
@given(spec=specs, story=steps)
def test_whatever_happens_every_tick_has_one_fate(spec: JobSpec, story: list[tuple[object, ...]]) -> None:
    world = World(spec)
    world.wait(1.0)

    for what, *arguments in story:
        getattr(world, str(what))(*arguments)
        world.check()
    world.come_to_rest()

    world.check_counts()
