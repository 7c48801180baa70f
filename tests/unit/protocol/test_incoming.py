"""Bytes of nsqd become rows of messages and answers."""

from __future__ import annotations

from struct import pack

import pytest

from nsqd_py.protocol import frames
from nsqd_py.protocol.incoming import ErrorFrame, FrameParser, IncomingMessages, Responses


def message(number: int, body: bytes = b"body", attempts: int = 1) -> bytes:
    data = pack(">qH", 1_700_000_000_000_000_000 + number, attempts) + b"%016x" % number + body
    return pack(">ii", len(data) + 4, frames.MESSAGE) + data


def test_a_row_of_messages_is_one_thing_with_columns() -> None:
    (messages,) = FrameParser().feed(message(1, b"one") + message(2, b"", attempts=7) + message(3, b"three"))
    assert len(messages) == 3
    assert messages.bodies == [b"one", b"", b"three"]
    assert messages.ids == [b"%016x" % number for number in (1, 2, 3)]
    assert messages.attempts == [1, 7, 1]
    assert messages.timestamps_ns == [1_700_000_000_000_000_000 + number for number in (1, 2, 3)]
    assert messages.size_bytes == 3 * 34 + len(b"onethree")


def test_answers_split_rows_and_keep_their_place() -> None:
    oks = frames.OK * 3
    data = oks + message(1) + frames.error(b"E_FIN_FAILED x") + message(2) + frames.HEARTBEAT + frames.OK
    kinds = [
        (type(item), getattr(item, "data", None), getattr(item, "times", 1))
        for item in FrameParser().feed(data)
        if not isinstance(item, IncomingMessages)
    ]
    assert kinds == [
        (Responses, b"OK", 3),
        (ErrorFrame, b"E_FIN_FAILED x", 1),
        (Responses, b"_heartbeat_", 1),
        (Responses, b"OK", 1),
    ]
    assert [isinstance(item, IncomingMessages) for item in FrameParser().feed(data)] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (pack(">ii", -1, 0), "says to be -1 bytes long"),
        (pack(">ii", 3, 0), "says to be 3 bytes long"),
        (pack(">ii", 29, frames.MESSAGE), "says to be 29 bytes long"),
        (
            pack(">ii", 1031, frames.MESSAGE),
            "a message of 1001 bytes, but max_msg_size of this client is 1000",
        ),
        (pack(">ii", 65537, frames.RESPONSE), "an answer of 65537 bytes .limit 65536"),
        (pack(">ii", 65537, frames.ERROR), "an answer of 65537 bytes .limit 65536"),
        (pack(">ii", 10, 3), "unknown kind 3"),
        (b"HTTP/1.1 400 Bad Request\r\n", "this is an HTTP port"),
    ],
)
def test_what_is_no_frame_is_a_failure_behind_what_was_good(bad: bytes, text: str) -> None:
    parser = FrameParser(1000)
    (messages,) = parser.feed(message(1) + bad + message(2))
    assert messages.ids == [b"%016x" % 1]
    with pytest.raises(type(parser.failure), match=text):
        raise parser.failure
    assert parser.feed(message(3)) == []


def test_whole_messages_that_are_too_large_fail_too() -> None:
    parser = FrameParser(70)
    (messages,) = parser.feed(message(1, b"x" * 70) + message(2, b"x" * 71))
    assert len(messages) == 1
    assert parser.failure is not None


def test_one_at_a_time_looks_at_nothing_behind_an_answer() -> None:
    parser = FrameParser()
    behind = b"\xff\x06\x00\x00sNaPpY" + frames.OK  # no frame: it is compressed
    assert parser.feed_one(frames.OK[:9]) is None
    assert parser.feed_one(frames.OK[9:] + behind) == Responses(b"OK", 1)
    assert parser.failure is None
    assert parser.take_rest() == behind
    assert parser.take_rest() == b""


def test_a_message_in_the_handshake_is_a_failure() -> None:
    parser = FrameParser()
    assert parser.feed_one(message(1)) is None
    assert "a message before the handshake was over" in str(parser.failure)
