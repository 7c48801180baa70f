"""Frames as bytes."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.batch import Batch, uniform_stride
from nsqd_py.protocol import frames
from tests.unit.fakes import sized

bodies = st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=10)
equal_bodies = st.integers(1, 300).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=10)
)


def naive_frame(message: bytes, timestamp_ns: int, attempts: int, message_id: int) -> bytes:
    data = pack(">qH", timestamp_ns, attempts) + b"%016x" % message_id + message
    return pack(">ii", 4 + len(data), 2) + data


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (frames.OK, b"\0\0\0\6\0\0\0\0OK"),
        (frames.HEARTBEAT, b"\0\0\0\x0f\0\0\0\0_heartbeat_"),
        (frames.CLOSE_WAIT, b"\0\0\0\x0e\0\0\0\0CLOSE_WAIT"),
        (frames.error(b"E_INVALID text"), b"\0\0\0\x12\0\0\0\1E_INVALID text"),
        (frames.response(b""), b"\0\0\0\4\0\0\0\0"),
    ],
)
def test_responses_and_errors(frame: bytes, expected: bytes) -> None:
    assert frame == expected


@given(st.integers(0, (1 << 64) - 5000), st.integers(1, 50))
def test_hex_ids(first: int, count: int) -> None:
    assert frames.hex_ids(first, count) == [b"%016x" % (first + i) for i in range(count)]


@given(
    messages=bodies | equal_bodies,
    timestamp_ns=st.integers(-(1 << 63), (1 << 63) - 1),
    base_id=st.integers(0, (1 << 64) - 100),
    attempts=st.integers(1, 0xFFFF),
    use_stride=st.booleans(),
    data=st.data(),
)
def test_message_frames(
    messages: list[bytes], timestamp_ns: int, base_id: int, attempts: int, use_stride: bool, data: st.DataObject
) -> None:
    low = data.draw(st.integers(0, len(messages) - 1), label="low")
    high = data.draw(st.integers(low + 1, len(messages)), label="high")
    body = sized(*messages)
    stride = uniform_stride(body, len(messages)) if use_stride else 0
    batch = Batch(77, base_id, timestamp_ns, 0, len(messages), stride, body)

    parts, ids = frames.message_frames(batch, low, high, attempts)

    assert ids == [b"%016x" % (base_id + i) for i in range(low, high)]
    expected = [naive_frame(messages[i], timestamp_ns, attempts, base_id + i) for i in range(low, high)]
    assert b"".join(parts) == b"".join(expected)
    # Three parts a message, as the connection counts them.
    assert [b"".join(parts[i : i + 3]) for i in range(0, len(parts), 3)] == expected
