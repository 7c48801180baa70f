"""Sets of sequence numbers."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.journals.ranges import (
    ByteRanges,
    EndedLog,
    Epoch,
    EpochNumbers,
    Epochs,
    SeqRanges,
    common_end,
    decode_epochs_of_logs,
    encode_epoch_file,
    with_ended,
)
from nsqd_py.runtime.documents import BAD_CONTENT

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
)
def test_against_a_plain_set(floor: int, pieces: list[tuple[int, int]], bounds: tuple[int, int]) -> None:
    ranges = SeqRanges(floor)
    plain = set(range(floor))
    for low, length in pieces:
        new = set(range(low, low + length)) - plain
        assert ranges.add_missing(low, low + length) == len(new)
        plain |= new

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


CREATED = (Epoch(100, 0),)
PROMOTED = (*CREATED, Epoch(200, 50))
TWICE = (*PROMOTED, Epoch(300, 80))


@pytest.mark.parametrize(
    ("mine", "theirs", "end"),
    [
        (CREATED, CREATED, None),
        (PROMOTED, PROMOTED, None),
        (CREATED, PROMOTED, 50),
        (CREATED, TWICE, 50),
        (PROMOTED, TWICE, 80),
        ((Epoch(101, 0),), TWICE, 0),  # created again under the same name
        ((), CREATED, 0),
        (CREATED, (), 0),
        ((*CREATED, Epoch(250, 60)), TWICE, 0),  # promoted too, but elsewhere
    ],
)
def test_up_to_where_two_copies_are_the_same(mine: Epochs, theirs: Epochs, end: int | None) -> None:
    assert common_end(mine, theirs) == end


def test_numbers_rise_though_the_clock_stands_still_or_goes_back() -> None:
    times = iter([1000, 1000, 500, 2000])
    numbers = EpochNumbers(lambda: next(times))
    assert [numbers.next() for _ in range(3)] == [1000, 1001, 1002]
    numbers.skip_past(5000)  # the number of another nsqd
    assert numbers.next() == 5001


def test_the_file_says_what_was_written() -> None:
    ended = {"u": (EndedLog(50, 7), EndedLog(60, 1))}
    _, _, content = encode_epoch_file(200, {"t": PROMOTED, "u": CREATED}, ended).partition(b"\n")
    assert decode_epochs_of_logs(json.loads(content)) == (200, {"t": PROMOTED, "u": CREATED}, ended)
    assert decode_epochs_of_logs({"node": 1, "logs": {}}) == (1, {}, {}), "of an earlier version"


def test_the_logs_that_ended_last_are_remembered() -> None:
    ended = {}
    for number in range(1001):
        ended = with_ended(ended, f"t{number}", EndedLog(number, 1))
    for number in range(40):
        ended = with_ended(ended, "t5", EndedLog(2000 + number, 2))
    assert (len(ended), "t0" in ended, "t1" in ended) == (1000, False, True)
    assert [log.epoch for log in ended["t5"]] == list(range(2008, 2040))
    assert with_ended(ended, "new", EndedLog(3000, 1)).keys() == {*ended, "new"} - {"t1"}


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"[]",
        b'{"node":0}',
        b'{"node":0,"logs":[]}',
        b'{"node":"x","logs":{}}',
        b'{"node":0,"logs":{"t":[[1]]}}',
        b'{"node":0,"logs":{"t":[[2,0],[1,5]]}}',
        b'{"node":0,"logs":{"t":{}}}',
        b'{"node":0,"logs":{},"ended":[]}',
        b'{"node":0,"logs":{},"ended":{"t":{}}}',
        b'{"node":0,"logs":{},"ended":{"t":[[1]]}}',
        b"\xff",
    ],
)
def test_what_is_no_such_file(content: bytes) -> None:
    with pytest.raises(BAD_CONTENT):
        decode_epochs_of_logs(json.loads(content))


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
