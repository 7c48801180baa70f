"""Message ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.batch import IDS_PER_TICK, TWEPOCH, GuidFactory

TICK_NS = 1 << 20
NOW_NS = 1_700_000_000 * 10**9
MAX_ID = (1 << 64) - 1


def test_layout() -> None:
    first = GuidFactory(node_id=0x2A5).reserve(1, NOW_NS)
    assert first & 0xFFF == 0  # sequence
    assert first >> 12 & 0x3FF == 0x2A5  # node
    assert first >> 22 == (NOW_NS >> 20) - TWEPOCH  # time


def test_a_full_tick_borrows_from_the_next() -> None:
    guids = GuidFactory(1)
    first = guids.reserve(IDS_PER_TICK, NOW_NS)
    second = guids.reserve(IDS_PER_TICK, NOW_NS)
    third = guids.reserve(1, NOW_NS)
    assert (second >> 22) - (first >> 22) == (third >> 22) - (second >> 22) == 1
    assert second & 0xFFF == third & 0xFFF == 0


def test_a_batch_never_straddles_a_tick() -> None:
    guids = GuidFactory(3)
    guids.reserve(IDS_PER_TICK - 1, NOW_NS)
    first = guids.reserve(2, NOW_NS)
    assert first & 0xFFF == 0
    assert first >> 12 & 0x3FF == (first + 1) >> 12 & 0x3FF == 3


@given(steps=st.lists(st.tuples(st.integers(-10 * TICK_NS, 2 * TICK_NS), st.integers(1, IDS_PER_TICK)), min_size=2, max_size=50))
def test_ranges_only_rise_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    guids = GuidFactory(1023)
    now_ns = NOW_NS
    end = 0
    for step_ns, count in steps:
        now_ns += step_ns
        first = guids.reserve(count, now_ns)
        assert first >= end
        assert first >> 12 & 0x3FF == (first + count - 1) >> 12 & 0x3FF == 1023
        end = first + count


@pytest.mark.parametrize("ahead_ticks", [0, 1, 1_000_000])
def test_skip_past_an_id_of_the_future(ahead_ticks: int) -> None:
    used = GuidFactory(1).reserve(IDS_PER_TICK, NOW_NS + ahead_ticks * TICK_NS) + IDS_PER_TICK - 1
    guids = GuidFactory(0)
    guids.skip_past(used)
    assert guids.reserve(1, NOW_NS) > used


@pytest.mark.parametrize("year", [1970, 2000])
def test_a_clock_that_was_never_set_gives_ids_of_64_bits(year: int) -> None:
    """A board without a battery starts in 1970; an id that fits no record would fail every publish."""
    now_ns = (year - 1970) * 365 * 86_400 * 10**9
    first = GuidFactory(1).reserve(1, now_ns)
    assert 0 <= first <= MAX_ID
