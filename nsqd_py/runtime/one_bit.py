"""Corrects data of which one bit has flipped, by its crc32c. Pure.

A crc32c is linear: a flipped bit changes it by a value that depends only on the distance of the bit from the end. No two bits
of less than 2**31 change it by the same value (Koopman, "32-bit cyclic redundancy codes for Internet applications", 2002), so
the change names the bit. Two flipped bits are never taken for one.
"""

from __future__ import annotations

from google_crc32c import extend

# A second of processor.
MOST_BYTES = 512 * 1024

_ZERO = extend(0, b"\0")
# The change by each value of the last byte; also the step of a crc over a byte of zeros.
_CHANGES = [extend(0, bytes([value])) ^ _ZERO for value in range(256)]


def corrected(data: bytes, checksum: int) -> bytes | None:
    """Return the data that has this crc32c, if one bit of it has flipped; None if more is wrong, or it is too long to know."""
    difference = extend(0, data) ^ checksum
    if not difference or len(data) > MOST_BYTES:
        return None
    changes = [_CHANGES[1 << bit] for bit in range(8)]
    for index in range(len(data) - 1, -1, -1):
        if difference in changes:
            mask = 1 << changes.index(difference)
            return data[:index] + bytes([data[index] ^ mask]) + data[index + 1 :]
        changes = [change >> 8 ^ _CHANGES[change & 0xFF] for change in changes]
    return None


def differs_by_a_bit(one: bytes, other: bytes) -> bool:
    """True if these bytes differ by one bit."""
    if len(one) != len(other):
        return False
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count() == 1
