"""Records of kind `messages`."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.messages import Messages, decode_messages, encode_messages, next_record, record_positions
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES, Damaged, Incomplete, decode, decode_header, encode_record_parts

SALT = 0xC0FFEE
LEVELS = pytest.mark.parametrize("zstd_level", [None, 3])
TIMES = st.integers(0, (1 << 63) - 1)


def messages(*bodies: bytes, due_ns: list[int] | None = None) -> Messages:
    count = len(bodies)
    ids = [b"%016x" % number for number in range(count)]
    times = [1000 + number for number in range(count)]
    return Messages("topic", "channel", "127.0.0.1:4150", times, [1] * count, ids, list(bodies), due_ns)


def plain(given_messages: Messages) -> tuple[object, ...]:
    columns = (given_messages.timestamps_ns, given_messages.attempts, given_messages.ids, given_messages.bodies)
    due = None if given_messages.due_ns is None else list(given_messages.due_ns)
    return (given_messages.topic, given_messages.channel, given_messages.nsqd, *map(list, columns), due)


@LEVELS
@given(
    st.lists(
        st.tuples(TIMES, TIMES, st.integers(0, 65535), st.binary(min_size=16, max_size=16), st.binary(max_size=99)),
        min_size=1,
        max_size=9,
    ),
    st.booleans(),
    st.text(max_size=60),
)
def test_round_trip(zstd_level: int | None, rows: list[tuple[int, int, int, bytes, bytes]], has_due: bool, name: str) -> None:
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


@LEVELS
def test_what_is_cut_off_or_changed_is_noticed(zstd_level: int | None) -> None:
    record = encode_messages(messages(b"first", b"second"), 0, SALT, zstd_level)
    for size in range(len(record)):
        with pytest.raises((Incomplete, Damaged)):
            decode_messages(record[:size], 0, SALT)
    for place in range(len(record)):
        changed = bytearray(record)
        changed[place] ^= 1
        with pytest.raises((Incomplete, Damaged)):
            decode_messages(bytes(changed), 0, SALT)
    with pytest.raises(Damaged):
        decode_messages(record, 0, SALT + 1)


def test_columns_that_do_not_fit_the_count_are_damage() -> None:
    """A right checksum does not make the columns right."""
    record = encode_messages(messages(b"a", b"b"), 0, SALT)
    header = decode_header(record, 0)

    wrong = encode_record_parts(replace(header, count=5), record[RECORD_HEADER_BYTES:], SALT)
    with pytest.raises(Damaged):
        decode_messages(wrong, 0, SALT)


def test_each_record_is_found_from_any_place() -> None:
    """A body that holds a record of another file is no record of this one."""
    foreign = encode_messages(messages(b"x"), 0, SALT + 1)
    records = [encode_messages(messages(body), 0, SALT) for body in (b"one", foreign, b"NSQr", b"four")]
    data = b"".join(records)
    starts = [sum(map(len, records[:number])) for number in range(len(records))]
    for place in range(len(data)):
        expected = next((start for start in starts if start >= place), None)
        assert next_record(data, place, SALT) == expected, place


def test_splits_share_the_records() -> None:
    """However a file is split: each record belongs to one part."""
    records = [encode_messages(messages(b"x" * size), size, SALT) for size in range(10)]
    data = b"".join(records)
    for size in (1, 50, 97, 1000):
        found = []
        for begin in range(0, len(data), size):
            first = next_record(data, begin, SALT)
            if first is not None:
                found += [header.first_seq for _, header in record_positions(data, first, SALT, begin + size)]
        assert found == list(range(10))
