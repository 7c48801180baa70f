"""The pure parts of nsq-tail: paths, escaping, and what they make of messages."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_tools.tail.program import PROGRAM
from nsq_tools.tail.rendering import (
    MessageLimit,
    Renderer,
    compile_search,
    for_terminal,
    for_terminal_line,
    in_line,
    parse_path,
)
from nsqd_py.settings.regex import values_at

# --- paths


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (".", ()),
        (".a", ("a",)),
        (".a.b_1.$c", ("a", "b_1", "$c")),
        (".a[0].b[-1]", ("a", 0, "b", -1)),
        (".[3]", (3,)),
        ('.["a key"].b["x\\"y"]', ("a key", "b", 'x"y')),
        (".a.[0]", ("a", 0)),
        (".a-b", ("a-b",)),
    ],
)
def test_a_path_is_read_as_jq_reads_it(text: str, path: tuple[object, ...]) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize(
    "text", ["", "a", "..", ".a.", ".a[", ".a[x]", '.["a]', "[0]", ".a b", ".a[]", '["\\q"]']
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a path|is not a JSON string"):
        parse_path(text)


DOCUMENT = {"user": {"name": "Ann", "tags": ["a", "b"]}, "": 1, "n": None}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".user.name", "Ann"),
        (".user.tags[-1]", "b"),
        ('.[""]', 1),
        (".", DOCUMENT),
        (".user.tags[2]", None),
        (".user.name.first", None),
        (".user.name[0]", None),
        (".user[0]", None),
        (".nobody.name", None),
        (".n.a", None),
    ],
)
def test_a_path_leads_to_a_value_or_to_none(path: str, value: Any) -> None:
    assert next(iter(values_at(DOCUMENT, parse_path(path))), None) == value


def test_a_picked_value_stays_in_its_line_and_column() -> None:
    assert in_line("a\tb\nc\\d") == rb"a\tb\nc\\d"
    assert in_line({"a": [1, None]}) == b'{"a":[1,null]}'
    assert in_line(True) == b"true"
    assert in_line(None) == b"null"


# --- terminals


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"plain text\twith\ntwo lines", b"plain text\twith\ntwo lines"),
        ("süß 漢字 🙂".encode(), "süß 漢字 🙂".encode()),
        (b"\x1b[2Jgone", rb"\x1b[2Jgone"),
        (b"first\rsecond\x08\x07\x00\x7f", rb"first\x0dsecond\x08\x07\x00\x7f"),
        ("\x9b31m".encode(), rb"\u009b31m"),  # CSI in one character
        (b"\x9b31m \xff", rb"\x9b31m \xff"),  # and in one byte
        ("safe\u202egpj.exe".encode(), rb"safe\u202egpj.exe"),
    ],
)
def test_a_body_does_not_steer_the_terminal(body: bytes, shown: bytes) -> None:
    assert for_terminal(body) == shown


def test_in_a_line_ends_of_lines_are_shown_too() -> None:
    assert for_terminal_line(b"a\nb\tc\x1b") == rb"a\nb\tc\x1b"


@given(st.binary(max_size=200))
def test_nothing_but_line_feeds_and_tabs_is_left_to_obey(body: bytes) -> None:
    text = for_terminal(body).decode()
    assert not [c for c in text if c not in "\n\t" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0)]


# --- searches


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("error", b"an error here", b"an Error"),
        ("(?i)error", b"an Error", b"none"),
        ("^a.c$", b"abc", b"abcd"),
        ("ü", "für".encode(), b"fur"),
        ('"status": ?5..', b'{"status":503}', b'{"status":403}'),
    ],
)
def test_a_body_is_searched_with_re2(pattern: str, found: bytes, not_found: bytes) -> None:
    search = compile_search(pattern)
    assert search(found)
    assert not search(not_found)


# --- how many are shown


def test_what_comes_after_the_last_is_not_seen() -> None:
    allowance = MessageLimit(3)
    assert allowance.take([1, 2], count=5) == ([1, 2], 5)
    assert allowance.take([1, 3], count=5) == ([1], 2)
    assert allowance.is_over
    assert allowance.take([0, 1], count=2) == ([], 0)


# --- all together


@dataclass
class Messages:
    bodies: list[bytes]
    topic: str = "orders"
    channel: str = "tail"
    nsqd: str = "127.0.0.1:4150"
    ids: list[bytes] = field(default_factory=list)
    timestamps_ns: list[int] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.bodies)
        self.ids = [b"%016x" % number for number in range(count)]
        self.timestamps_ns = [number * 1_000_000_000 for number in range(count)]
        self.attempts = list(range(1, count + 1))

    def __len__(self) -> int:
        return len(self.bodies)


def renderer_of(on_terminal: bool = False, **settings: Any) -> Renderer:
    return Renderer(PROGRAM.defaults(**settings), on_terminal)


def shown(*bodies: bytes, **settings: Any) -> bytes:
    messages = Messages(list(bodies))
    renderer = renderer_of(**settings)
    return renderer.render(messages, renderer.matching(messages.bodies))


def test_an_object_has_everything_about_a_message_and_does_not_control_the_terminal() -> None:
    messages = Messages([b"one", b"two"])
    messages.ids[1] = b"\x1b[2J\xc2\x9b\n"
    line = renderer_of(True, jsonl=True).render(messages, [1])
    assert not set(line[:-1]) & {0x1B, 0x0A, 0x9B}
    expected = {
        "timestamp": 10**9,
        "attempts": 2,
        "topic": "orders",
        "channel": "tail",
        "nsqd": "127.0.0.1:4150",
        "body": "two",
    }
    assert json.loads(line).items() > expected.items()


def test_picked_values_stand_in_columns() -> None:
    assert (
        shown(b'{"a":"x y","b":[1]}', b'{"b":[{"c":2}]}', pick=(".a", ".b[0]")) == b'x y\t1\nnull\t{"c":2}\n'
    )


def test_bodies_that_are_no_json_are_counted() -> None:
    renderer = renderer_of(pick=(".a",))
    assert renderer.render(Messages([b"x", b'{"a":1}']), [0, 1]) == b"null\n1\n"
    assert renderer.not_json_count == 1


EVIL = b"\x1b]0;owned\x07"
EVIL_JSON = '{"a":"\x9b\\u001b]0;owned","b\x7f":1}'.encode()


@pytest.mark.parametrize("settings", [{}, {"print_topic": True}, {"jsonl": True}, {"pick": (".a",)}])
@pytest.mark.parametrize("body", [EVIL, EVIL_JSON])
def test_whatever_is_shown_does_not_steer_the_terminal(body: bytes, settings: dict[str, Any]) -> None:
    text = shown(body, on_terminal=True, **settings).decode()
    assert not [c for c in text if c != "\n" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0)], text
