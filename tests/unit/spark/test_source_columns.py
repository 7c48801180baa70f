"""Names that users of Spark's Kafka source know: taken as ours, or refused with ours."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from nsq_spark.source.options import BadOption, read_options, write_columns
from pyspark_nsq import DefaultSource

TYPES: dict[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "LIST": ArrayType(StringType()),
}


def schema_of(text: str) -> StructType:
    found = StructType()
    for field in text.split(", "):
        name, kind = field.split()
        found = found.add(name, TYPES[kind])
    return found


def test_a_value_is_a_body() -> None:
    found = write_columns(schema_of("topic STRING, value BINARY"), "")
    assert (found.body, found.topic) == (1, 0)
    assert write_columns(schema_of("value INT, body STRING"), "t").body == 1
    with pytest.raises(BadOption, match="column value is int, but has to be BINARY or STRING"):
        write_columns(schema_of("value INT"), "t")


@pytest.mark.parametrize(("schema", "column"), [("body STRING, headers STRING", "headers"), ("key STRING, value STRING", "key")])
def test_what_a_message_does_not_have_is_not_dropped_silently(schema: str, column: str) -> None:
    with pytest.raises(BadOption, match=f"column {column} cannot be published: NSQ's messages have none"):
        write_columns(schema_of(schema), "t")


def test_options_that_have_another_name_here() -> None:
    options = read_options({"path": "/archive", "subscribe": "a,b", "subscribePattern": "^c"}, 0)
    assert (options.wanted.topics, options.wanted.topic_pattern) == (frozenset(("a", "b")), "^c")


def test_pyspark_finds_it_by_itself() -> None:
    assert DefaultSource.name() == "nsq"
