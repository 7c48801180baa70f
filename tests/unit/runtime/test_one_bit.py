"""One flipped bit is corrected wherever it is; other damage is left as it is."""

from __future__ import annotations

import random

from google_crc32c import extend

from nsqd_py.runtime.one_bit import MOST_BYTES, corrected, differs_by_a_bit


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_each_bit_is_corrected() -> None:
    data = random.Random(1).randbytes(100)
    for bit in range(8 * len(data)):
        assert corrected(flip(data, bit), extend(0, data)) == data


def test_the_ends_of_long_data() -> None:
    data = random.Random(2).randbytes(100_000)
    for bit in (0, 7, 400_001, 799_999):
        assert corrected(flip(data, bit), extend(0, data)) == data


def test_other_damage_is_not_taken_for_a_bit() -> None:
    chance = random.Random(3)
    data = chance.randbytes(60)
    checksum = extend(0, data)
    assert corrected(data, checksum) is None, "nothing is wrong"
    assert corrected(b"", 5) is None
    assert corrected(bytes(MOST_BYTES + 1), checksum) is None
    for _ in range(500):
        first, second = chance.sample(range(8 * len(data)), 2)
        assert corrected(flip(flip(data, first), second), checksum) is None
        assert corrected(chance.randbytes(60), checksum) is None


def test_bytes_that_differ_by_a_bit() -> None:
    assert differs_by_a_bit(b"abc", flip(b"abc", 9))
    assert not differs_by_a_bit(b"abc", b"abc")
    assert not differs_by_a_bit(b"abc", flip(flip(b"abc", 9), 3))
    assert not differs_by_a_bit(b"abc", b"abcd")
