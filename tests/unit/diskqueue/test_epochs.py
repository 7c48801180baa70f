"""Epochs: what two copies of a log have in common."""

from __future__ import annotations

import pytest
from google_crc32c import extend

from nsqd_py.diskqueue.ranges import Epoch, EpochNumbers, Epochs, common_end, decode_epoch_file, encode_epoch_file

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
    assert [numbers.next() for _ in range(4)] == [1000, 1001, 1002, 2000]


def test_numbers_above_those_of_another_nsqd() -> None:
    numbers = EpochNumbers(lambda: 1000)
    numbers.skip_past(5000)
    assert numbers.next() == 5001


def test_the_file_says_what_was_written() -> None:
    assert decode_epoch_file(encode_epoch_file(200, {"t": PROMOTED, "u": CREATED})) == (200, {"t": PROMOTED, "u": CREATED})


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
        b"\xff",
    ],
)
def test_what_is_no_such_file(content: bytes) -> None:
    with pytest.raises(ValueError):
        decode_epoch_file(b"%08x\n%b" % (extend(0, content), content))
    with pytest.raises(ValueError, match="checksum"):
        decode_epoch_file(content)
