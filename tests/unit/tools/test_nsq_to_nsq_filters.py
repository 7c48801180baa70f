"""Which JSON messages nsq-to-nsq passes on, and which of their fields."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsq_tools.nsq_to_nsq.forwarder import FilterResult, JsonFilter
from tests.support.examples import examples

PASS, DROP, UNREADABLE, INCOMPLETE = FilterResult.PASS, FilterResult.DROP, FilterResult.UNREADABLE, FilterResult.INCOMPLETE


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
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(allow_nan=False, allow_infinity=False),
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
