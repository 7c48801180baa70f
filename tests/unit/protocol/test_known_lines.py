"""Lines of publishes that other clients have sent before need no checks."""

from __future__ import annotations

import pytest

from nsqd_py.errors import Invalid
from nsqd_py.protocol.commands import NOP, Command, Dpub, Pub
from nsqd_py.protocol.parser import CommandParser, KnownLines
from nsqd_py.protocol.session import Limits, Session
from tests.support.wire import dpub, int32, pub


def commands(parser: CommandParser, data: bytes) -> list[Command]:
    parser.feed(data)
    return list(iter(parser.next_command, None))


@pytest.fixture
def known() -> KnownLines:
    lines: KnownLines = {}
    commands(CommandParser(Session(Limits()), lines), pub("t", b"1") + dpub("t", 5, b"2") + pub("u", b"3"))
    return lines


def test_a_client_that_has_published_may_use_the_lines_of_others(known: KnownLines) -> None:
    parser = CommandParser(Session(Limits()), known)
    commands(parser, pub("mine", b"1"))
    assert parser.lone_pub(pub("u", b"22")) == int32(2) + b"22"
    assert (parser.pub_topic, parser.pub_defer_ns) == (b"u", 0)
    assert parser.lone_pub(dpub("t", 5, b"3")) == int32(1) + b"3"
    assert (parser.pub_topic, parser.pub_defer_ns) == (b"t", 5_000_000)
    assert parser.lone_pub(pub("unknown", b"4")) is None
    found = commands(parser, pub("t", b"5") + pub("u", b"6") + dpub("t", 5, b"7") + b"NOP\n")
    assert found == [
        Pub(b"t", int32(1) + b"5", 1, 5),
        Pub(b"u", int32(1) + b"6", 1, 5),
        Dpub(b"t", int32(1) + b"7", 1, 5, 5_000_000),
        NOP,
    ]


def test_the_first_publish_of_a_client_is_checked_whatever_others_have_sent(known: KnownLines) -> None:
    parser = CommandParser(Session(Limits(tls_required=True, tls_enabled=True)), known)
    assert parser.lone_pub(pub("t", b"1")) is None
    with pytest.raises(Invalid, match="TLS required"):
        commands(parser, pub("t", b"1"))
    assert parser.lone_pub(pub("t", b"1")) is None


def test_a_known_line_with_a_bad_size_is_an_error(known: KnownLines) -> None:
    parser = CommandParser(Session(Limits(max_msg_size=3)), known)
    commands(parser, pub("t", b"1"))
    assert parser.lone_pub(pub("u", b"1234")) is None
    assert parser.lone_pub(b"PUB u\n" + int32(0)) is None


def test_few_lines_are_remembered_and_no_long_ones() -> None:
    lines: KnownLines = {}
    parser = CommandParser(Session(Limits()), lines)
    for number in range(40_000):
        commands(parser, pub(f"t{number}", b"x"))
    assert 0 < len(lines) <= 32 * 1024
    lines.clear()
    commands(parser, b"PUB t" + b" x" * 100 + b"\n" + int32(1) + b"x")
    assert not lines
