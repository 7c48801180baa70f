"""What becomes of a batch in nsq-to-nsq, with destinations in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsq_tools.hosts import HOSTPOOL, ROUND_ROBIN, HostBalancer, Timings
from nsq_tools.nsq_to_nsq.forwarder import (
    MAX_GROUP_BYTES,
    MAX_INCOMPLETE_ATTEMPTS,
    FilterResult,
    Forwarder,
    JsonFilter,
    PublishGroup,
)
from nsqd_py.client.errors import ConnectionLost, NoNsqd, NsqClientError, PublishFailed
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from tests.support.examples import examples

NO_RULES = JsonFilter("", "", ())
OnDone = Callable[[NsqClientError | None], object]
SILENT = Log("", FATAL)


@dataclass
class Batch:
    """Messages whose ids are their bodies' first letters; it keeps how each is answered, and allows one answer."""

    bodies: Sequence[bytes]
    attempt: int = 1
    answers: dict[bytes, str] = field(default_factory=dict)
    topic = "source"
    nsqd = "127.0.0.1:4150"

    @property
    def ids(self) -> list[bytes]:
        return [body[:1] for body in self.bodies]

    @property
    def attempts(self) -> list[int]:
        return [self.attempt] * len(self.bodies)

    def finish_some(self, ids: Collection[bytes]) -> None:
        self._answer(ids, "finished")

    def requeue(self, delay_s: float | None, ids: Collection[bytes], *, backoff: bool) -> None:
        assert (delay_s, backoff) == (None, True)
        self._answer(ids, "requeued")

    def _answer(self, ids: Collection[bytes], answer: str) -> None:
        assert not self.answers.keys() & set(ids)
        self.answers.update(dict.fromkeys(ids, answer))


class Destination:
    """Takes everything, until it is notified which error to answer, to whom."""

    def __init__(self) -> None:
        self.published: list[list[bytes]] = []
        self.topics: set[str] = set()
        self.error: NsqClientError | None = None
        self.dislikes: Collection[bytes] = ()
        self.hangs = self.is_closed = False
        self.unanswered: list[OnDone] = []

    def multi_publish_soon(self, topic: str, bodies: list[bytes], on_done: OnDone) -> None:
        self.topics.add(topic)
        if self.is_closed:
            raise NoNsqd("closed")
        if self.hangs:
            self.unanswered.append(on_done)
        elif self.error is not None and (not self.dislikes or set(self.dislikes) & set(bodies)):
            on_done(self.error)
        else:
            self.published.append(bodies)
            on_done(None)


class Setting:
    """A forwarder between batches and two destinations."""

    def __init__(self, rules: JsonFilter = NO_RULES, *, pool: bool = False, total: int = 100) -> None:
        self.a, self.b = Destination(), Destination()
        self.now_s = 0.0
        names = ("a", "b")
        self.forwarder = Forwarder(
            {"a": self.a, "b": self.b},
            HostBalancer(HOSTPOOL if pool else ROUND_ROBIN, names, total, Random()),
            rules,
            Timings(names, 0, SILENT),
            SILENT,
            lambda: self.now_s,
        )

    def forward(self, *bodies: bytes, attempt: int = 1) -> dict[bytes, str]:
        """How each was answered, by its first letter."""
        batch: Any = Batch(bodies, attempt)
        self.forwarder.handle("t", batch)
        assert self.forwarder.second_tries.join(40)
        answers: dict[bytes, str] = batch.answers
        return answers


FINISHED = {b"1": "finished", b"2": "finished", b"3": "finished"}
REQUEUED = dict.fromkeys(FINISHED, "requeued")
LOST = ConnectionLost("a", "gone")
BAD = PublishFailed("a", "E_BAD_MESSAGE", "MPUB message too big")


@pytest.fixture
def setting() -> Setting:
    return Setting()


# ---- the good case


def test_a_batch_is_shared_out_and_finished(setting: Setting) -> None:
    assert setting.forward(b"1", b"2", b"3") == FINISHED
    assert (setting.a.published, setting.b.published) == ([[b"1", b"2"]], [[b"3"]])
    assert setting.a.topics == {"t"}


def test_nothing_is_finished_before_it_is_stored(setting: Setting) -> None:
    setting.a.hangs = True
    batch: Any = Batch([b"1", b"2", b"3"])
    setting.forwarder.handle("t", batch)
    assert batch.answers == {b"3": "finished"}
    setting.a.unanswered.pop()(None)
    assert batch.answers == FINISHED


def test_a_message_that_is_in_a_batch_twice_is_sent_once(setting: Setting) -> None:
    assert setting.forward(b"1", b"1") == {b"1": "finished"}
    assert setting.a.published + setting.b.published == [[b"1"]]


# ---- what goes wrong


def test_what_one_does_not_store_goes_to_the_other(setting: Setting) -> None:
    setting.a.error = LOST
    assert setting.forward(b"1", b"2", b"3") == FINISHED
    assert sorted(setting.b.published) == [[b"1", b"2"], [b"3"]]


def test_what_none_stores_is_requeued(setting: Setting) -> None:
    setting.a.error = setting.b.error = LOST
    assert setting.forward(b"1", b"2", b"3") == REQUEUED


def test_what_one_does_not_even_begin_to_send_goes_to_the_other(setting: Setting) -> None:
    setting.a.is_closed = True
    assert setting.forward(b"1", b"2", b"3") == FINISHED
    assert setting.a.published == []


def test_only_the_message_that_is_refused_is_requeued(setting: Setting) -> None:
    setting.a.error, setting.a.dislikes = BAD, {b"3"}
    assert setting.forward(*(b"%d" % number for number in range(1, 9))) == {
        b"%d" % number: "requeued" if number == 3 else "finished" for number in range(1, 9)
    }
    assert sorted(body for bodies in setting.a.published for body in bodies) == [b"1", b"2", b"4"]


def test_a_destination_that_refuses_a_message_is_no_bad_destination() -> None:
    setting = Setting(pool=True)
    setting.a.error, setting.a.dislikes = BAD, {b"1"}
    assert setting.forward(b"1", b"2") == {b"1": "requeued", b"2": "finished"}
    assert setting.forward(b"3", b"4") == {b"3": "finished", b"4": "finished"}
    assert setting.a.published == [[b"3"]]


def test_a_destination_that_fails_gets_nothing_for_a_while() -> None:
    setting = Setting(pool=True)
    setting.a.error = LOST
    setting.forward(b"1", b"2", b"3")
    setting.a.error = None
    setting.now_s = 1.0
    setting.forward(b"1", b"2", b"3")
    assert setting.a.published == []
    setting.now_s = 31.0
    setting.forward(b"1", b"2", b"3")
    # One, to see; the others of the batch could not wait for what comes of it.
    assert setting.a.published == [[b"1"]]


def test_what_finds_no_second_destination_is_requeued_and_not_forgotten() -> None:
    """The only other one is due for a try, with one message."""
    setting = Setting(pool=True)
    setting.b.error = LOST
    setting.forward(b"1", b"2")
    setting.now_s = 31.0
    setting.a.hangs = True
    batch: Any = Batch([b"1", b"2", b"3", b"4"])
    setting.forwarder.handle("t", batch)
    setting.b.error = None
    setting.now_s = 100.0
    for on_done in setting.a.unanswered:
        on_done(LOST)
    assert setting.forwarder.second_tries.join(40)
    assert len(batch.answers) == 4
    assert "requeued" in batch.answers.values()


def test_at_the_end_nothing_is_tried_again(setting: Setting) -> None:
    setting.a.error = LOST
    setting.forwarder.stop_retrying()
    assert setting.forward(b"1", b"2", b"3") == {b"1": "requeued", b"2": "requeued", b"3": "finished"}


# ---- filters


def test_what_does_not_pass_is_finished_and_not_sent() -> None:
    setting = Setting(JsonFilter("a", "1", ("b",)))
    passes, fails, unreadable = b'{"a":1,"b":2,"c":3}', b' {"a":2}', b"x"
    assert set(setting.forward(passes, fails, unreadable).values()) == {"finished"}
    assert setting.a.published == [[b'{"b":2}']]
    assert setting.b.published == []


def test_what_lacks_the_field_to_compare_is_requeued_some_times_and_then_finished() -> None:
    setting = Setting(JsonFilter("a", "1", ()))
    assert setting.forward(b"{}", attempt=MAX_INCOMPLETE_ATTEMPTS) == {b"{": "requeued"}
    assert setting.forward(b"{}", attempt=MAX_INCOMPLETE_ATTEMPTS + 1) == {b"{": "finished"}
    assert setting.a.published == setting.b.published == []


# ---- portions


def sizes(*bodies: bytes) -> list[int]:
    batch: Any = None
    group = PublishGroup(batch, "t", [b"%d" % number for number in range(len(bodies))], bodies, 0.0)
    parts = list(group.publishable())
    assert [message_id for part in parts for message_id in part.ids] == list(group.ids)
    assert [body for part in parts for body in part.bodies] == list(bodies)
    return list(map(len, parts))


def test_portions_are_cut_where_they_would_be_too_large() -> None:
    half = bytes(MAX_GROUP_BYTES // 2)
    assert sizes(b"x") == [1]
    assert sizes(half, half) == [2]
    assert sizes(half, half, b"x") == [2, 1]
    assert sizes(half + b"x", half, half) == [1, 2]
    assert sizes(bytes(2 * MAX_GROUP_BYTES)) == [1]
    assert sizes(b"x", bytes(2 * MAX_GROUP_BYTES), b"x") == [1, 1, 1]


# ---- which JSON messages nsq-to-nsq passes on, and which of their fields

PASS, DROP, UNREADABLE, INCOMPLETE = (
    FilterResult.PASS,
    FilterResult.DROP,
    FilterResult.UNREADABLE,
    FilterResult.INCOMPLETE,
)


def verdict(body: bytes, field: str = "", value: str = "", allowed: tuple[str, ...] = ()) -> FilterResult:
    return JsonFilter(field, value, allowed).judge(body)[0]


def allowed_part(body: bytes, *allowed: str) -> bytes:
    verdict, passed = JsonFilter("", "", allowed).judge(body)
    assert verdict is PASS
    return passed


# ---- what is required


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a":1}', PASS),
        (b'{"a":null}', PASS),
        (b' {"b":{"a":1}} ', DROP),
        (b'{"A":1}', DROP),
        (b"{}", DROP),
        (b"null", DROP),
        (b"[1]", UNREADABLE),
        (b'"a"', UNREADABLE),
        (b"7", UNREADABLE),
        (b"", UNREADABLE),
        (b'{"a":1', UNREADABLE),
        (b'{"a":1}{}', UNREADABLE),
        (b'{"a":NaN}', UNREADABLE),
        (b'{"a":1e999}', UNREADABLE),
        (b'{"a":"\n"}', UNREADABLE),
        (b'\xef\xbb\xbf{"a":1}', UNREADABLE),
        (b'{"a":' + b"[" * 100_000, UNREADABLE),
    ],
)
def test_a_field_is_required(body: bytes, expected: FilterResult) -> None:
    assert verdict(body, "a") is expected


@pytest.mark.parametrize(
    ("value", "required", "expected"),
    [
        ("1", "1", PASS),
        ("1.0", "1", PASS),
        ("1e2", "100", PASS),
        ("100", "1e2", PASS),
        ('"1"', "1", PASS),
        ('"1.0"', "1", DROP),
        ('"x"', "x", PASS),
        ('"\\u0078"', "x", PASS),
        ('"X"', "x", DROP),
        ("1", "x", DROP),
        ("2", "1", DROP),
        # As floating-point numbers, these are the same.
        ("9007199254740993", "9007199254740992", PASS),
        ("1", "inf", DROP),
        ("1", " 1", DROP),
        ("10", "1_0", PASS),
        ("1", "_1", DROP),
        # Nothing equals these.
        ("true", "true", DROP),
        ("true", "1", DROP),
        ("null", "null", DROP),
        ("[1]", "1", DROP),
        ('{"a":1}', "1", DROP),
    ],
)
def test_a_value_is_required(value: str, required: str, expected: FilterResult) -> None:
    assert verdict(b'{"a":%b}' % value.encode(), "a", required) is expected


def test_where_a_value_is_required_the_field_has_to_be_there() -> None:
    assert verdict(b'{"b":1}', "a", "1") is INCOMPLETE
    assert verdict(b"null", "a", "1") is INCOMPLETE


def test_the_last_of_a_name_counts() -> None:
    assert verdict(b'{"a":1,"a":2}', "a", "2") is PASS


def test_a_body_that_passes_whole_stays_as_it_is() -> None:
    body = b' { "a" : 1.50 , "b":"\\u00e9" } '
    assert JsonFilter("a", "1.5", ()).judge(body) == (PASS, body)


def test_without_rules_there_is_no_filter() -> None:
    assert not JsonFilter("", "", ()).is_on
    # As in Go, a value alone asks for nothing; the command line refuses it.
    assert not JsonFilter("", "1", ()).is_on
    assert JsonFilter("a", "", ()).is_on
    assert JsonFilter("", "", ("a",)).is_on


# ---- the allow-list


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"b":2,"a":1,"c":3}', b'{"a":1,"b":2}'),
        (b'{"c":3}', b"{}"),
        (b"null", b"{}"),
        (b'{"a": [1, {"z": 1, "y": 2}]}', b'{"a":[1,{"y":2,"z":1}]}'),
        (b'{"a":"\\u00e9\\n\\u0001"}', b'{"a":"\xc3\xa9\\n\\u0001"}'),
        # Ours keeps what Go rounds to a floating-point number.
        (b'{"a":9007199254740993}', b'{"a":9007199254740993}'),
        # No UTF-8, half a pair of surrogates: as Go reads it.
        (b'{"a":"x\xffy"}', b'{"a":"x\xef\xbf\xbdy"}'),
        (b'{"a":"x\\ud800y"}', b'{"a":"x?y"}'),
        (b'{"a":"\\ud83d\\ude00\xff"}', b'{"a":"\xf0\x9f\x98\x80\xef\xbf\xbd"}'),
    ],
)
def test_only_allowed_fields_pass(body: bytes, expected: bytes) -> None:
    assert allowed_part(body, "a", "b") == expected


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(max_examples=examples(50))
@given(st.dictionaries(st.sampled_from("abcd"), JSON_VALUES), st.sets(st.sampled_from("abcde")))
def test_what_passes_has_its_value(document: dict[str, object], allowed: set[str]) -> None:
    body = json.dumps(document).encode("utf-8")
    verdict, passed = JsonFilter("", "", sorted(allowed) or ("z",)).judge(body)
    assert verdict is PASS
    assert json.loads(passed) == {name: value for name, value in document.items() if name in allowed}
