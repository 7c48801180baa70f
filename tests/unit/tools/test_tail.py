"""The pure parts of nsq-tail: paths, JSON, escaping, templates, and what they make of messages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_apps.nsq_tail import main
from nsq_tools.tail import json_text
from nsq_tools.tail.json_text import Path, in_line, parse_path, pick
from nsq_tools.tail.rendering import MessageLimit, Renderer, compile_search, for_terminal, for_terminal_line
from nsq_tools.tail.template import Template, iso_times

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
def test_a_path_is_read_as_jq_reads_it(text: str, path: Path) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["", "a", "..", ".a.", ".a[", ".a[x]", '.["a]', "[0]", ".a b", ".a[]", '["\\q"]'])
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
    assert pick(DOCUMENT, parse_path(path)) == value


def test_a_picked_value_stays_in_its_line_and_column() -> None:
    assert in_line("a\tb\nc\\d") == rb"a\tb\nc\\d"
    assert in_line({"a": [1, None]}) == b'{"a":[1,null]}'
    assert in_line(True) == b"true"
    assert in_line(None) == b"null"


# --- JSON


def test_json_is_laid_out_as_jq_does() -> None:
    body = b'{"a":[1,{"b":{}}],"c":[],"d":"x,{y}"}'
    assert json_text.pretty(body).decode() == json.dumps(json.loads(body), indent=2)


def test_numbers_and_texts_stay_as_they_came() -> None:
    body = b'{ "n" : 12345678901234567890123 , "f":1.10, "e":1E400,\n"s":"\\u0041\\/" , "n":1}'
    assert json_text.compact(body) == b'{"n":12345678901234567890123,"f":1.10,"e":1E400,"s":"\\u0041\\/","n":1}'


def test_each_kind_of_token_has_its_colour() -> None:
    body = b'{"k":["t",1,true]}'
    colours = re.findall(rb"\x1b\[([\d;]+)m([^\x1b]+)\x1b\[0m", json_text.pretty(body, json_text.coloured))
    assert colours == [(json_text.KEY, b'"k"'), (json_text.TEXT, b'"t"'), (json_text.NUMBER, b"1"), (json_text.WORD, b"true")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(JSON, st.sampled_from([None, 1]))
def test_laying_out_changes_space_alone(document: Any, indent: int | None) -> None:
    body = json.dumps(document, ensure_ascii=False, indent=indent).encode("utf-8", "surrogatepass")
    if json_text.is_json(body):
        assert json_text.pretty(body).decode() == json.dumps(document, ensure_ascii=False, indent=2)
        assert json_text.compact(body).decode() == json.dumps(document, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("body", [b"", b"plain", b"{", b'{"a":1} {"a":2}', b"\xff", b"NaN", b"[" * 5000])
def test_what_is_no_document_is_told_so(body: bytes) -> None:
    assert not json_text.is_json(body)


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


# --- templates


def test_a_template_is_filled_in_for_each_message() -> None:
    template = Template(r"{topic}\t{body}|{topic} 100% {{x}} \x41 %b ü\\")
    assert template.fields == ["topic", "body", "topic"]
    topics, bodies = [b"t", b"t"], [b"one", b"%s\xff"]
    assert template.lines([topics, bodies, topics]) == [
        "t\tone|t 100% {x} A %b ü\\".encode(),
        b"t\t%s" + b"\xff" + "|t 100% {x} A %b ü\\".encode(),
    ]


def test_a_template_without_fields_is_a_line_all_the_same() -> None:
    assert shown(b"one", b"two", template=Template("100% tick")) == b"100% tick\n100% tick\n"


@pytest.mark.parametrize("text", ["{nobody}", "{", "}", "{body", "body}", "{}", "{body }"])
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"there is no|a lone"):
        Template(text)


def test_times_are_in_utc_to_the_nanosecond() -> None:
    assert iso_times([1_700_000_000_000_000_001, 1_700_000_000_999_999_999, 0, -1]) == [
        b"2023-11-14T22:13:20.000000001Z",
        b"2023-11-14T22:13:20.999999999Z",
        b"1970-01-01T00:00:00.000000000Z",
        b"1969-12-31T23:59:59.999999999Z",
    ]


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


@pytest.mark.parametrize("pattern", ["(", "[a", "a**", r"(?=x)"])
def test_what_is_no_expression_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError):
        compile_search(pattern)


# --- how many are shown


def test_without_a_number_all_are_shown() -> None:
    allowance = MessageLimit(0)
    assert allowance.take([0, 2], count=3) == ([0, 2], 3)
    assert not allowance.is_over


def test_what_comes_after_the_last_is_not_seen() -> None:
    allowance = MessageLimit(3)
    assert allowance.take([1, 2], count=5) == ([1, 2], 5)
    assert allowance.take([1, 3], count=5) == ([1], 2)
    assert allowance.is_over
    assert allowance.take([0, 1], count=2) == ([], 0)


def test_a_batch_without_a_match_is_seen_whole() -> None:
    allowance = MessageLimit(1)
    assert allowance.take([], count=5) == ([], 5)
    assert not allowance.is_over


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


def shown(*bodies: bytes, indexes: list[int] | None = None, **settings: Any) -> bytes:
    messages = Messages(list(bodies))
    renderer = Renderer(**settings)
    return renderer.render(messages, renderer.matching(messages.bodies) if indexes is None else indexes)


def test_in_a_pipe_bodies_are_as_they_came() -> None:
    assert shown(b"one", b"\x1b\x00\xff", b"", b"a\nb") == b"one\n\x1b\x00\xff\n\na\nb\n"


def test_the_topic_stands_before_each_message() -> None:
    assert shown(b"one", b"two", print_topic=True) == b"orders | one\norders | two\n"


def test_only_matching_messages_are_shown() -> None:
    assert shown(b"one", b"two", b"three", search=compile_search("t")) == b"two\nthree\n"
    assert shown(b"one", search=compile_search("t")) == b""


def test_a_template_has_all_that_is_known_of_a_message() -> None:
    template = Template("{timestamp} {timestamp_ns} {id} {attempts} {topic} {channel} {nsqd} {body}")
    expected = b"1970-01-01T00:00:01.000000000Z 1000000000 0000000000000001 2 orders tail 127.0.0.1:4150 two\n"
    assert shown(b"one", b"two", indexes=[1], template=template) == expected


def test_picked_values_stand_in_columns() -> None:
    picks = [parse_path(".a"), parse_path(".b[0]")]
    assert shown(b'{"a":"x y","b":[1]}', b'{"b":[{"c":2}]}', picks=picks) == b'x y\t1\nnull\t{"c":2}\n'


def test_bodies_that_are_no_json_are_counted() -> None:
    renderer = Renderer(picks=[parse_path(".a")])
    assert renderer.render(Messages([b"x", b'{"a":1}']), [0, 1]) == b"null\n1\n"
    assert renderer.not_json_count == 1


def test_an_id_of_a_hostile_nsqd_does_not_control_the_terminal() -> None:
    messages = Messages([b"x"])
    messages.ids = [b"\x1b[2J\x07\xc2\x9b\n"]
    template = Template("{id} {body}")
    assert Renderer(template=template, is_terminal=True).render(messages, [0]) == b"\\x1b[2J\\x07\\u009b\\n x\n"
    assert Renderer(template=template).render(messages, [0]) == b"\x1b[2J\x07\xc2\x9b\n x\n"


def test_json_is_one_line_in_a_pipe_and_many_on_a_terminal() -> None:
    body = b'{"a":\n 1}'
    assert shown(body, b"no json", as_json=True) == b'{"a":1}\nno json\n'
    assert shown(body, as_json=True, is_terminal=True) == b'{\n  "a": 1\n}\n'
    assert b"\x1b[" in shown(body, as_json=True, is_terminal=True, has_colour=True)


def test_what_is_picked_may_be_laid_out() -> None:
    picks = [parse_path(".a")]
    assert shown(b'{"a":{"b":"x"}}', picks=picks, as_json=True) == b'{"b":"x"}\n'
    assert shown(b'{"a":1,"b":2}', picks=[*picks, parse_path(".b")], as_json=True) == b"[1,2]\n"


EVIL = b"\x1b]0;owned\x07"
EVIL_JSON = '{"a":"\x9b\\u001b]0;owned","b\x7f":1}'.encode()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"print_topic": True},
        {"as_json": True},
        {"as_json": True, "picks": [("a",)]},
        {"picks": [("a",)]},
        {"template": Template("{body}")},
    ],
)
@pytest.mark.parametrize("body", [EVIL, EVIL_JSON])
def test_whatever_is_shown_does_not_steer_the_terminal(body: bytes, settings: dict[str, Any]) -> None:
    text = shown(body, is_terminal=True, **settings).decode()
    assert not [c for c in text if c != "\n" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0)], text


# --- how it is used


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--topic=t"], "--nsqd-tcp-address or --lookupd-http-address required"),
        (["--nsqd-tcp-address=h:1", "--lookupd-http-address=h:2"], "use --nsqd-tcp-address or --lookupd-http-address"),
        (["--nsqd-tcp-address=h:1"], "--topic required"),
        (["--nsqd-tcp-address=h:1", "--topic=t", "--grep=("], "--grep: "),
        (["--nsqd-tcp-address=h:1", "--topic=t", "--pick=a"], "--pick: 'a' is not a path"),
        (["--nsqd-tcp-address=h:1", "--topic=t", "--format={nobody}"], "--format: there is no {nobody}"),
        (["--nsqd-tcp-address=h:1", "--topic=t", "--channel=a b"], "--channel 'a b' is not a valid name"),
        (["--nsqd-tcp-address=h:1", "--topic=t", "--consumer-opt=nothing,1"], "--consumer-opt: "),
        (["--nsqd-tcp-address=nowhere", "--topic=t"], '--nsqd-tcp-address: "nowhere" has no port'),
    ],
)
def test_a_wrong_command_line_is_refused(flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"nsq-tail: {complaint}")
    assert (out, err.count("\n")) == ("", 1)
