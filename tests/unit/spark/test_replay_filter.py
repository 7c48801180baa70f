"""Predicates that Python evaluates. `tests/spark/test_where.py` shows that Spark SQL gives the same results."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa

from nsq_spark.archive.chunk import Chunk, Origin
from nsq_spark.archive.payload import Payload
from nsq_spark.replay.filter import filter_of, needs_spark

BODIES = [b'{"a":"one","n":1}', b'{"a":"two","n":2.5}', b'{"a":null}', b"no JSON", b'{"a":true,"n":"3"}', b'{"n":NaN}']


def chosen(where: str) -> list[int]:
    found = filter_of(where)
    assert found is not None
    payload = Payload.of_array(pa.array(BODIES, pa.binary()))
    return [int(place) for place in np.flatnonzero(found.mask(Chunk(Origin("x", None, ""), np.arange(6), payload)))]


@pytest.mark.parametrize(
    ("where", "positions"),
    [
        ("json.a = 'one'", [0]),
        ("json.a <> 'one'", [1, 4]),
        ("NOT json.a = 'one'", [1, 4]),
        ("json.a IN ('one', 'true')", [0, 4]),
        ("json.a IS NULL", [2, 3, 5]),
        ("json.n < 2", [0]),
        ("2 < json.n", [1, 5]),
        ("json.n NOT BETWEEN 0 AND 2", [1, 5]),
        ("json.a = 'two' OR json.n = 1", [0, 1]),
        ("json.a = 'two' AND json.n > -1.5e1", [1]),
        # Null OR true is true, and null AND false is false.
        ("json.n > 0 OR json.a IS NULL", [0, 1, 2, 3, 5]),
        ("NOT (json.n > 2 AND json.a = 'one')", [0, 1, 4]),
        ("json.a", [4]),
        ("! json.a OR `topic` = 'y' OR (json.n) = (1)", [0]),
        ("NOT json.n NOT IN (1, 7)", [0]),
        ("topic = 'x' AND json.a.b IS NULL AND json.n = 1", [0]),
        ("topic = 'y'", []),
        ("attempts > 1", []),
        ("json.n % 2 = 1", [0]),
        ("abs(json.n - 2) <= json.n * 3", [0, 1, 5]),
        ("json.n / 0 = 1 OR json.n + 1 IN (2, 9)", [0]),
    ],
)
def test_messages_for_which_it_is_true_are_chosen(where: str, positions: list[int]) -> None:
    assert chosen(where) == positions


@pytest.mark.parametrize(
    "where",
    [
        # Written in several ways in JSON, or not by this rule.
        "json.a = '5'",
        "json.a = 'NaN'",
        "json.a = ''",
        "json.a = 'Ünï'",
        r"json.a = 'o\u006ee'",
        "json.a = 'it''s'",
        "json.a < 'b'",
        "json.a <=> 6",
        "json.a = NULL",
        "json.a LIKE 'x%'",
        "json.a = json.b",
        "json.tags[0] = 'a'",
        "json.a = r'one'",
        "json.a = 'one' 'two'",
        "json.a = 'one' COLLATE UNICODE_CI",
        "json.a IN ('one', 5)",
        "json.a IN (SELECT 'one')",
        "json.n = 1234567890123456",
        "json.n = 5L",
        "json.n = 5 = true",
        "json.n + 1 = '6'",
        "json.n BETWEEN 'a' AND 'b'",
        "sqrt(json.n) > 6",
        "json.n > 2 * 3",
        "json.n + 5L = 6",
        "json.n DIV 2 = 1",
        "attempts % 2 = 0",
        "json.n & 1 = 0",
        "abs(json.n) <=> 6",
        "json.n > 5 XOR json.m > 5",
        "json.Name = 'anna' OR json.name = 'anna'",
        "NOT",
        "(json.n = 5",
        "json.n = 5)",
        "",
        "json.n = 5 AND",
        "CASE WHEN json.n = 5 THEN true END",
        "topic = 5",
        "attempts = 'one'",
        "timestamp_ns > 5",
        "topic",
        "body = 'x'",
        "json.n IS TRUE",
        "json.n NOT = 5",
        "topic = 'it\\'s'",
        "json.n::int = 5",
    ],
)
def test_spark_evaluates_the_others(where: str) -> None:
    assert needs_spark(where, None)


@pytest.mark.parametrize(
    ("where", "positions"),
    [
        ("json.a = 'one' AND length(json.b) > 5", [0]),
        ("sqrt(json.n) > 1 AND NOT json.a = 'one' AND json.a LIKE 't%'", [1, 4]),
        ("length(json.b) > 5 OR json.a = 'one'", None),
        ("json.x BETWEEN json.b AND json.a = 'one'", None),
        ("CASE WHEN json.b AND json.a = 'one' AND json.c THEN json.d END", None),
        ("json.a = 'one' AND 'two' = json.b = json.c", [0]),
        ("json.a = 'one' 'two' AND json.b LIKE 'x'", None),
    ],
)
def test_python_leaves_out_what_cannot_match(where: str, positions: list[int] | None) -> None:
    assert needs_spark(where, None)
    assert (None if filter_of(where) is None else chosen(where)) == positions


def test_spark_evaluates_those_with_a_schema_of_the_user() -> None:
    assert needs_spark("json.n = 5", "n DOUBLE")
    assert not needs_spark("json.n = 5", None)
    assert not needs_spark(None, None)
