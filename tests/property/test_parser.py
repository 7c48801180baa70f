"""The parser of commands: the same outcome for every chunking, errors of the right kinds only, bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import pack
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsqd_py.errors import ClientError, LineTooLong
from nsqd_py.protocol import commands, multi_body
from nsqd_py.protocol import parser as parser_module
from nsqd_py.protocol.batch import Batch, uniform_stride
from nsqd_py.protocol.commands import (
    CLS,
    NOP,
    Cls,
    Command,
    Fin,
    Identify,
    LargeMpub,
    Publish,
    Rdy,
    Req,
    SliceRead,
    Sub,
    Touch,
)
from nsqd_py.protocol.parser import MAX_LINE_LENGTH, CommandParser
from nsqd_py.protocol.session import STATE_CLOSING, STATE_SUBSCRIBED, Limits, Session
from tests.support.examples import examples
from tests.unit.fakes import sized

LIMITS = Limits(max_msg_size=40, max_body_size=150, max_rdy_count=100, max_defer_timeout_ms=10_000)
SHORT_LINE = 64  # in place of MAX_LINE_LENGTH, so that examples stay small


def short_lines() -> Any:
    return mock.patch.object(parser_module, "MAX_LINE_LENGTH", SHORT_LINE)


# A message as ("PUB", topic, ...), the id of a FIN, another command, or the end.
Event = tuple[Any, ...] | Command


@pytest.fixture(autouse=True, scope="module", params=[multi_body.SLICE_MESSAGES, 3])
def slice_messages(request: pytest.FixtureRequest) -> Iterator[None]:
    """The slices of an MPUB as they are, and so small that each example has several."""
    with (
        mock.patch.object(multi_body, "SLICE_MESSAGES", request.param),
        mock.patch.multiple(parser_module, SLICE_MESSAGES=request.param, _LARGE_REST=1),
    ):
        yield


# --- a connection without a socket


class Reader:
    """Feeds a parser as a connection does, and notes what comes out, one event for each message or command."""

    def __init__(self) -> None:
        self.session = Session(LIMITS)
        self.parser = CommandParser(self.session)
        self.events: list[Event] = []
        self.is_over = False

    def read(self, data: bytes) -> None:
        while data and not self.is_over:
            size = self.parser.next_read or len(data)
            self._read(data[:size])
            data = data[size:]

    def _read(self, data: bytes) -> None:
        before = self.parser.gathered_bytes
        self.parser.feed(data)
        try:
            while (command := self.parser.next_command()) is not None:
                self.events += events_of(command)
                self.obey(command)
        except ClientError as error:
            self.end("error", error.wire)
        except LineTooLong:
            self.end("line too long")
        self.check_memory(before + len(data))

    def obey(self, command: Command) -> None:
        """What changes the session."""
        if isinstance(command, Identify):
            self.session.identify(command.body)
        elif isinstance(command, Sub):
            self.session.state = STATE_SUBSCRIBED
        elif isinstance(command, Cls):
            self.session.state = STATE_CLOSING

    def check_memory(self, most: int) -> None:
        if self.is_over:
            return
        # The size of a message behind the largest body is read before it is refused.
        assert self.parser.gathered_bytes <= most
        if self.parser.has_unread:
            assert len(self.parser.unread()) < max(
                parser_module.MAX_LINE_LENGTH, 4 + LIMITS.max_body_size + 4
            )

    def finish(self) -> list[Event]:
        if not self.is_over:
            error = self.parser.end_of_input()
            self.end("end", error.wire if error is not None else None)
        return self.events

    def end(self, *event: object) -> None:
        self.is_over = True
        self.events.append(event)


def events_of(command: Command) -> Iterator[Event]:
    match command:
        case Fin():
            yield from (("FIN", message_id) for message_id in command.message_ids)
        case Publish(kind=commands.PUB):
            yield from (("PUB", command.topic_name, message) for message in messages_in(command))
        case Publish(kind=commands.DPUB):
            yield from (
                ("DPUB", command.topic_name, message, command.defer_ns) for message in messages_in(command)
            )
        case Publish():
            yield "MPUB", command.topic_name, messages_in(command)
        case LargeMpub():
            assert sum(part[1] for part in command.parts) == command.count > multi_body.SLICE_MESSAGES
            assert all(part[1] <= multi_body.SLICE_MESSAGES for part in command.parts)
            parts = [Publish(commands.MPUB, command.topic_name, *part) for part in command.parts]
            yield "MPUB", command.topic_name, [message for part in parts for message in messages_in(part)]
        case SliceRead():
            pass
        case _:
            yield command


def messages_in(command: Publish) -> list[bytes]:
    assert type(command.body) is bytes
    assert command.stride in (0, uniform_stride(command.body, command.count))
    messages = [Batch(0, 0, 0, 0, command.count, 0, command.body).message(i) for i in range(command.count)]
    assert sized(*messages) == command.body
    return messages


def outcome(chunks: Sequence[bytes]) -> list[Event]:
    reader = Reader()
    for chunk in chunks:
        reader.read(chunk)
    return reader.finish()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[low:high] for low, high in zip(edges, edges[1:], strict=False)]


def outcome_in_any_chunking(data: bytes, places: Sequence[int]) -> list[Event]:
    """Whole, cut at these places, and byte by byte."""
    whole = outcome([data])
    assert outcome(cut(data, places)) == whole
    assert outcome([data[i : i + 1] for i in range(len(data))]) == whole
    return whole


# --- commands


@dataclass(frozen=True)
class Sent:
    """Bytes, and the events that they are."""

    data: bytes
    events: tuple[Event, ...]


names = st.sampled_from([b"t", b"topic", b"a.b_c-9#ephemeral", b"x" * 40])
messages = st.binary(min_size=1, max_size=40)
newlines = st.sampled_from([b"\n", b"\n", b"\r\n"])
message_ids = st.sampled_from(
    [b"0123456789abcdef", b"f" * 16, b"ABCDEFGHIJKLMNOP", b"\x00\xff" * 8, b"0" * 15 + b"F"]
)


@st.composite
def pubs(draw: st.DrawFn) -> Sent:
    """Some in a row, as a producer sends them, with a delay or without one."""
    topic, defer_ms = draw(names), draw(st.none() | st.integers(0, 10_000))
    bodies = draw(st.lists(messages, min_size=1, max_size=4))
    line = (b"PUB " + topic if defer_ms is None else b"DPUB %b %d" % (topic, defer_ms)) + draw(newlines)
    data = b"".join(line + sized(body) for body in bodies)
    if defer_ms is None:
        return Sent(data, tuple(("PUB", topic, body) for body in bodies))
    return Sent(data, tuple(("DPUB", topic, body, defer_ms * 1_000_000) for body in bodies))


@st.composite
def mpubs(draw: st.DrawFn) -> Sent:
    size = draw(st.integers(1, 10))
    alike = st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=8)
    others = st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=5)
    bodies = draw(alike | others)
    topic = draw(names)
    body = pack(">i", len(bodies)) + sized(*bodies)
    return Sent(b"MPUB " + topic + draw(newlines) + sized(body), (("MPUB", topic, bodies),))


@st.composite
def identifies(draw: st.DrawFn) -> Sent:
    body = draw(st.sampled_from([b"{}", b'{"client_id":"me"}', b'{"heartbeat_interval":2000}']))
    return Sent(b"IDENTIFY" + draw(newlines) + sized(body), (Identify(body),))


@st.composite
def fins(draw: st.DrawFn) -> Sent:
    ids = draw(st.lists(message_ids, min_size=1, max_size=5))
    data = b"".join(b"FIN " + message_id + draw(newlines) for message_id in ids)
    return Sent(data, tuple(("FIN", message_id) for message_id in ids))


@st.composite
def lines(draw: st.DrawFn) -> Sent:
    message_id = draw(message_ids)
    line, command = draw(
        st.sampled_from(
            [
                (b"NOP", NOP),
                (b"RDY 5", Rdy(5)),
                (b"RDY", Rdy(1)),
                (b"TOUCH " + message_id, Touch(message_id)),
                (b"REQ %b 100" % message_id, Req(message_id, 100_000_000)),
                (b"RDY 0 x", Rdy(0)),
            ]
        )
    )
    return Sent(line + draw(newlines), (command,))


publishes = pubs() | mpubs()
before_sub = st.lists(identifies() | publishes | st.just(Sent(b"NOP\n", (NOP,))), max_size=5)
after_sub = st.lists(fins() | lines() | publishes, max_size=8)
conversations = st.tuples(before_sub, after_sub, st.booleans()).map(
    lambda parts: [
        *parts[0],
        Sent(b"SUB t ch\n", (Sub(b"t", b"ch"),)),
        *parts[1],
        *([Sent(b"CLS\n", (CLS,)), Sent(b"NOP\n", (NOP,))] if parts[2] else []),
    ]
)
places = st.lists(st.integers(0, 10_000), max_size=12)


@given(conversations, places)
@settings(deadline=None, max_examples=examples(200))
def test_valid_commands_in_any_chunking(conversation: list[Sent], where: list[int]) -> None:
    data = b"".join(sent.data for sent in conversation)
    expected = [event for sent in conversation for event in sent.events] + [("end", None)]
    assert outcome_in_any_chunking(data, where) == expected
    assert outcome([sent.data for sent in conversation]) == expected


# --- anything else

int32 = st.sampled_from([0, 1, -1, 4, 5, 9, 40, 41, 42, 150, 151, 1 << 30, -(1 << 31)]).map(
    lambda n: pack(">i", n)
)
scraps = (
    st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b" ",
            b"PUB t\n",
            b"PUB t\r\n",
            b"MPUB t\n",
            b"DPUB t 5\n",
            b"PUB bad!\n",
            b"PUB\n",
            b"FIN ",
            b"FIN 0123456789abcdef\n",
            b"FIN 0123456789abcde\r\n",
            b"FIN 0123456789abcdef x\n",
            b"FIN short\n",
            b"fin 0123456789abcdef\n",
            b"RDY -1\n",
            b"RDY 101\n",
            b"RDY x\n",
            b"REQ 0123456789abcdef\n",
            b"AUTH\n",
            b"IDENTIFY\n",
            b"SUB t ch\n",
            b"SUB t\n",
            b"x" * 63,
            b"x" * 64,
            b"\xff\n",
            b"\0\0\0\1",
            b"\0\0\0\0",
        ]
    )
    | int32
    | st.binary(max_size=30)
)


@st.composite
def false_mpubs(draw: st.DrawFn) -> bytes:
    """Sizes and counts that do not fit each other."""
    size = draw(st.integers(0, 42))
    alike = st.lists(st.just(b"x" * size), max_size=10)
    bodies = draw(alike | st.lists(st.binary(max_size=42), max_size=6))
    body = sized(*bodies)
    count = len(bodies) + draw(st.sampled_from([0, 0, 0, 1, -1]))
    declared = len(body) + 4 + draw(st.sampled_from([0, 0, 1, -1, 30, -30]))
    return b"MPUB t\n" + pack(">ii", declared, count) + body


inputs = st.tuples(
    st.booleans(),
    st.lists(conversations.flatmap(st.sampled_from).map(lambda sent: sent.data) | scraps | false_mpubs()),
).map(lambda parts: (b"SUB t ch\n" if parts[0] else b"") + b"".join(parts[1]))


@given(inputs, places)
@settings(deadline=None, max_examples=examples(250))
@example(b"\n\0\0\0\5hello", [1])
@example(b"SUB t ch\nFIN 0123456789abcde\r\nFIN 01234\nFIN 012345\n", [9, 30])
@example(b"MPUB t\n" + pack(">ii", 30, 4) + sized(*[b"x" * 33] * 4), [60])
@example(b"MPUB t\n" + pack(">ii", 134, 10) + sized(*[b"x" * 12] * 10), [])
def test_any_bytes_in_any_chunking(data: bytes, where: list[int]) -> None:
    """Commands, then one error or the end; and the same whatever the network does."""
    with short_lines():
        expected = outcome_in_any_chunking(data, where)
    topics = [event[1] for event in expected if isinstance(event, tuple) and event[0] in ("PUB", "MPUB")]
    assert b"" not in topics


@given(st.data())
@settings(deadline=None, max_examples=examples(200))
def test_one_changed_byte_in_any_chunking(data: st.DataObject) -> None:
    sent = bytearray(b"".join(sent.data for sent in data.draw(conversations)))
    place = data.draw(st.integers(0, len(sent) - 1))
    sent[place] ^= data.draw(st.integers(1, 255))
    with short_lines():
        outcome_in_any_chunking(bytes(sent), data.draw(places))


# --- single cases


@pytest.mark.parametrize("line", [b"\n", b"\r\n"])
def test_an_empty_line_is_no_publish(line: bytes) -> None:
    """Not even when what follows it would be the body of one."""
    assert outcome([line + sized(b"hello")]) == [("error", b"E_INVALID invalid command ")]


@pytest.mark.parametrize("more", [b"", b"FIN 0123456789abcdef\n", b"NOP\n" * 10])
def test_a_return_before_the_newline_is_no_part_of_an_id(more: bytes) -> None:
    """Whether this FIN comes alone or in a run."""
    events = outcome([b"SUB t ch\n", b"FIN 0123456789abcde\r\n" + more])
    assert events[1:] == [("error", b"E_INVALID invalid message ID")]


@pytest.mark.parametrize("newline", [b"", b"\n"])
@pytest.mark.parametrize("chunk_bytes", [1 << 20, 4_096, 1])
def test_longest_line(newline: bytes, chunk_bytes: int) -> None:
    longest = b"x" * (MAX_LINE_LENGTH - 1) + b"\n"
    longer = b"x" * MAX_LINE_LENGTH + newline
    for line, is_too_long in ((longest, False), (longer, True)):
        events = outcome([line[i : i + chunk_bytes] for i in range(0, len(line), chunk_bytes)])
        assert (events == [("line too long",)]) == is_too_long
        assert len(events) == 1


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PUB t\n\0\0", b"E_BAD_MESSAGE PUB failed to read message body size"),
        (b"PUB t\n\0\0\0\5hel", b"E_BAD_MESSAGE PUB failed to read message body"),
        (b"IDENTIFY\n\0\0\0\2", b"E_BAD_BODY IDENTIFY failed to read body"),
        (b"IDENTIFY\n", b"E_BAD_BODY IDENTIFY failed to read body size"),
        (b"MPUB t\n\0\0", b"E_BAD_BODY MPUB failed to read body size"),
        (b"MPUB t\n\0\0\0\x20\0\0", b"E_BAD_BODY MPUB failed to read message count"),
        (b"MPUB t\n\0\0\0\x20\0\0\0\2\0", b"E_BAD_MESSAGE MPUB failed to read message(0) body size"),
        (b"MPUB t\n\0\0\0\x20\0\0\0\2\0\0\0\1x", b"E_BAD_MESSAGE MPUB failed to read message(1) body size"),
        (b"MPUB t\n\0\0\0\x20\0\0\0\2\0\0\0\5x", b"E_BAD_MESSAGE MPUB failed to read message body"),
        (b"PUB ", None),
        (b"", None),
    ],
)
def test_the_end_inside_a_command(data: bytes, text: bytes | None) -> None:
    assert outcome_in_any_chunking(data, []) == [("end", text)]


def test_an_idle_connection_holds_nothing() -> None:
    reader = Reader()
    reader.read(b"SUB t ch\n" + b"FIN 0123456789abcdef\n" * 1_000)
    assert len(reader.events) == 1_001
    assert reader.parser.gathered_bytes == 0


def test_a_run_of_fins_is_one_command() -> None:
    session = Session(LIMITS, client_id="me")
    session.state = STATE_SUBSCRIBED
    parser = CommandParser(session)
    parser.feed(b"FIN 0123456789abcdef\n" * 100 + b"FIN 012345")
    assert parser.next_command() == Fin([b"0123456789abcdef"] * 100)
    assert parser.next_command() is None
    assert parser.unread() == b"FIN 012345"


def test_a_run_of_pubs_is_one_batch_but_for_its_first() -> None:
    parser = CommandParser(Session(LIMITS))
    parser.feed((b"PUB t\n" + sized(b"hello")) * 100)
    assert parser.next_command() == Publish(commands.PUB, b"t", sized(b"hello"), 1, 9)
    assert parser.next_command() == Publish(commands.PUB, b"t", sized(*[b"hello"] * 99), 99, 9)
    assert parser.next_command() is None


def test_an_mpub_of_one_size_keeps_its_stride_however_it_arrives() -> None:
    if multi_body.SLICE_MESSAGES < 10:
        return  # it is in parts, which `events_of` looks at
    bodies = [b"12345"] * 10
    data = b"MPUB t\n" + sized(pack(">i", 10) + sized(*bodies))
    for split in range(1, len(data)):
        parser = CommandParser(Session(LIMITS))
        parser.feed(data[:split])
        command = parser.next_command()
        if command is None:
            parser.feed(data[split:])
            command = parser.next_command()
        assert command == Publish(commands.MPUB, b"t", sized(*bodies), 10, 9)
