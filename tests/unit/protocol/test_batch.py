"""Batches: where messages begin in a body; message ids."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsqd_py.protocol.batch import SIZE_BYTES, Batch, uniform_stride
from nsqd_py.protocol.message_ids import IDS_PER_TICK, TWEPOCH, GuidFactory
from tests.unit.fakes import sized

messages_of_any_size = st.lists(st.binary(max_size=12), min_size=1, max_size=12)
messages_of_one_size = st.integers(1, 300).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=12)
)


def walk(body: bytes, count: int) -> int:
    """The stride by looking at each message in turn."""
    sizes = []
    position = 0
    for _ in range(count):
        if position + SIZE_BYTES > len(body):
            return 0
        sizes.append(int.from_bytes(body[position : position + SIZE_BYTES], "big"))
        position += SIZE_BYTES + sizes[-1]
    uniform = position == len(body) and len(set(sizes)) == 1 and sizes[0] > 0
    return SIZE_BYTES + sizes[0] if uniform else 0


@given(messages_of_any_size | messages_of_one_size)
@example([b"a" * 256, b"b" * 256])  # size fields in which only one byte is set
@example([b"\0\0\0\1", b"\0\0\0\4"])
def test_stride_of_whole_messages(messages: list[bytes]) -> None:
    body = sized(*messages)
    assert uniform_stride(body, len(messages)) == walk(body, len(messages))


@given(st.binary(max_size=60), st.integers(1, 12))
@example(b"", 1)
@example(b"\0\0\0", 1)
@example(b"\0\0\0\0", 1)
@example(b"\0\0\0\1a\0\0\0\2b", 2)
def test_stride_of_any_bytes(body: bytes, count: int) -> None:
    assert uniform_stride(body, count) == walk(body, count)


@given(st.data())
def test_stride_with_one_byte_changed(data: st.DataObject) -> None:
    messages = data.draw(messages_of_one_size)
    body = bytearray(sized(*messages))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    assert uniform_stride(bytes(body), len(messages)) == walk(bytes(body), len(messages))


@given(messages_of_any_size | messages_of_one_size)
def test_starts_and_messages(messages: list[bytes]) -> None:
    body = sized(*messages)
    batch = Batch(100, 5, 0, 0, len(messages), uniform_stride(body, len(messages)), body)
    starts = list(batch.starts)
    assert len(starts) == len(messages) + 1
    for message, start in zip(messages, starts, strict=False):
        assert body[start - SIZE_BYTES : start] == len(message).to_bytes(4, "big")
    assert starts[-1] == len(body) + SIZE_BYTES
    assert [batch.message(i) for i in range(batch.count)] == messages
    assert batch.end_seq == 100 + len(messages)


@given(messages_of_one_size)
def test_the_stride_makes_no_difference(messages: list[bytes]) -> None:
    body = sized(*messages)
    walked = Batch(0, 0, 0, 0, len(messages), 0, body)
    strided = Batch(0, 0, 0, 0, len(messages), len(messages[0]) + SIZE_BYTES, body)
    assert list(walked.starts) == list(strided.starts)


# --- message ids

TICK_NS = 1 << 20
NOW_NS = 1_700_000_000 * 10**9
MAX_ID = (1 << 64) - 1


def test_layout() -> None:
    first = GuidFactory(node_id=0x2A5).reserve(1, NOW_NS)
    assert first & 0xFFF == 0  # sequence
    assert first >> 12 & 0x3FF == 0x2A5  # node
    assert first >> 22 == (NOW_NS >> 20) - TWEPOCH  # time


def test_a_full_tick_borrows_from_the_next() -> None:
    guids = GuidFactory(1)
    first = guids.reserve(IDS_PER_TICK, NOW_NS)
    second = guids.reserve(IDS_PER_TICK, NOW_NS)
    third = guids.reserve(1, NOW_NS)
    assert (second >> 22) - (first >> 22) == (third >> 22) - (second >> 22) == 1
    assert second & 0xFFF == third & 0xFFF == 0


def test_a_batch_never_straddles_a_tick() -> None:
    guids = GuidFactory(3)
    guids.reserve(IDS_PER_TICK - 1, NOW_NS)
    first = guids.reserve(2, NOW_NS)
    assert first & 0xFFF == 0
    assert first >> 12 & 0x3FF == (first + 1) >> 12 & 0x3FF == 3


@given(
    steps=st.lists(
        st.tuples(st.integers(-10 * TICK_NS, 2 * TICK_NS), st.integers(1, IDS_PER_TICK)),
        min_size=2,
        max_size=50,
    )
)
def test_ranges_only_rise_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    guids = GuidFactory(1023)
    now_ns = NOW_NS
    end = 0
    for step_ns, count in steps:
        now_ns += step_ns
        first = guids.reserve(count, now_ns)
        assert first >= end
        assert first >> 12 & 0x3FF == (first + count - 1) >> 12 & 0x3FF == 1023
        end = first + count


@pytest.mark.parametrize("ahead_ticks", [0, 1, 1_000_000])
def test_skip_past_an_id_of_the_future(ahead_ticks: int) -> None:
    used = GuidFactory(1).reserve(IDS_PER_TICK, NOW_NS + ahead_ticks * TICK_NS) + IDS_PER_TICK - 1
    guids = GuidFactory(0)
    guids.skip_past(used)
    assert guids.reserve(1, NOW_NS) > used


@pytest.mark.parametrize("year", [1970, 2000])
def test_a_clock_that_was_never_set_gives_ids_of_64_bits(year: int) -> None:
    """A board without a battery starts in 1970; an id that fits no record would fail every publish."""
    now_ns = (year - 1970) * 365 * 86_400 * 10**9
    first = GuidFactory(1).reserve(1, now_ns)
    assert 0 <= first <= MAX_ID
