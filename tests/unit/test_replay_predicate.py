"""What type each field of a JSON body has in a predicate."""

from __future__ import annotations

import pytest

from spark.replay.errors import BadPredicate
from spark.replay.predicate import check_is_steady, json_schema, names_in, reason


@pytest.mark.parametrize(
    ("predicate", "schema"),
    [
        ("topic = 'json.a = 1'", None),
        ("json.id = 3", "STRUCT<`id`: DOUBLE>"),
        ("3 < json.id", "STRUCT<`id`: DOUBLE>"),
        ("json.id = -3", "STRUCT<`id`: DOUBLE>"),
        ("json.id = 12345678901234567", "STRUCT<`id`: DECIMAL(38, 0)>"),
        ("json.id > 3 or json.id = 12345678901234567", "STRUCT<`id`: DECIMAL(38, 0)>"),
        ("json.level = 'error'", "STRUCT<`level`: STRING>"),
        ('json.level != "it""s"', "STRUCT<`level`: STRING>"),
        ("json.paid", "STRUCT<`paid`: BOOLEAN>"),
        ("not json.paid AND json.n in (1, 2)", "STRUCT<`paid`: BOOLEAN, `n`: DOUBLE>"),
        ("json.paid = true", "STRUCT<`paid`: BOOLEAN>"),
        ("json.paid IS NOT TRUE", "STRUCT<`paid`: BOOLEAN>"),
        ("json.name IS NOT NULL", "STRUCT<`name`: STRING>"),
        ("lower(json.name) LIKE 'a%'", "STRUCT<`name`: STRING>"),
        ("json.name NOT IN ('a', 'b')", "STRUCT<`name`: STRING>"),
        ("json.n BETWEEN 1 AND 3", "STRUCT<`n`: DOUBLE>"),
        ("json.n % 2 = 0", "STRUCT<`n`: DOUBLE>"),
        ("json.user.id = 1 and json.user.name = 'x'", "STRUCT<`user`: STRUCT<`id`: DOUBLE, `name`: STRING>>"),
        ("json.user IS NOT NULL AND json.user.id = 1", "STRUCT<`user`: STRUCT<`id`: DOUBLE>>"),
        ("json.tags[0] = 'a'", "STRUCT<`tags`: ARRAY<STRING>>"),
        ("json.lines[1].price > 2.5", "STRUCT<`lines`: ARRAY<STRUCT<`price`: DOUBLE>>>"),
        ("json.`a b` = 1", "STRUCT<`a b`: DOUBLE>"),
        ("JSON.Id = 1", "STRUCT<`Id`: DOUBLE>"),
        ("json.n = 1 or json.n = 'one'", "STRUCT<`n`: STRING>"),
        ("json.a = json.b", "STRUCT<`a`: STRING, `b`: STRING>"),
        ("-- json.a = 1\n json.b = 1", "STRUCT<`b`: DOUBLE>"),
    ],
)
def test_types_follow_from_use(predicate: str, schema: str | None) -> None:
    assert json_schema(predicate) == schema


def test_a_body_that_is_an_array_has_no_fields() -> None:
    with pytest.raises(BadPredicate):
        json_schema("json[0].a = 1")


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
