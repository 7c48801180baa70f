"""Sets of sequence numbers, and of bytes."""

import time

from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.journals.ranges import ByteRanges, SeqRanges, minus

UNIVERSE = 60


def naive_runs(numbers: set[int]) -> list[tuple[int, int]]:
    runs = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


@given(
    floor=st.integers(0, 10),
    pieces=st.lists(st.tuples(st.integers(0, UNIVERSE), st.integers(1, 8)), max_size=25),
    bounds=st.tuples(st.integers(0, UNIVERSE), st.integers(0, UNIVERSE)),
    many=st.lists(st.tuples(st.integers(0, UNIVERSE), st.integers(1, 8)), max_size=25),
)
def test_against_a_plain_set(
    floor: int, pieces: list[tuple[int, int]], bounds: tuple[int, int], many: list[tuple[int, int]]
) -> None:
    ranges = SeqRanges(floor)
    plain = set(range(floor))
    for low, length in pieces:
        ranges.add_missing(low, low + length)
        plain |= set(range(low, low + length))
    ranges.add_all_missing((low, low + length) for low, length in many)
    for low, length in many:
        plain |= set(range(low, low + length))

    first_missing = next(n for n in range(1000) if n not in plain)
    above = {n for n in plain if n > first_missing}
    assert ranges.floor == first_missing
    assert ranges.islands() == naive_runs(above)
    assert ranges.island_count == len(naive_runs(above))
    assert ranges.islands_end == max(above, default=first_missing - 1) + 1

    low, high = min(bounds), max(bounds)
    missing = {n for n in range(low, high) if n not in plain}
    assert list(ranges.gaps(low, high)) == naive_runs(missing)
    assert ranges.covers(low, high) == (not missing)


def test_a_question_about_one_place_does_not_walk_all_islands() -> None:
    """Files are asked for ten times a second, and deferred messages one by one at the start."""
    ranges = SeqRanges(0)
    for low in range(1, 100_001, 2):
        ranges.add(low, low + 1)
    started_s = time.process_time()
    for low in range(0, 100_000, 500):
        assert not ranges.covers(low, low + 1)
        assert ranges.islands_end == 100_000
    # 5 ms a question when each sorts 50,000 islands, so 1 s for all; 5 us when none does.
    assert time.process_time() - started_s < 0.5


@given(st.lists(st.tuples(st.booleans(), st.integers(0, UNIVERSE), st.integers(1, 12)), max_size=25))
def test_bytes_of_a_file_against_a_plain_set(steps: list[tuple[bool, int, int]]) -> None:
    ranges = ByteRanges()
    plain = set()
    for is_added, start, length in steps:
        end = start + length
        these = set(range(start, end))
        met = ranges.overlapping(start, end)
        assert [each for each in ranges if set(range(*each)) & these] == met
        if is_added:
            assert ranges.add(start, end) == len(these - plain)
            plain |= these
        else:
            assert ranges.remove(start, end) == len(these & plain)
            plain -= these
        assert [number for low, high in ranges for number in range(low, high)] == sorted(plain)
    assert bool(ranges) is bool(plain)


@given(
    ranges=st.lists(st.tuples(st.integers(0, UNIVERSE), st.integers(1, 8)), max_size=10),
    others=st.lists(st.tuples(st.integers(0, UNIVERSE), st.integers(1, 8)), max_size=10),
)
def test_minus_against_plain_sets(ranges: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    given_ranges = [(low, low + length) for low, length in ranges]
    taken = [(low, low + length) for low, length in others]
    plain = {n for low, high in taken for n in range(low, high)}
    found = minus(given_ranges, taken)
    assert {n for low, high in found for n in range(low, high)} == {
        n for low, high in given_ranges for n in range(low, high) if n not in plain
    }
    assert minus(given_ranges, []) == given_ranges
