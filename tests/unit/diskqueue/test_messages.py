"""Records of kind `messages`."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.messages import Messages, decode_messages, encode_messages
from nsqd_py.diskqueue.records import MESSAGES, RECORD_HEADER_BYTES, Damaged, decode, encode_fields

SALT = 0xC0FFEE
LEVELS = pytest.mark.parametrize("zstd_level", [None, 3])
TIMES = st.integers(0, (1 << 63) - 1)


def messages(*bodies: bytes, due_ns: list[int] | None = None) -> Messages:
    count = len(bodies)
    ids = [b"%016x" % number for number in range(count)]
    times = [1000 + number for number in range(count)]
    return Messages("topic", "channel", "127.0.0.1:4150", times, [1] * count, ids, list(bodies), due_ns)


def plain(given_messages: Messages) -> tuple[object, ...]:
    columns = (
        given_messages.timestamps_ns,
        given_messages.attempts,
        given_messages.ids,
        given_messages.bodies,
    )
    due = None if given_messages.due_ns is None else list(given_messages.due_ns)
    return (given_messages.topic, given_messages.channel, given_messages.nsqd, *map(list, columns), due)


@LEVELS
@given(
    st.lists(
        st.tuples(
            TIMES, TIMES, st.integers(0, 65535), st.binary(min_size=16, max_size=16), st.binary(max_size=99)
        ),
        min_size=1,
        max_size=9,
    ),
    st.booleans(),
    st.text(max_size=60),
)
def test_round_trip(
    zstd_level: int | None, rows: list[tuple[int, int, int, bytes, bytes]], has_due: bool, name: str
) -> None:
    times, due, attempts, ids, bodies = (list(column) for column in zip(*rows, strict=True))
    given_messages = Messages(name, "c", "n:1", times, attempts, ids, bodies, due if has_due else None)
    record = encode_messages(given_messages, 7, SALT, zstd_level)
    decoded, after = decode_messages(b"before" + record + b"behind", 6, SALT)
    assert plain(decoded) == plain(given_messages)
    assert after == 6 + len(record)


def test_the_body_is_as_documented() -> None:
    """Byte for byte: what other programs rely on."""
    body = encode_messages(messages(b"a", b"bcd"), 0, SALT)[RECORD_HEADER_BYTES:]
    expected = [
        b"\x05\x07\x0e\x00topicchannel127.0.0.1:4150",
        struct.pack("<qq", 1000, 1001),
        struct.pack("<II", 1, 3),
        struct.pack("<HH", 1, 1),
        b"%016x%016x" % (0, 1),
        b"\0\0\0\x01a\0\0\0\x03bcd",
    ]
    assert body == b"".join(expected)


def test_nsqd_does_not_take_it_for_its_own() -> None:
    with pytest.raises(Damaged):
        decode(encode_messages(messages(b"a"), 0, SALT), 0, SALT)


def test_columns_that_do_not_fit_the_count_are_damage() -> None:
    """A right checksum does not make the columns right."""
    record = encode_messages(messages(b"a", b"b"), 0, SALT)
    wrong = encode_fields(record[RECORD_HEADER_BYTES:], SALT, MESSAGES, 0, 0, 1, 1, 0, 5, len(record))
    with pytest.raises(Damaged):
        decode_messages(wrong, 0, SALT)
