"""Batches: where messages begin in a body."""

from hypothesis import example, given
from hypothesis import strategies as st

from nsqd_py.batch import SIZE_BYTES, Batch, uniform_stride
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
