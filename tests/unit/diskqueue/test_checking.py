"""The records of a file against their checksums: which bytes are damaged, in memory that the file cannot make large."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import accumulate

import pytest

from nsqd_py.diskqueue.checking import PIECE_BYTES, damaged_ranges, valid_end
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader, encode_record
from tests.unit.fakes import make_batch

SALT = 7


class File:
    """The bytes of a log file; `most_read` is the largest piece that was read of it."""

    def __init__(self, *bodies: bytes) -> None:
        self.records = [encode_record(make_batch(seq, body), SALT) for seq, body in enumerate(bodies)]
        self.content = bytearray(FileHeader(SALT, 0, 0).encode() + b"".join(self.records))
        self.ends = list(accumulate(map(len, self.records), initial=FILE_HEADER_BYTES))
        self.most_read = 0

    def read(self, offset: int, size: int) -> bytes:
        self.most_read = max(self.most_read, size)
        return bytes(self.content[offset : offset + size])

    def range_of(self, index: int) -> Range:
        return self.ends[index], self.ends[index + 1]

    def index_at(self, place: int) -> int:
        return bisect_right(self.ends, place) - 1

    def damaged(self) -> list[Range]:
        return list(damaged_ranges(self.read, SALT, self.ends[-1]))


SIZES = {
    "tiny": [1] * 50,
    "many": [200] * 2000,
    "mixed": [PIECE_BYTES - 1, 10, PIECE_BYTES * 5, 30],
    "one large": [PIECE_BYTES * 3],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_each_flipped_bit_is_found_in_its_record_and_a_whole_file_has_no_damage(sizes: list[int]) -> None:
    file = File(*(bytes([1]) * size for size in sizes))
    picks = random.Random(1)
    for _ in range(25):
        place = picks.randrange(FILE_HEADER_BYTES, len(file.content))
        bit = 1 << picks.randrange(8)
        file.content[place] ^= bit
        assert file.damaged() == [file.range_of(file.index_at(place))], place
        file.content[place] ^= bit
    assert file.damaged() == []
    assert file.most_read <= PIECE_BYTES


def test_neighbours_that_are_damaged_are_found_too() -> None:
    file = File(*[b"x" * 100] * 10)
    for index in (2, 3, 9):
        file.content[file.ends[index] + 70] ^= 4
    found = file.damaged()
    assert found[0][0] == file.ends[2]
    assert found[-1] == file.range_of(9)
    covered = {byte for start, end in found for byte in range(start, end)}
    assert covered == {byte for index in (2, 3, 9) for byte in range(*file.range_of(index))}


@pytest.mark.parametrize("left", [0, 10, 57, 100])
def test_a_file_that_was_cut_is_damaged_up_to_its_end(left: int) -> None:
    file = File(*[b"x" * 100] * 10)
    start = file.ends[6]
    del file.content[start + left :]
    assert file.damaged() == [(start, file.ends[-1])]


def test_what_looks_like_a_record_in_a_body_is_none() -> None:
    """Also where the record around it is damaged."""
    inner = encode_record(make_batch(5, b"inner"), SALT + 1)
    file = File(b"before", b"NSQr" * 200 + inner, b"after")
    file.content[file.ends[1]] ^= 1
    assert file.damaged() == [file.range_of(1)]


def test_bytes_that_begin_with_records() -> None:
    first, second = (encode_record(make_batch(seq, b"x" * 10), SALT) for seq in range(2))
    assert valid_end(first + second + second[:20], SALT) == len(first + second)
    assert valid_end(first[:-1], SALT) == 0
    assert valid_end(first, SALT + 1) == 0
