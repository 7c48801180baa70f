"""The header of a log file, worked out from the records behind it."""

from __future__ import annotations

import random

import pytest
from google_crc32c import extend
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader, encode_record
from nsqd_py.diskqueue.recovery import beginning_of, salvage_header

SALT = 0x1234ABCD
HEADER = FileHeader(SALT, first_seq=500, used_id=2**60 + 7, is_sparse=True)
USED_BYTES = 32  # of the header; zeros follow


def record(seq: int, salt: int = SALT, count: int = 2) -> bytes:
    body = (b"\0\0\0\x05hello") * count
    return encode_record(Batch(seq, 2**60 + seq, 1_000, 0, count, 9, body), salt)


FILE = HEADER.encode() + record(500) + record(502) + record(504)


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1))
def test_how_a_checksum_was_begun(data: bytes, beginning: int) -> None:
    assert beginning_of(extend(beginning, data) ^ extend(0, data), len(data)) == beginning


@pytest.mark.parametrize("byte", range(USED_BYTES))
def test_one_damaged_byte(byte: int) -> None:
    for value in {0, 0xFF, FILE[byte] ^ 1, FILE[byte] ^ 0x80} - {FILE[byte]}:
        damaged = FILE[:byte] + bytes([value]) + FILE[byte + 1 :]
        salvaged = salvage_header(damaged, 500)
        assert salvaged is not None
        assert (salvaged.salt, salvaged.first_seq, salvaged.is_sparse) == (SALT, 500, True)
        assert salvaged.used_id in (HEADER.used_id, 0)


def test_the_whole_header_is_gone() -> None:
    salvaged = salvage_header(bytes(FILE_HEADER_BYTES) + FILE[FILE_HEADER_BYTES:], 500)
    assert salvaged is not None
    assert (salvaged.salt, salvaged.first_seq, salvaged.used_id) == (SALT, 500, 0)


def test_one_record_and_another_salt_in_the_header_are_not_believed() -> None:
    other = FileHeader(SALT + 1, 500, 0).encode()
    assert salvage_header(b"????" + other[4:] + record(500), 500) is None


def test_what_is_left_of_an_earlier_use_of_the_file_is_not_believed() -> None:
    old = [record(seq, salt=77) for seq in range(0, 40, 2)]
    new = record(500) + record(502)
    assert salvage_header(bytes(FILE_HEADER_BYTES) + b"".join(old), 500) is None
    salvaged = salvage_header(bytes(FILE_HEADER_BYTES) + new + b"".join(old), 500)
    assert salvaged is not None
    assert salvaged.salt == SALT


@pytest.mark.parametrize("data", [b"", b"NSQf", bytes(FILE_HEADER_BYTES), random.Random(1).randbytes(10_000)])
def test_no_log_file(data: bytes) -> None:
    assert salvage_header(data, 0) is None


def test_a_file_that_ends_inside_a_record() -> None:
    assert salvage_header(bytes(FILE_HEADER_BYTES) + record(500) + record(502)[:-1], 500) is None
