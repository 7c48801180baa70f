"""The columns that are read or published, by the schema that Spark gives."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, ShortType, StringType, StructType

from nsq_spark.schema import COLUMNS, DDL
from nsq_spark.source.options import BadOption

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_TYPES = {
    "body": ("BINARY or STRING", (BinaryType, StringType)),
    "topic": ("STRING", (StringType,)),
    "defer_ms": ("a whole number of milliseconds", _WHOLE),
}


def read_columns(schema: StructType) -> tuple[str, ...]:
    """Return the names, in order: any of ours, in any order. Raises BadOption."""
    ours = {column.name: column.ddl.lower() for column in COLUMNS}
    for field in schema.fields:
        if ours.get(field.name) != field.dataType.simpleString() or not field.nullable:
            what = f"{field.name} {field.dataType.simpleString().upper()}{'' if field.nullable else ' NOT NULL'}"
            raise BadOption(f"nsq: there is no column {what}; a schema is any of {DDL}")
    if not schema.fields:
        raise BadOption("nsq: a schema without columns")
    return tuple(schema.fieldNames())


@dataclass(frozen=True)
class WriteColumns:
    """Places of columns; None where there is none."""

    body: int
    topic: int | None
    defer_ms: int | None


def write_columns(schema: StructType, topic: str) -> WriteColumns:
    """Return where the columns to publish are. The option `topic` takes precedence over the column; `value`, as in
    Kafka's sink, stands for `body`. Other columns are ignored, except those of Kafka's messages. Raises BadOption.
    """
    places = {name: place for place, name in enumerate(schema.fieldNames())}
    lost = {"headers"}
    if "body" not in places and "value" in places:
        places["body"] = places["value"]
        lost |= {"key", "partition"}
    lost &= places.keys()
    if lost:
        raise BadOption(f"nsq: column {min(lost)} cannot be published: NSQ's messages have none; drop it")
    for name, (words, kinds) in _TYPES.items():
        if name in places and not isinstance(schema.fields[places[name]].dataType, kinds):
            kind = schema.fields[places[name]].dataType.simpleString()
            raise BadOption(f"nsq: column {schema.fieldNames()[places[name]]} is {kind}, but has to be {words}")
    if "body" not in places:
        raise BadOption(f"nsq: there is no column body among {', '.join(places)}: what is to be published?")
    if not topic and "topic" not in places:
        raise BadOption("nsq: option topic is needed, or a column topic: where are the messages to go?")
    return WriteColumns(places["body"], None if topic else places["topic"], places.get("defer_ms"))
