"""The epochs of logs, and the file that has them."""

import json

import pytest

from nsqd_py.diskqueue.journals.epochs import (
    EndedLog,
    Epoch,
    EpochNumbers,
    Epochs,
    common_end,
    decode_epochs_of_logs,
    encode_epoch_file,
    with_ended,
)
from nsqd_py.runtime.documents import BAD_CONTENT

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
