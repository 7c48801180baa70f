"""The envelope: what is wrapped is unwrapped, and nothing that anybody publishes makes it raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.otel.envelope import MAGIC, unwrap, wrap

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_its_bytes_are_those_of_the_page() -> None:
    assert wrap(b"body", {"traceparent": TRACEPARENT}) == (
        b"\x89NSQCTX\x01\x00\x44traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01body"
    )


@given(st.binary())
def test_bytes_behind_the_magic_never_raise(rest: bytes) -> None:
    body, found = unwrap(MAGIC + rest)
    assert (MAGIC + rest).endswith(body)
    assert found == {} or wrap(body, found) == MAGIC + rest


@pytest.mark.parametrize(
    "data",
    [
        MAGIC,
        MAGIC + b"\x00",
        MAGIC + b"\x00\x05abc",
        MAGIC + b"\x00\x03abcbody",
        MAGIC + b"\x00\x05A: b\nbody",
        MAGIC + b"\x00\x09a: b\na: cbody",
        MAGIC + b"\x00\x05a: \xff\xffbody",
        MAGIC[:-1] + b"\x02\x00\x04a: bbody",
    ],
    ids=["magic", "half a size", "short", "no colon", "upper case", "twice", "not ASCII", "another version"],
)
def test_a_damaged_envelope_is_passed_as_it_is(data: bytes) -> None:
    assert unwrap(data) == (data, {})


@pytest.mark.parametrize(
    "bad", [{"Name": "a"}, {"": "a"}, {"a": "line\nbreak"}, {"a": "ü"}, {"a": "x" * 65_533}], ids=str
)
def test_headers_that_cannot_be_read_are_not_written(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        wrap(b"body", bad)
