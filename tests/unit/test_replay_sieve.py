"""Which bodies are left out before Spark SQL sees them. `tests/spark/test_where.py` shows that none of them matches."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from nsq_spark.replay.sieve import Sieve, sieve_of


@pytest.mark.parametrize(
    ("where", "sets"),
    [
        ("json.level = 'error'", [{"error"}]),
        ("'error' == json.level", [{"error"}]),
        ("(json.level = 'error')", [{"error"}]),
        ("json.level IN ('error', 'fatal') AND json.n > 3", [{"error", "fatal"}]),
        ("json.a = 'one' AND topic = 'x' AND (json.b = 'two' AND json.c[0] = \"six\")", [{"one"}, {"two"}, {"six"}]),
        ("json.a = 'one' OR json.b = 'two' OR json.c IN ('three', 'four')", [{"one", "two", "three", "four"}]),
        ("json.a = 'one' AND (json.b = 'two' OR json.c = 'three')", [{"one"}, {"two", "three"}]),
        # Not decided by the bytes alone:
        ("json.a = 'one' OR json.n = 3", []),
        ("json.a = 'one' OR NOT json.b = 'two'", []),
        ("NOT json.a = 'one'", []),
        ("NOT (json.a = 'one')", []),
        ("json.a <> 'one'", []),
        ("lower(json.a) = 'one'", []),
        ("json.a NOT IN ('one')", []),
        ("json.a IN ('one', json.b)", []),
        ("json.a = 'one' = json.b", []),
        ("json.a = 'one' 'two'", []),
        ("json.a = 'one' COLLATE UNICODE_CI", []),
        ("json.a = r'one'", []),
        ("json.x BETWEEN json.b AND json.a = 'one'", []),
        ("json.x BETWEEN 'a' AND 'b' AND json.a = 'one'", []),
        ("CASE WHEN json.b AND json.a = 'one' AND json.c THEN json.d END", []),
        # Perhaps written in another way in the body:
        ("json.a = '100.0'", []),
        ("json.a = '1E5'", []),
        ("json.a = 'Infinity'", []),
        ("json.a = 'Ünï'", []),
        ("json.a = '[\"one\"]'", []),
        (r"json.a = 'o\u006ee'", []),
        ("json.a = 'it''s'", []),
        ("json.a = ''", []),
        ("json.a = ' one'", []),
        ("json.a IN ('one', '2')", []),
        ("topic = 'orders'", []),
    ],
)  # fmt: skip
def test_what_a_body_has_to_contain(where: str, sets: list[set[str]]) -> None:
    found = sieve_of(where).sets
    assert [{text.decode() for text in texts} for texts in found] == sets


def test_no_sieve_where_the_user_says_the_types() -> None:
    assert sieve_of("json.a = 'one'", "a STRING") == Sieve()
    assert sieve_of(None) == Sieve()


def test_bodies_that_are_left() -> None:
    bodies = [b'{"a":"one"}', b'{"a":"two"}', rb'{"a":"\u006fne"}', b"", b'{"b":"one"}', b'{"a":"One"}']
    rows = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary()), "n": range(6)})
    assert sieve_of("json.a = 'one'").left(rows).column("n").to_pylist() == [0, 2, 4]
    either = sieve_of("json.a = 'two' OR json.a = 'one'")
    assert either.left(rows.slice(1)).column("n").to_pylist() == [1, 2, 4]
    assert sieve_of("json.a = 'one' AND json.b = 'two'").left(rows).column("n").to_pylist() == [2]
    assert Sieve().left(rows) is rows
    empty = rows.slice(3, 1)
    assert sieve_of("json.a = 'one'").left(empty).num_rows == 0
