"""The codec of records and file headers."""

import pytest

from nsqd_py.diskqueue import records
from nsqd_py.protocol.batch import Batch
from tests.unit.fakes import make_batch

SALT = 0xC0FFEE
BATCH = make_batch(7, b"one", b"three")


def record(batch: Batch, salt: int = SALT) -> bytes:
    return records.encode_header(batch, salt) + batch.body


def test_every_flip_of_a_bit_is_detected() -> None:
    data = record(BATCH)
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            # A longer length is found out by the bytes that are not there.
            with pytest.raises((records.Damaged, records.Incomplete)):
                records.decode(bytes(flipped), 0, SALT)


def test_every_truncation_is_incomplete_and_says_what_is_needed() -> None:
    data = record(BATCH)
    for length in range(len(data)):
        with pytest.raises(records.Incomplete) as caught:
            records.decode(data[:length], 0, SALT)
        assert caught.value.needed == (
            records.RECORD_HEADER_BYTES if length < records.RECORD_HEADER_BYTES else len(data)
        )
    for length in range(records.RECORD_HEADER_BYTES):
        with pytest.raises(records.Incomplete):
            records.decode_header(data[:length], 0)


@pytest.mark.parametrize("data", [b"\0" * 100, b"x" * 100, b"NSQr" + b"\0" * 100])
def test_what_is_no_record(data: bytes) -> None:
    with pytest.raises(records.Damaged):
        records.decode(data, 0, SALT)
    with pytest.raises(records.Damaged):
        records.decode_header(data, 0)


# --- file headers


def test_every_flip_in_a_file_header_and_every_truncation_is_detected() -> None:
    header = records.FileHeader(SALT, 1 << 40, 0x0123_4567_89AB_CDEF)
    data = header.encode()
    for length in range(records.FILE_HEADER_BYTES):
        with pytest.raises(records.Damaged):
            records.FileHeader.decode(data[:length])
    missed = []
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        try:
            assert records.FileHeader.decode(bytes(flipped)) == header  # a byte that says nothing
            missed.append(place)
        except records.Damaged:
            pass
    says_nothing = [6, 7, *range(32, records.FILE_HEADER_BYTES)]  # flags of which there are none, and zeros
    assert set(missed) <= set(says_nothing)
