"""Every error that nsqd answers over TCP: its text, its place in the order of checks, and what follows it.

Each case runs three times: sent whole, byte by byte, and with more commands behind it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import wire
from tests.support.examples import examples
from tests.support.general_nsqd import GENERAL_NSQD
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import CLOSE_WAIT, CLS, ERROR, OK, UNKNOWN_ID, Client, Closed, Frame, int32

MAX_MSG_BYTES = 1024 * 1024
MAX_BODY_BYTES = 5 * 1024 * 1024
MAX_MPUB_MESSAGES = (MAX_BODY_BYTES - 4) // 5
# Go reads a command into a buffer of this size; a line has to fit, with its newline.
MAX_LINE_BYTES = 16 * 1024
CLOSES_S = 40.0
SUBSCRIBED = wire.sub("cases", "channel")


class Case(NamedTuple):
    id: str
    sent: bytes
    error: str | bytes
    fatal: bool = True
    replies: tuple[Frame, ...] = ()
    end_of_input: bool = False

    @property
    def frames(self) -> list[Frame]:
        error = self.error.encode() if isinstance(self.error, str) else self.error
        return [*self.replies, Frame(ERROR, error)]


def command(line: bytes, *parts: int | bytes) -> bytes:
    """A command with its body: numbers that are sizes or counts, and pieces with their sizes before them."""
    body = (int32(part) if isinstance(part, int) else wire.sized(part) for part in parts)
    return line + b"\n" + b"".join(body)


def subscribed(case_id: str, sent: bytes, error: str, fatal: bool = True) -> Case:
    return Case(f"subscribed-{case_id}", SUBSCRIBED + sent, error, fatal, (OK,))


def bad_identify(case_id: str, error: str, **fields: Any) -> Case:
    return Case(f"IDENTIFY-{case_id}", wire.identify(**fields), f"E_BAD_BODY IDENTIFY {error}")


COMMANDS = [
    Case("unknown-command", b"HELLO\n", "E_INVALID invalid command HELLO"),
    Case("unknown-command-with-words", b"HELLO there you\n", "E_INVALID invalid command HELLO"),
    Case("lower-case-command", b"pub topic\n", "E_INVALID invalid command pub"),
    Case("empty-line", b"\n", "E_INVALID invalid command "),
    Case("empty-line-crlf", b"\r\n", "E_INVALID invalid command "),
    Case("leading-space", b" NOP\n", "E_INVALID invalid command "),
    Case("tab-is-no-separator", b"PUB\ttopic\n", "E_INVALID invalid command PUB\ttopic"),
    Case("unknown-command-crlf", b"HELLO\r\n", "E_INVALID invalid command HELLO"),
    Case("only-one-cr-is-cut", b"HELLO\r\r\n", "E_INVALID invalid command HELLO\r"),
    Case("command-of-raw-bytes", b"\x00\xff\xfe\n", b"E_INVALID invalid command \x00\xff\xfe"),
    Case(
        "longest-line",
        b"x" * (MAX_LINE_BYTES - 1) + b"\n",
        "E_INVALID invalid command " + "x" * (MAX_LINE_BYTES - 1),
    ),
]

STATES = [
    Case("FIN-before-SUB", b"FIN\n", "E_INVALID cannot FIN in current state"),
    Case("REQ-before-SUB", b"REQ\n", "E_INVALID cannot REQ in current state"),
    Case("TOUCH-before-SUB", b"TOUCH\n", "E_INVALID cannot TOUCH in current state"),
    Case("RDY-before-SUB", b"RDY x\n", "E_INVALID cannot RDY in current state"),
    Case("CLS-before-SUB", b"CLS\n", "E_INVALID cannot CLS in current state"),
    subscribed("SUB", b"SUB\n", "E_INVALID cannot SUB in current state"),
    subscribed("IDENTIFY", b"IDENTIFY\n", "E_INVALID cannot IDENTIFY in current state"),
    subscribed("AUTH", b"AUTH too many words\n", "E_INVALID cannot AUTH in current state"),
    Case(
        "CLS-twice", SUBSCRIBED + CLS + CLS, "E_INVALID cannot CLS in current state", replies=(OK, CLOSE_WAIT)
    ),
    Case(
        "SUB-after-CLS",
        SUBSCRIBED + CLS + SUBSCRIBED,
        "E_INVALID cannot SUB in current state",
        replies=(OK, CLOSE_WAIT),
    ),
    Case(
        "RDY-after-CLS-is-ignored-FIN-is-not",
        SUBSCRIBED + CLS + b"RDY not-a-number\n" + b"FIN\n",
        "E_INVALID FIN insufficient number of params",
        replies=(OK, CLOSE_WAIT),
    ),
    Case(
        "SUB-without-heartbeats",
        wire.identify(heartbeat_interval=-1) + b"SUB\n",
        "E_INVALID cannot SUB with heartbeats disabled",
        replies=(OK,),
    ),
    Case(
        "IDENTIFY-twice-then-a-limit",
        wire.identify() + wire.identify(msg_timeout=1),
        "E_BAD_BODY IDENTIFY msg timeout (1) is invalid",
        replies=(OK,),
    ),
]

BOTH_COMPRESSIONS = {"feature_negotiation": True, "deflate": True, "snappy": True}
SPANS = ("heartbeat_interval", "output_buffer_timeout", "output_buffer_size")
IN_ORDER_OF_CHECKS = [*((key, 1) for key in SPANS), ("sample_rate", -1), ("msg_timeout", 1)]
IDENTIFY = [
    *(
        Case(f"IDENTIFY-{name}", command(b"IDENTIFY", body), "E_BAD_BODY IDENTIFY failed to decode JSON body")
        for name, body in {
            "not-json": b"hello",
            "cut-json": b'{"client_id": "x"',
            "two-values": b"{}{}",
            "a-list": b"[]",
            "a-string": b'"x"',
            "a-number": b"1",
            "text-for-a-number": b'{"heartbeat_interval": "1000"}',
            "fraction-for-a-number": b'{"msg_timeout": 1000.5}',
            "number-for-text": b'{"client_id": 1}',
            "number-for-a-bool": b'{"feature_negotiation": 1}',
            "number-over-32-bit": b'{"sample_rate": 2147483648}',
            "single-quotes": b"{'client_id': 'x'}",
            "NaN": b'{"msg_timeout": NaN}',
        }.items()
    ),
    *(
        bad_identify(f"{key}-{value}", f"{key.replace('_', ' ')} ({value}) is invalid", **{key: value})
        for key, values in {
            "heartbeat_interval": (999, 60001, -2),
            "output_buffer_timeout": (24, 30001, -2),
            "output_buffer_size": (63, 65537, -2),
            "sample_rate": (-1, 100),
            "msg_timeout": (999, 900001, -1),
        }.items()
        for value in values
    ),
    bad_identify("keys-in-any-case", "msg timeout (1) is invalid", MSG_Timeout=1),
    # The order of checks: each of these is wrong in all that comes later, too.
    *(
        bad_identify(
            f"order-{place}",
            f"{key.replace('_', ' ')} ({value}) is invalid",
            **dict(IN_ORDER_OF_CHECKS[place:]),
        )
        for place, (key, value) in enumerate(IN_ORDER_OF_CHECKS)
    ),
    Case(
        "IDENTIFY-both-compressions",
        wire.identify(**BOTH_COMPRESSIONS),
        "E_IDENTIFY_FAILED cannot enable both deflate and snappy compression",
    ),
    bad_identify(
        "limit-before-compressions", "msg timeout (1) is invalid", **BOTH_COMPRESSIONS, msg_timeout=1
    ),
]

AUTH = [
    Case("AUTH-words", b"AUTH secret\n", "E_INVALID AUTH invalid number of parameters"),
    Case("AUTH-disabled", wire.auth(b"secret"), "E_AUTH_DISABLED AUTH disabled"),
]

SUB = [
    Case("SUB-no-words", b"SUB\n", "E_INVALID SUB insufficient number of parameters"),
    Case("SUB-one-word", b"SUB !\n", "E_INVALID SUB insufficient number of parameters"),
    Case("SUB-bad-topic", b"SUB to!pic !\n", 'E_BAD_TOPIC SUB topic name "to!pic" is not valid'),
    Case("SUB-empty-topic", b"SUB  channel\n", 'E_BAD_TOPIC SUB topic name "" is not valid'),
    Case("SUB-bad-channel", b"SUB topic ch*\n", 'E_BAD_CHANNEL SUB channel name "ch*" is not valid'),
    Case("SUB-empty-channel", b"SUB topic \n", 'E_BAD_CHANNEL SUB channel name "" is not valid'),
    Case("SUB-channel-quoted", b'SUB topic a"b\\\n', r'E_BAD_CHANNEL SUB channel name "a\"b\\" is not valid'),
]

RDY = [
    subscribed("RDY-word", b"RDY many\n", "E_INVALID RDY could not parse count many"),
    subscribed("RDY-negative", b"RDY -1\n", "E_INVALID RDY could not parse count -1"),
    subscribed("RDY-plus", b"RDY +1\n", "E_INVALID RDY could not parse count +1"),
    subscribed("RDY-fraction", b"RDY 1.0\n", "E_INVALID RDY could not parse count 1.0"),
    subscribed("RDY-underscore", b"RDY 1_0\n", "E_INVALID RDY could not parse count 1_0"),
    subscribed("RDY-other-digits", "RDY \u0663\n".encode(), "E_INVALID RDY could not parse count \u0663"),
    subscribed("RDY-over", b"RDY 2501\n", "E_INVALID RDY count 2501 out of range 0-2500"),
    # Numbers are read as unsigned 64 bits, without a check for overflow, then taken as signed.
    subscribed("RDY-wraps", b"RDY 18446744073709551615\n", "E_INVALID RDY count -1 out of range 0-2500"),
]

ID = UNKNOWN_ID.decode()
IN_FLIGHT = [
    subscribed(f"{verb}-{name}", f"{verb}{words}\n".encode(), error, is_fatal)
    for verb, rest in (("FIN", ""), ("TOUCH", ""), ("REQ", " 0"))
    for name, words, error, is_fatal in (
        ("no-words", "", f"E_INVALID {verb} insufficient number of params", True),
        ("empty-id", f" {rest}", "E_INVALID invalid message ID", True),
        ("short-id", f" {ID[:-1]}{rest}", "E_INVALID invalid message ID", True),
        ("long-id", f" {ID}0{rest}", "E_INVALID invalid message ID", True),
        ("unknown-id", f" {ID}{rest}", f"E_{verb}_FAILED {verb} {ID} failed ID not in flight", False),
        (
            "id-that-is-not-hex",
            f" not_hex_at_all!!{rest}",
            f"E_{verb}_FAILED {verb} not_hex_at_all!! failed ID not in flight",
            False,
        ),
    )
]

REQ = [
    subscribed("REQ-one-word", b"REQ " + UNKNOWN_ID + b"\n", "E_INVALID REQ insufficient number of params"),
    subscribed(
        "REQ-delay-word", b"REQ " + UNKNOWN_ID + b" soon\n", "E_INVALID REQ could not parse timeout soon"
    ),
    subscribed("REQ-delay-negative", wire.req(UNKNOWN_ID, -1), "E_INVALID REQ could not parse timeout -1"),
    subscribed("REQ-id-before-delay", b"REQ short soon\n", "E_INVALID invalid message ID"),
    subscribed(
        "REQ-delay-over-the-limit-is-no-error",
        wire.req(UNKNOWN_ID, 999_999_999),
        f"E_REQ_FAILED REQ {ID} failed ID not in flight",
        fatal=False,
    ),
    Case(
        "FIN-after-CLS",
        SUBSCRIBED + CLS + wire.fin(UNKNOWN_ID),
        f"E_FIN_FAILED FIN {ID} failed ID not in flight",
        fatal=False,
        replies=(OK, CLOSE_WAIT),
    ),
]

PUB = [
    Case("PUB-no-words", b"PUB\n", "E_INVALID PUB insufficient number of parameters"),
    Case(
        "PUB-size-smallest",
        command(b"PUB topic", -(2**31)),
        "E_BAD_MESSAGE PUB invalid message body size -2147483648",
    ),
    Case(
        "PUB-topic-before-size", command(b"PUB no/pe", 0), 'E_BAD_TOPIC PUB topic name "no/pe" is not valid'
    ),
]

DPUB = [
    Case("DPUB-no-words", b"DPUB\n", "E_INVALID DPUB insufficient number of parameters"),
    Case("DPUB-one-word", b"DPUB !\n", "E_INVALID DPUB insufficient number of parameters"),
    Case("DPUB-topic-before-delay", b"DPUB ! soon\n", 'E_BAD_TOPIC DPUB topic name "!" is not valid'),
    Case("DPUB-delay-word", b"DPUB topic soon\n", "E_INVALID DPUB could not parse timeout soon"),
    Case("DPUB-delay-negative", b"DPUB topic -1\n", "E_INVALID DPUB could not parse timeout -1"),
    Case(
        "DPUB-delay-over-the-limit",
        b"DPUB topic 3600001\n",
        "E_INVALID DPUB timeout 3600001 out of range 0-3600000",
    ),
    Case(
        "DPUB-delay-wraps",
        b"DPUB topic 18446744073709551615\n",
        "E_INVALID DPUB timeout 18446744073709551615 out of range 0-3600000",
    ),
]

TOO_MANY, TOO_LONG = MAX_MPUB_MESSAGES + 1, MAX_MSG_BYTES + 1
LONG_MESSAGE = f"E_BAD_MESSAGE MPUB message too big {TOO_LONG} > {MAX_MSG_BYTES}"
# Every one of these is complete as soon as it is wrong: the declared rest of the body never comes.
MPUB = [
    Case("MPUB-no-words", b"MPUB\n", "E_INVALID MPUB insufficient number of parameters"),
    # The code is there twice in Go, too.
    Case("MPUB-bad-topic", b"MPUB !\n", 'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "!" is not valid'),
    *(
        Case(f"MPUB-{name}", command(b"MPUB topic", *parts), error)
        for name, parts, error in (
            ("count-0", (100, 0), "E_BAD_BODY MPUB invalid message count 0"),
            ("count-negative", (100, -1), "E_BAD_BODY MPUB invalid message count -1"),
            ("count-over-the-limit", (100, TOO_MANY), f"E_BAD_BODY MPUB invalid message count {TOO_MANY}"),
            ("first-size-0", (1000, 2, 0), "E_BAD_MESSAGE MPUB invalid message(0) body size 0"),
            ("first-size-over-the-limit", (MAX_BODY_BYTES, 1, TOO_LONG), LONG_MESSAGE),
            (
                "second-size-negative",
                (1000, 3, b"first", -2),
                "E_BAD_MESSAGE MPUB invalid message(1) body size -2",
            ),
            ("last-size-over-the-limit", (1000, 3, b"1", b"2", TOO_LONG), LONG_MESSAGE),
            (
                "size-0-after-the-declared-end",
                (4, 2, b"first", 0),
                "E_BAD_MESSAGE MPUB invalid message(1) body size 0",
            ),
        )
    ),
]

BODY_SIZES = [
    Case(f"{line.split()[0].decode()}-size-{size}", command(line, size), f"{error} {reason}")
    for line, error, body, too_big, limit in (
        (b"IDENTIFY", "E_BAD_BODY IDENTIFY", "body", "body", MAX_BODY_BYTES),
        (b"AUTH", "E_BAD_BODY AUTH", "body", "body", MAX_BODY_BYTES),
        (b"PUB topic", "E_BAD_MESSAGE PUB", "message body", "message", MAX_MSG_BYTES),
        (b"DPUB topic 1", "E_BAD_MESSAGE DPUB", "message body", "message", MAX_MSG_BYTES),
        (b"MPUB topic", "E_BAD_BODY MPUB", "body", "body", MAX_BODY_BYTES),
    )
    for size, reason in (
        (0, f"invalid {body} size 0"),
        (-7, f"invalid {body} size -7"),
        (limit + 1, f"{too_big} too big {limit + 1} > {limit}"),
    )
]

# Go's %q: what it prints as is, what it escapes, and how.
QUOTED_NAMES = {
    "empty": (b"", '""'),
    "slash": (b"a/b", '"a/b"'),
    "65-characters": (b"a" * 65, '"' + "a" * 65 + '"'),
    "65-with-ephemeral": (b"a" * 55 + b"#ephemeral", '"' + "a" * 55 + '#ephemeral"'),
    "only-ephemeral": (b"#ephemeral", '"#ephemeral"'),
    "another-suffix": (b"name#other", '"name#other"'),
    "text-after-ephemeral": (b"name#ephemeral1", '"name#ephemeral1"'),
    "double-quote": (b'a"b', r'"a\"b"'),
    "single-quote": (b"a'b", '"a\'b"'),
    "backslash": (b"a\\b", r'"a\\b"'),
    "cr-inside": (b"a\rb", r'"a\rb"'),
    "control-letters": (b"\a\b\f\t\v", r'"\a\b\f\t\v"'),
    "control-hex": (b"\x00\x01\x1b\x7f", r'"\x00\x01\x1b\x7f"'),
    "not-utf8": (b"a\xff\xc3(", r'"a\xff\xc3("'),
    "cut-utf8": (b"a\xe2\x82", r'"a\xe2\x82"'),
    "overlong-utf8": (b"\xc0\x80", r'"\xc0\x80"'),
    "surrogate": (b"\xed\xa0\x80", r'"\xed\xa0\x80"'),
    "over-the-last-code-point": (b"\xf4\x90\x80\x80", r'"\xf4\x90\x80\x80"'),
    "accent": ("caf\u00e9", '"caf\u00e9"'),
    "chinese": ("\u961f\u5217", '"\u961f\u5217"'),
    "emoji": ("\U0001f600", '"\U0001f600"'),
    "combining": ("e\u0301", '"e\u0301"'),
    "replacement-character": ("\ufffd", '"\ufffd"'),
    "c1-control": ("\u0085", r'"\u0085"'),
    "no-break-space": ("a\u00a0b", r'"a\u00a0b"'),
    "soft-hyphen": ("a\u00adb", r'"a\u00adb"'),
    "zero-width-space": ("a\u200bb", r'"a\u200bb"'),
    "line-separator": ("\u2028", r'"\u2028"'),
    "ideographic-space": ("\u3000", r'"\u3000"'),
    "byte-order-mark": ("\ufefftopic", r'"\ufefftopic"'),
    "private-use": ("\ue000", r'"\ue000"'),
    "not-a-character": ("\uffff", r'"\uffff"'),
    "last-code-point": ("\U0010ffff", r'"\U0010ffff"'),
}
NAMES = [
    Case(
        f"name-{name}",
        b"PUB " + (given if isinstance(given, bytes) else given.encode()) + b"\n",
        f"E_BAD_TOPIC PUB topic name {quoted} is not valid",
    )
    for name, (given, quoted) in QUOTED_NAMES.items()
]

CUT_OFF = [
    Case(f"cut-off-{verb}-{name}", sent, f"{code} {verb} failed to read {what}", end_of_input=True)
    for verb, name, sent, code, what in (
        ("IDENTIFY", "size", b"IDENTIFY\n\x00\x00", "E_BAD_BODY", "body size"),
        ("IDENTIFY", "body", command(b"IDENTIFY", 5) + b"{", "E_BAD_BODY", "body"),
        ("AUTH", "size", b"AUTH\n", "E_BAD_BODY", "body size"),
        ("AUTH", "body", command(b"AUTH", 5) + b"1234", "E_BAD_BODY", "body"),
        ("PUB", "no-size", b"PUB topic\n", "E_BAD_MESSAGE", "message body size"),
        ("PUB", "half-size", b"PUB topic\n\x00\x00\x00", "E_BAD_MESSAGE", "message body size"),
        ("PUB", "no-body", command(b"PUB topic", 3), "E_BAD_MESSAGE", "message body"),
        ("PUB", "half-body", command(b"PUB topic", 3) + b"12", "E_BAD_MESSAGE", "message body"),
        ("DPUB", "size", b"DPUB topic 1\n\x00", "E_BAD_MESSAGE", "message body size"),
        ("DPUB", "body", command(b"DPUB topic 1", 3) + b"1", "E_BAD_MESSAGE", "message body"),
        ("MPUB", "size", b"MPUB topic\n\x00", "E_BAD_BODY", "body size"),
        ("MPUB", "count", command(b"MPUB topic", 9) + b"\x00", "E_BAD_BODY", "message count"),
        (
            "MPUB",
            "first-size",
            command(b"MPUB topic", 9, 1) + b"\x00\x00",
            "E_BAD_MESSAGE",
            "message(0) body size",
        ),
        (
            "MPUB",
            "second-size",
            command(b"MPUB topic", 99, 2, b"first"),
            "E_BAD_MESSAGE",
            "message(1) body size",
        ),
        (
            "MPUB",
            "body",
            command(b"MPUB topic", 99, 2, b"first", 6) + b"secon",
            "E_BAD_MESSAGE",
            "message body",
        ),
    )
]

CASES = [
    *COMMANDS,
    *STATES,
    *IDENTIFY,
    *AUTH,
    *SUB,
    *RDY,
    *IN_FLIGHT,
    *REQ,
    *PUB,
    *DPUB,
    *MPUB,
    *BODY_SIZES,
    *NAMES,
    *CUT_OFF,
]


@pytest.fixture(
    scope="module", params=[None, pytest.param(GENERAL_NSQD, marks=pytest.mark.slow)], ids=["", "general"]
)
def nsqd(request, tmp_path_factory) -> Iterator[NsqdProcess]:
    """One nsqd for all cases: no error may harm it. Then one without the shortcut for publishes."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            patch.setenv("NSQD_COMMAND", request.param)
        process = NsqdProcess(tmp_path_factory.mktemp("wire") / "nsqd").start()
    yield process
    process.destroy()


Send = Callable[[Client, bytes], None]
ways = pytest.mark.parametrize("send", [Client.send, Client.send_byte_by_byte], ids=["whole", "bytewise"])


@ways
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_error(nsqd, case, send):
    with nsqd.connect() as client:
        # A wrong size closes the connection before the last bytes have left here.
        with contextlib.suppress(Closed):
            send(client, case.sent)
        if case.end_of_input:
            client.end_input()
        assert_answers(client, case)
        if not case.fatal:
            client.pub("after", b"the connection still works")


@pytest.mark.parametrize("case", [case for case in CASES if not case.end_of_input], ids=lambda case: case.id)
def test_error_with_more_commands_behind_it(nsqd, case):
    topic = f"behind-{case.id}"
    with nsqd.connect() as client:
        client.send(case.sent, wire.NOP, wire.pub(topic, b"b"))
        assert_answers(client, case)
        if not case.fatal:
            assert client.next_frame() == OK
    assert (nsqd.topic_stats(topic) is None) == case.fatal


def assert_answers(client: Client, case: Case) -> None:
    if case.fatal:
        assert client.rest(CLOSES_S) == case.frames
    else:
        assert [client.next_frame() for _ in case.frames] == case.frames


# --- the start and the end of a connection


@pytest.mark.parametrize(
    "magic",
    [b"  V1", b"V2  ", b"GET ", b"\x00\x00\x00\x00", b"  v2", b"PUB t\n\0\0\0\1x", b"DPUB t 1\n\0\0\0\1x"],
)
def test_bad_magic(nsqd, magic):
    with Client(nsqd.tcp_port, magic=magic) as client:
        assert client.rest(CLOSES_S) == [Frame(ERROR, b"E_BAD_PROTOCOL")]


@pytest.mark.parametrize(
    "sent", [b"", b" ", b"  V", b"  V2", b"  V2N", b"  V2NOP", b"  V2PUB topic", b"  V2NOP\nNO"]
)
def test_a_magic_or_a_line_that_is_cut_off_is_no_error(nsqd, sent):
    with Client(nsqd.tcp_port, magic=sent) as client:
        client.end_input()
        assert client.rest(CLOSES_S) == []


@pytest.mark.parametrize("extra_bytes", [0, 1, 100_000], ids=["full", "one-more", "many-more"])
def test_line_over_16_kib_closes_without_an_error(nsqd, extra_bytes):
    with nsqd.connect() as client:
        client.send(wire.NOP)
        with contextlib.suppress(Closed):
            client.send(b"x" * (MAX_LINE_BYTES + extra_bytes))
        assert client.rest(CLOSES_S) == []


def test_answers_before_an_overlong_line_are_sent(nsqd):
    with nsqd.connect() as client:
        with contextlib.suppress(Closed):
            client.send(wire.pub("overlong", b"1"), b"x" * MAX_LINE_BYTES)
        assert client.rest(CLOSES_S) == [OK]


# --- what looks wrong and is not


ONE = wire.pub("ok", b"1")
TWO_MESSAGES = [b"1", b"22"]
LIMITS_OF_IDENTIFY = (
    {"heartbeat_interval": 1000, "output_buffer_timeout": 25, "output_buffer_size": 64, "msg_timeout": 1000},
    {"heartbeat_interval": 60000, "output_buffer_timeout": 30000, "output_buffer_size": 65536},
    {"msg_timeout": 900000, "sample_rate": 99},
    {"heartbeat_interval": -1, "output_buffer_timeout": -1, "output_buffer_size": -1},
)
ACCEPTED: dict[str, tuple[bytes, list[Frame]]] = {
    "crlf": (ONE.replace(b"\n", b"\r\n"), [OK]),
    "NOP-crlf-and-words": (b"NOP\r\nNOP ignored words\n" + ONE, [OK]),
    "PUB-words": (command(b"PUB ok more words", b"1"), [OK]),
    "DPUB-empty-delay-is-0": (command(b"DPUB ok  ", b"1"), [OK]),
    "DPUB-longest-delay": (command(b"DPUB ok 3600000", b"1"), [OK]),
    "DPUB-leading-zeros": (command(b"DPUB ok 0000000000000000000001", b"1"), [OK]),
    "RDY-forms": (wire.sub("quiet", "c") + b"RDY\nRDY \nRDY 0\nRDY 2500\n" + CLS, [OK, CLOSE_WAIT]),
    # 2 ** 64 + 1 is read as 1.
    "RDY-wraps": (wire.sub("quiet", "d") + b"RDY 18446744073709551617\n" + CLS, [OK, CLOSE_WAIT]),
    "IDENTIFY-twice": (wire.identify() * 2, [OK, OK]),
    "IDENTIFY-words": (command(b"IDENTIFY words", b"{}"), [OK]),
    "IDENTIFY-null": (command(b"IDENTIFY", b"null"), [OK]),
    "IDENTIFY-unknown": (command(b"IDENTIFY", b' {"x": [1.5e3], "msg_timeout": null}\n'), [OK]),
    "IDENTIFY-compressions-not-negotiated": (wire.identify(deflate=True, snappy=True), [OK]),
    "IDENTIFY-at-the-limits": (b"".join(wire.identify(**fields) for fields in LIMITS_OF_IDENTIFY), [OK] * 4),
    "longest-names": (wire.pub("a" * 64, b"1") + wire.pub("a" * 54 + "#ephemeral", b"1"), [OK, OK]),
    "all-kinds-of-characters": (wire.pub(".-_09aZ", b"\x00\n\xff"), [OK]),
    # The messages count, not the declared size of the body.
    "MPUB-says-less": (wire.mpub("ok", TWO_MESSAGES, declared_bytes=1) + ONE, [OK, OK]),
    "MPUB-says-more": (wire.mpub("ok", TWO_MESSAGES, declared_bytes=MAX_BODY_BYTES) + ONE, [OK, OK]),
}


@ways
@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(nsqd, name, send):
    sent, replies = ACCEPTED[name]
    with nsqd.connect() as client:
        send(client, sent)
        assert [client.next_frame() for _ in replies] == replies
        client.end_input()
        assert client.rest(CLOSES_S) == []


@pytest.mark.parametrize("declared_bytes", [1, 10_000])
def test_mpub_with_a_wrong_declared_size_delivers_its_messages(nsqd, declared_bytes):
    topic = f"declared_{declared_bytes}"
    with nsqd.consumer(topic, "channel", 10) as client:
        client.send(wire.mpub(topic, [b"1", b"22", b"333"], declared_bytes), wire.pub(topic, b"4444"))
        frames = [client.next_frame() for _ in range(6)]
        assert [frame for frame in frames if frame.kind != wire.MESSAGE] == [OK, OK]
        messages = [wire.parse_message(frame.data) for frame in frames if frame.kind == wire.MESSAGE]
        assert sorted(wire.bodies(messages)) == [b"1", b"22", b"333", b"4444"]


def test_failed_mpub_publishes_nothing(nsqd):
    nsqd.create("half", "channel")
    with nsqd.connect() as client:
        client.send(command(b"MPUB half", 100, 2, b"first", 0))
        assert client.rest(CLOSES_S)[0].kind == ERROR
    assert nsqd.topic_stats("half")["message_count"] == 0


# --- random bytes

VERBS = b"PUB MPUB DPUB SUB RDY FIN REQ TOUCH CLS NOP AUTH IDENTIFY".split()
WORDS = [*VERBS, b"fuzz", b"fuzz#ephemeral", b"0", b"1", b"-1", b"2500", b"9" * 20, UNKNOWN_ID, b"", b"\xff"]
LINES = st.lists(st.sampled_from(WORDS), max_size=4).map(lambda words: b" ".join(words) + b"\n")
SIZES = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 100, 2**24, 2**31 - 1]).map(int32)
WELL_FORMED = st.sampled_from(
    [
        wire.pub("fuzz", b"body"),
        wire.mpub("fuzz", [b"1", b"22"]),
        wire.dpub("fuzz", 1, b"later"),
        wire.sub("fuzz", "fuzz"),
        wire.identify(msg_timeout=1000),
        wire.identify(feature_negotiation=True, heartbeat_interval=1000),
        wire.rdy(5),
        wire.fin(UNKNOWN_ID),
        CLS,
    ]
)
INPUT = st.lists(st.one_of(LINES, SIZES, WELL_FORMED, st.binary(max_size=200)), max_size=12).map(b"".join)


@settings(
    deadline=None,
    max_examples=examples(150),
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(magic=st.one_of(st.just(wire.MAGIC), st.just(wire.MAGIC), st.binary(max_size=6)), data=INPUT)
def test_random_input_is_answered_or_closed(nsqd, magic, data):
    with Client(nsqd.tcp_port, magic=magic) as client:
        with contextlib.suppress(Closed):
            client.send(data)
        client.end_input()
        frames = client.rest(CLOSES_S)
    assert {frame.kind for frame in frames} <= {wire.RESPONSE, ERROR, wire.MESSAGE}
    errors = list(itertools.dropwhile(lambda frame: not is_fatal(frame), frames))
    assert all(frame.kind == wire.MESSAGE for frame in errors[1:]), "an answer after a fatal error"
    assert nsqd.is_healthy()


def is_fatal(frame: Frame) -> bool:
    failed = (b"E_FIN_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED")
    return frame.kind == ERROR and not frame.data.startswith(failed)
