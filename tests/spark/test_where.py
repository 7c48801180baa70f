"""What a predicate chooses by the JSON in bodies, beside Spark SQL with a schema."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from nsq_spark.archive.chunk import Chunk, Origin
from nsq_spark.archive.payload import Payload
from nsq_spark.replay.filter import filter_of
from nsq_spark.replay.job import Selection
from nsq_spark.replay.json_types import typed
from nsq_spark.replay.sql import JSON_OPTIONS, _own_session, _where

# One Spark for all of them.
pytestmark = pytest.mark.xdist_group("spark")

SCHEMA = (
    "n DOUBLE, m DOUBLE, x DOUBLE, k BIGINT, id DECIMAL(38, 9), name STRING, other STRING, day STRING, paid BOOLEAN, "
    "user STRUCT<id: DOUBLE, name: STRING, address: STRUCT<city: STRING>>, tags ARRAY<STRING>, prices ARRAY<DOUBLE>, "
    "lines ARRAY<STRUCT<price: DOUBLE, item: STRING>>"
)
# Each names fields whose types follow from what they stand beside.
PREDICATES = """\
json.n = 6
json.n <> 6
json.n != 6
json.n == 6
json.n <=> 6
json.n < 6
json.n >= 6
6 < json.n
-6 < json.n
json.n > -6
json.n < json.m
json.n <= json.m
json.n > json.m
json.n = json.m
json.n <> json.m
(json.n) < (json.m)
NOT json.n < json.m
json.n < json.m AND json.m < json.x
json.n < json.m OR json.m < json.x
json.n BETWEEN 1 AND 7
json.n NOT BETWEEN 1 AND 7
json.x BETWEEN 5 AND json.m
json.x BETWEEN json.n AND 7
json.x BETWEEN json.n AND json.m
json.x NOT BETWEEN json.n AND json.m
5 BETWEEN json.n AND json.m
json.n IN (1, 6, 7)
json.n NOT IN (1, 6, 7)
json.n IN (json.m, 6)
json.n IN (json.m, json.x)
json.n NOT IN (json.m, json.x)
6 IN (json.n, json.m)
json.n + 1 > 6
json.n + json.m > 6
json.n - json.m > json.x
json.n * 2 = json.m
json.n / 2 >= 3
json.n % 2 = 0
-json.n < -6
json.n + 1 > json.m
(json.n + json.m) * 2 > json.x
abs(json.n) > 6
abs(json.n - json.m) < 2
round(json.n) = json.m
sqrt(json.n) > 2
pow(json.n, 2) > json.m
coalesce(json.n, 0) > 6
coalesce(json.n, json.m, 0) > 6
greatest(json.n, json.m, 0) > 6
least(json.n, json.m, 9) < json.x
nvl(json.n, 100) > 6
nullif(json.n, 6) IS NULL
if(json.paid, json.n, 0) > 6
CASE WHEN json.paid THEN json.n ELSE json.m END > 6
CASE json.n WHEN 6 THEN true ELSE false END
CASE WHEN json.n > 6 THEN json.name ELSE json.other END = 'anna'
json.k & 4 = 4
json.id = 12345678901234567
json.id > 12345678901234567
json.id IN (12345678901234567, 3)
json.n < attempts
json.n BETWEEN attempts AND 7
json.id > timestamp_ns
json.name = 'anna'
json.name <> 'anna'
'anna' = json.name
json.name < 'b'
json.name = json.other
json.name <> json.other
json.name < json.other
json.name IN ('anna', 'bert')
json.name NOT IN ('anna', 'bert')
json.name LIKE 'a%'
json.name NOT LIKE 'a%'
json.name ILIKE 'A%'
json.name RLIKE '^a'
json.name LIKE ANY ('a%', 'b%')
json.name BETWEEN 'a' AND 'b'
json.name = topic
json.name || 'x' = 'annax'
concat(json.name, '-', json.other) = 'anna-bert'
lower(json.name) = 'anna'
lower(json.name) = json.other
upper(substring(json.name, 1, 1)) = 'A'
length(json.name) > 4
length(json.name) > json.n
length(json.name) = length(json.other)
startswith(json.name, 'a')
trim(json.name) = 'anna'
json.name IS NULL
json.name IS NOT NULL
json.user IS NOT NULL AND json.user.id = 3
json.paid
NOT json.paid
json.paid = true
json.paid IS TRUE
json.paid IS NOT TRUE
json.paid IS FALSE
json.paid AND json.n > 6
json.paid OR json.name = 'anna'
json.paid <=> false
json.user.id = 3
json.user.id < json.n
json.user.name = 'anna'
json.user.name = json.name
json.user.address.city = 'Rome'
json.tags[0] = 'a'
json.tags[1] = json.name
json.prices[0] > 2.5
json.prices[0] < json.prices[1]
json.lines[0].price > 2.5
json.lines[1].item = 'pen' AND json.lines[0].price <= json.n
CAST(json.name AS INT) = 5
json.name::int = 5
json.day > DATE '2024-01-15'
json.day < TIMESTAMP '2024-02-01 00:00:00' - INTERVAL 1 DAY
CAST(json.day AS DATE) + INTERVAL '1' DAY > DATE '2024-02-01'
json.n IS NOT DISTINCT FROM 6
(json.n > 6 OR json.name = 'anna') AND NOT (json.paid AND json.m < 3)"""


def bodies() -> list[bytes]:
    numbers: list[Any] = [6, 6.5, -7, 0, 12345678901234567, 1e300, "none", "6", None, True, {"a": 1}, [1]]
    texts: list[Any] = ["anna", "bert", " anna", "5", "", None, False, "Ünï"]
    found: list[Any] = []
    for place in range(120):
        number, text = numbers[place % len(numbers)], texts[place % len(texts)]
        found.append(
            {
                "n": number,
                "m": place % 9 if place % 4 else 7.5,
                "x": [3, 5.5, 8, None][place % 4],
                "k": [4, 5, 2.5, "4", 3][place % 5],
                "id": [12345678901234567, 12345678901234568, 3, "3"][place % 4],
                "name": text,
                "other": texts[place % 7],
                "day": ["2024-01-10", "2024-02-10", "soon", 5, None][place % 5],
                "paid": [True, False, None, "true", 1][place % 5],
                "user": [{"id": place % 5, "name": text, "address": {"city": "Rome"}}, "anna", None][place % 3],
                "tags": [["a", text], [], "a", None][place % 4],
                "prices": [[2, 3.5], [7.5, 1], ["x", 3], None][place % 4],
                "lines": [[{"price": 3, "item": "pen"}, {"price": number, "item": "pen"}], [], {"price": 3}][place % 3],
            }
        )
    wrong = [b"", b"null", b"[]", b"7", b"{", b'{"n":6', b"\xff\xfe", b'{"n":6,"n":7}', b'"n"']
    return [json.dumps(one).encode() for one in found] + wrong


@pytest.fixture(scope="module")
def rows(spark: Any) -> Any:
    """In the session that predicates have."""
    session = _own_session(spark)
    # To compile each of them would take longer than to run them.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    found = [(number, number % 9, body, 1, 12345678901234567, "anna") for number, body in enumerate(bodies())]
    return session.createDataFrame(
        found, "position BIGINT, attempts INT, body BINARY, file_number INT, timestamp_ns BIGINT, topic STRING"
    )


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_a_hundred_predicates_choose_what_spark_chooses_with_a_schema(rows: Any, step: int) -> None:
    assert len(PREDICATES.splitlines()) >= 100
    predicates = PREDICATES.splitlines()[::step]
    parsed = rows.withColumn("json", F.from_json(F.col("body").cast("string"), SCHEMA))
    expected = parsed.select("position", *(F.expr(f"({one}) <=> true").alias(f"p{n}") for n, one in enumerate(predicates)))
    wanted = [{row.position for row in expected.collect() if row[f"p{n}"]} for n in range(len(predicates))]
    given = bodies()
    for predicate, positions in zip(predicates, chosen(rows, predicates), strict=True):
        assert positions == wanted[predicates.index(predicate)], predicate
        found = filter_of(predicate)
        if found is not None:
            left = {number for number, row in enumerate(given) if found.mask(_chunk(number, row, number % 9, "anna"))[0]}
            assert positions <= left, predicate
            assert positions == left or not found.is_exact, predicate
    assert sum(0 < len(positions) < rows.count() for positions in wanted) > 0.8 * len(predicates)


def chosen(rows: Any, predicates: list[str]) -> list[set[int]]:
    """The positions of the rows of each predicate, all in one job."""
    parsed, truths = [], []
    for number, predicate in enumerate(predicates):
        found = typed(predicate)
        text = re.sub(r"\b(json(?:_\d+)?)\.`", rf"q{number}_\1.`", found.where)
        truths.append(F.expr(f"({text}) <=> true").alias(f"p{number}"))
        parsed += [
            F.from_json(F.col("body").cast("string"), schema, JSON_OPTIONS).alias(f"q{number}_{name}")
            for name, schema in found.columns.items()
        ]
    answers = rows.select("*", *parsed).select("position", *truths).collect()
    return [{row.position for row in answers if row[f"p{number}"]} for number in range(len(predicates))]


def test_a_schema_says_the_types(rows: Any) -> None:
    selection = Selection(where="json.k > 3 AND json.n IS NULL", json_schema="k BIGINT, n INT")
    found = {json.loads(row.body).get("k") for row in _where(rows, selection).collect()}
    assert found == {4, 5}


def test_texts_beside_texts_and_numbers_beside_numbers(rows: Any) -> None:
    session = rows.sparkSession
    some = ['{"a":10,"b":9}', '{"a":"10","b":"9"}', '{"a":10,"b":"9"}', '{"a":1,"b":1.0}', '{"b":1}']
    frame = session.createDataFrame([(text.encode(), 1) for text in some], "body BINARY, file_number INT")
    assert [row.body.decode() for row in _where(frame, Selection(where="json.a > json.b")).collect()] == some[:1]
    assert [row.body.decode() for row in _where(frame, Selection(where="json.a < json.b")).collect()] == some[1:2]
    assert [row.body.decode() for row in _where(frame, Selection(where="json.a = json.b")).collect()] == some[3:4]


# Those that Python evaluates.
FILTERED = """\
json.n = 6
json.n <> 6
json.n != 6.5
6 < json.n
-6 >= json.n
json.n > -6.5
json.n >= 1e3
json.n BETWEEN 1 AND 7
json.n NOT BETWEEN 1 AND 7
json.n IN (1, 6, 6.5)
json.n NOT IN (6, 0)
json.n IS NULL
json.n IS NOT NULL
NOT json.n = 6 OR json.m < 3
NOT (json.n > 6 AND json.paid)
json.n > 5 AND json.n IS NOT NULL AND json.name <> 'bert'
json.paid
NOT json.paid
json.paid = true
json.paid <> TRUE OR json.x > 5
json.name = 'anna'
'anna' <> json.name
json.name IN ('anna', 'true', 'false')
json.name NOT IN ('anna', 'bert')
json.other = 'false'
json.user IS NULL
json.user.name = 'anna'
json.user.id = 3
json.user.id > 2 OR json.user.name = 'anna'
json.user.address.city = 'Rome' AND json.user.id < 3
json.user.address IS NOT NULL
json.tags IS NULL
json.`name` = 'anna'
json.a = 'error'
json.a <> 'error'
json.a IN ('error', 'true', 'null')
json.a IS NULL
json.a < 6
json.a >= 100000
json.a NOT IN ('error')
json.error = 'a'
topic = 'anna'
topic <> 'anna' OR attempts > 4
attempts IN (1, 2, 8) AND json.n > 6
attempts BETWEEN 2 AND 3
(json.n > 6 OR json.name = 'anna') AND NOT (json.paid AND json.m < 3)
json.n % 2 = 0
json.n % 2.5 <> 1
mod(json.n, 4) IN (2, 3)
abs(json.n) > 6
abs(json.n) BETWEEN json.m AND 7
NOT abs(json.n - json.m) <= 3
-json.n > 5
json.n + 1 = 7
json.n * 2 - 1 >= json.m / 3
json.n / json.m > 1
json.m / (json.m - 7.5) > 1
json.m % (json.n - 6) = 3
json.n * 1e300 > json.n
json.n * 1e300 * 1e300 = json.n * 1e300 * 1e300
json.n BETWEEN 5 AND json.m
json.n NOT BETWEEN json.m AND 7
json.n NOT IN (json.m, 6)
json.n + json.m <> 6 AND json.name = 'anna'
json.n * 0 = 0
json.n * 1e308 - json.n * 1e308 > 5"""


def test_python_evaluates_predicates_as_spark_does(rows: Any) -> None:
    strange = [
        b'{"n":1e400,"name":"x"}',
        b'{"n":-0.0}',
        b'{"n":6.0}',
        b'{"n":"NaN"}',
        b'{"n":NaN,"name":"anna"}',
        b'{"n":-Infinity}',
        b'{"n":"-INF"}',
        b'{"n":"Infinity"}',
        b'{"n":100000000000000000000000}',
        b'{"n":""}',
        b'{"name":"anna"} and more',
        b' {"name":"anna"}',
        b'[{"n":7},{"n":1}]',
        b'[[{"n":7}]]',
        b"[7]",
        b'{"n":6}{"n":9}',
        b'{"a":5}',
        b'{"paid":"true"}',
        b'{"name":"anna","x":"\\ud800"}',
        b'{"name":"anna","x":"\xff"}',
        b'{"name":"an\tna"}',
        b'{"name":"anna",}',
        b'{"name":"anna","x":01}',
        b'{"n":"none","name":"anna","user":{"id":"x","name":"anna","address":"Rome"}}',
        b'{"user":{"id":3,"address":{"city":7}}}',
        b'{"user":[{"id":3}]}',
        b'{"user":{"id":{"id":3}}}',
        b'{"name":{"a":1},"tags":{}}',
        b'{"name":["anna"]}',
        b'{"name":5,"n":5}',
        b'{"Name":"anna","N":6}',
    ]
    # INF is a number for Spark alone.
    some = [*bodies(), *(body for body in ODD_BODIES if b"INF" not in body), *strange]
    columns = [(number, body, 1 + number % 9, ("anna", "bert")[number % 2]) for number, body in enumerate(some)]
    frame = rows.sparkSession.createDataFrame(columns, "position BIGINT, body BINARY, attempts INT, topic STRING")
    predicates, wrong, matching = FILTERED.splitlines(), [], 0
    for predicate, positions in zip(predicates, chosen(frame, predicates), strict=True):
        found = filter_of(predicate)
        assert found is not None, predicate
        masks = [found.mask(_chunk(*row)) for row in columns]
        ours = {number for number, mask in enumerate(masks) if mask[0]}
        wrong += [(predicate, some[number], number in positions) for number in ours ^ positions]
        matching += bool(ours)
    assert not wrong, repr(wrong)
    assert matching == len(predicates)


def _chunk(position: int, body: bytes, attempts: int, topic: str) -> Chunk:
    payload = Payload.of_array(pa.array([body], pa.binary()))
    return Chunk(Origin(topic, None, ""), np.array([position]), payload, attempts=np.array([attempts]))


# Each has a value that is, or is nearly, one of the texts of the predicates below.
ODD_BODIES = [
    b'{"a":"error"}',
    b"{'a':'error'}",
    rb'{"a":"\u0065rror"}',
    rb'{"a":"e\rror"}',
    b'{"a":"Error"}',
    b'{"a":" error"}',
    b'{"a":["error"]}',
    b'{"a":{"error":1}}',
    b'{"error":"a"}',
    b'{"a":true}',
    b'{"a":TRUE}',
    b'{"a":null}',
    b'{"a":1e5}',
    b'{"a":100000.0}',
    b'{"a":NaN}',
    b'{"a":-INF}',
    b'{"a":Infinity}',
    b'{"a":"NaN"}',
    b'{"a":"\xc1\xa5rror"}',
    b'{"a":"err\xffor"}',
    '{"a":"error"}'.encode("utf-16-le"),
    '{"a":"error"}'.encode("utf-16"),
    '{"a":"error"}'.encode("utf-32-be"),
    b'\xef\xbb\xbf{"a":"error"}',
    b'{"a":"error"',
    b'{"a":"x","a":"error"}',
    b'{"a":"error","a":"x"}',
    rb'{"a":"or\/der"}',
    b'{"a":"or/der"}',
    b'{"a":er/**/ror}',
    b'[{"a":"error"}]',
    '{"a":"\uff45rror"}'.encode(),
    b'{"\\u0061":"error"}',
    b'{"a":"null"}',
    b'{"a":"2024-01-31 10:00"}',
    b"",
]
