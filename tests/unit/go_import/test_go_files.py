"""The formats of Go's disk queues, without a disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.go_import import go_files
from tests.support.go_directory import GoMessage, go_messages, numbered


def stored(messages: list[GoMessage]) -> bytes:
    return b"".join(message.stored for message in messages)


def plain(messages: list[GoMessage]) -> list[tuple[int, int, int, bytes]]:
    return [(message.timestamp_ns, message.attempts, message.id, message.body) for message in messages]


def find(data: bytes, start: int) -> int | None:
    return go_files.find_go_message(lambda offset, size: data[offset : offset + size], start, len(data))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "orders.diskqueue.000012.dat",
            go_files.GoFileName("orders", None, go_files.GoFileKind.MESSAGES, 12),
        ),
        (
            "a.b:c-d.diskqueue.1234567.dat",
            go_files.GoFileName("a.b", "c-d", go_files.GoFileKind.MESSAGES, 1234567),
        ),
        ("a;b.diskqueue.000000.dat", go_files.GoFileName("a", "b", go_files.GoFileKind.MESSAGES, 0)),
        ("a:b.diskqueue.meta.dat", go_files.GoFileName("a", "b", go_files.GoFileKind.POSITION, -1)),
        ("a.diskqueue.000003.dat.bad", go_files.GoFileName("a", None, go_files.GoFileKind.BAD, 3)),
        (
            "a.diskqueue.meta.dat.5577006791947779410.tmp",
            go_files.GoFileName("a", None, go_files.GoFileKind.TEMPORARY, -1),
        ),
        (
            "a.diskqueue.000000.diskqueue.000001.dat",
            go_files.GoFileName("a.diskqueue.000000", None, go_files.GoFileKind.MESSAGES, 1),
        ),
        ("a.diskqueue.12.dat", None),
        ("nsqd.dat", None),
        ("a.00000000000000000000.log", None),
    ],
)
def test_names(name: str, expected: go_files.GoFileName | None) -> None:
    assert go_files.parse_go_name(name) == expected


def test_positions() -> None:
    position = go_files.parse_go_position(b"7\n1,20\n3,40\n")
    assert position == go_files.GoPosition(7, 1, 20, 3, 40) and position.has_unread
    assert go_files.parse_go_position(b"0\n3,41\n3,40\n") is None
    assert not go_files.GoPosition(0, 3, 40, 3, 40).has_unread
    assert go_files.parse_go_position(b"-3\n1,20\n3,40\n") is not None
    assert go_files.parse_go_position(b"7\n1,20\n") is None
    assert go_files.parse_go_position(b"\0" * 12) is None


BODIES = st.lists(st.binary(max_size=60), max_size=12)


@given(BODIES, st.integers(min_value=0, max_value=0xFFFF), st.data())
def test_whole_messages_come_wherever_the_data_ends(
    bodies: list[bytes], attempts: int, data: st.DataObject
) -> None:
    messages = go_messages(bodies, attempts=attempts)
    whole = stored(messages)
    end = data.draw(st.integers(min_value=0, max_value=len(whole)))
    found, after = go_files.decode_go_messages(whole[:end])
    assert found == plain(messages)[: len(found)]
    assert after == len(stored(messages[: len(found)]))
    assert len(found) == len(messages) or end < after + len(messages[len(found)].stored)


@pytest.mark.parametrize("wrong", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x19"])
def test_a_wrong_size_is_no_message(wrong: bytes) -> None:
    first, second = numbered("m", 2)
    data = first.stored + wrong + second.stored[4:]
    assert go_files.decode_go_messages(data) == (plain([first]), len(first.stored))


@pytest.mark.parametrize("wrong", [b"g", b"A", b" ", b"8", b"\xff"])
def test_a_wrong_id_is_no_message(wrong: bytes) -> None:
    """Ids are hexadecimal in small letters, and positive."""
    [message] = numbered("m", 1)
    data = bytearray(message.stored)
    data[14:15] = wrong
    assert go_files.decode_go_messages(bytes(data)) == ([], 0)


@given(st.binary(max_size=40), st.lists(st.binary(max_size=60), min_size=1, max_size=5), st.data())
def test_behind_damage_the_next_message_is_found(
    junk: bytes, bodies: list[bytes], data: st.DataObject
) -> None:
    """Also when the last one is torn, or zeros follow."""
    rest = stored(go_messages(bodies))
    tail = data.draw(st.sampled_from([b"", bytes(200), go_messages([b"torn" * 20])[0].stored[:-1]]))
    assert find(junk + rest + tail, 0) == len(junk)


def test_text_that_looks_like_ids_is_no_message() -> None:
    assert find(b"0123456789abcdef" * 1000, 0) is None


def test_the_next_message_is_found_across_blocks() -> None:
    [message] = numbered("m", 1)
    for place in range(go_files.BLOCK_BYTES - 40, go_files.BLOCK_BYTES + 5, 7):
        assert find(bytes(place) + message.stored, 0) == place
