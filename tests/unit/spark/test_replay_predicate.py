"""What type each field of a JSON body has in a predicate."""

from __future__ import annotations

import pytest

from nsq_spark.replay.errors import BadJob, BadPredicate
from nsq_spark.replay.job import Selection
from nsq_spark.replay.json_types import Typed, typed
from nsq_spark.replay.predicate import check_is_steady, names_in, reason


@pytest.mark.parametrize(
    ("predicate", "schema"),
    [
        ("json.id = 3", "STRUCT<`id`: DOUBLE>"),
        ("3 < json.id", "STRUCT<`id`: DOUBLE>"),
        ("json.id = -3", "STRUCT<`id`: DOUBLE>"),
        ("json.id = 12345678901234567", "STRUCT<`id`: DECIMAL(38, 9)>"),
        ("json.time > timestamp_ns", "STRUCT<`time`: DECIMAL(38, 9)>"),
        ("json.tries > attempts", "STRUCT<`tries`: DOUBLE>"),
        ("json.user = topic", "STRUCT<`user`: STRING>"),
        ("json.level = 'error'", "STRUCT<`level`: STRING>"),
        ('json.level != "it""s"', "STRUCT<`level`: STRING>"),
        ("json.paid", "STRUCT<`paid`: BOOLEAN>"),
        ("not json.paid AND json.n in (1, 2)", "STRUCT<`paid`: BOOLEAN, `n`: DOUBLE>"),
        ("json.paid = true", "STRUCT<`paid`: BOOLEAN>"),
        ("json.paid IS NOT TRUE", "STRUCT<`paid`: BOOLEAN>"),
        ("json.name IS NOT NULL", "STRUCT<`name`: STRING>"),
        ("lower(json.name) LIKE 'a%'", "STRUCT<`name`: STRING>"),
        ("json.name NOT IN ('a', 'b')", "STRUCT<`name`: STRING>"),
        ("json.x BETWEEN 5 AND json.m", "STRUCT<`x`: DOUBLE, `m`: DOUBLE>"),
        ("5 BETWEEN json.low AND json.high", "STRUCT<`low`: DOUBLE, `high`: DOUBLE>"),
        ("json.n % 2 = json.m", "STRUCT<`n`: DOUBLE, `m`: DOUBLE>"),
        ("abs(json.n) > json.m", "STRUCT<`n`: DOUBLE, `m`: DOUBLE>"),
        ("coalesce(json.n, json.m, 0) > 1", "STRUCT<`n`: DOUBLE, `m`: DOUBLE>"),
        ("CASE WHEN json.paid THEN json.n ELSE json.m END > 1", "STRUCT<`paid`: BOOLEAN, `n`: DOUBLE, `m`: DOUBLE>"),
        ("length(json.name) > json.most", "STRUCT<`name`: STRING, `most`: DOUBLE>"),
        ("CAST(json.n AS INT) = 3 OR json.n::int = 4", "STRUCT<`n`: STRING>"),
        ("json.day >= DATE '2024-01-01'", "STRUCT<`day`: STRING>"),
        ("json.flags & 4 = 4", "STRUCT<`flags`: BIGINT>"),
        ("json.user.id = 1 and json.user.name = 'x'", "STRUCT<`user`: STRUCT<`id`: DOUBLE, `name`: STRING>>"),
        ("json.tags[0] = 'a'", "STRUCT<`tags`: ARRAY<STRING>>"),
        ("json.lines[1].price > 2.5", "STRUCT<`lines`: ARRAY<STRUCT<`price`: DOUBLE>>>"),
        ("json.`a b` = 1", "STRUCT<`a b`: DOUBLE>"),
        ("JSON.Id = 1", "STRUCT<`Id`: DOUBLE>"),
        ("-- json.a = 1\n json.b = 1", "STRUCT<`b`: DOUBLE>"),
    ],
)
def test_types_follow_from_what_a_field_stands_beside(predicate: str, schema: str) -> None:
    assert typed(predicate).columns == {"json": schema}


def test_a_predicate_without_fields_stays_as_it_is() -> None:
    assert typed("topic = 'json.a = 1'") == Typed("topic = 'json.a = 1'", {})


def test_a_field_with_two_types_is_read_twice() -> None:
    found = typed("json.n = 1 OR json.n = 'one' OR json.user IS NULL AND json.user.id = 2")
    assert found.columns == {
        "json": "STRUCT<`n`: DOUBLE, `user`: STRING>",
        "json_2": "STRUCT<`n`: STRING, `user`: STRUCT<`id`: DOUBLE>>",
    }
    assert "json.`n` = 1 OR json_2.`n` = 'one'" in found.where


@pytest.mark.parametrize(
    "predicate",
    ["unknown_function(json.a) = json.b", "coalesce(json.a, json.b) = json.c", "CASE json.a WHEN json.b THEN 1 END > 0"],
)
def test_what_the_rule_does_not_decide_is_refused(predicate: str) -> None:
    with pytest.raises(BadPredicate, match=r"json\.a.* is a number or a text: say it with --json-schema"):
        typed(predicate)


def test_what_is_no_predicate_is_refused() -> None:
    with pytest.raises(BadPredicate, match="near =; mend it"):
        typed("json.a = = 1")
    with pytest.raises(BadJob, match="use --where"):
        Selection(json_schema="n INT")


def test_a_body_that_is_an_array_has_no_fields() -> None:
    with pytest.raises(BadPredicate):
        typed("json[0].a = 1")


def test_the_columns_that_a_predicate_needs() -> None:
    assert {"id", "attempts"} <= names_in("ID = 'x' AND `attempts` > 1 AND body = 'nsqd'")
    assert "nsqd" not in names_in("topic = 'nsqd'")


@pytest.mark.parametrize(
    "predicate",
    ["rand() < 1", "RAND(42) < 1", "id = uuid()", "timestamp > now ( ) - interval 1 hour", "timestamp < current_date"],
)
def test_a_predicate_that_changes_is_refused(predicate: str) -> None:
    with pytest.raises(BadPredicate, match="has another value each time"):
        check_is_steady(predicate)


@pytest.mark.parametrize("predicate", ["json.rand = 1", "topic = 'now()'", "nsqd = 'a' -- rand()", "length(body) > 9"])
def test_a_predicate_that_only_looks_so_is_not(predicate: str) -> None:
    check_is_steady(predicate)


def test_what_spark_says_of_columns_is_told_with_ours() -> None:
    said = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. Did you mean one of the "
        "following? [`part`, `file_number`]. SQLSTATE: 42703; line 1 pos 1;\n'Filter ..."
    )
    told = reason(said)
    assert "There are topic, channel, " in told and told.endswith("line 1 pos 1;")
    assert "part" not in told and "file_number" not in told
