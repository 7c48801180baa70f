"""The columns of a message, declared once: for pyarrow, and as DDL for Spark.

A column is null where its format does not know it: `lines` keep bodies only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

# The body as text, in a schema that names it. Spark takes text out of an Arrow batch without a copy for each row, as of bytes.
TEXT = "text"


@dataclass(frozen=True)
class TableColumn:
    """One column; `ddl` is its type in Spark's words, `arrow` in pyarrow's."""

    name: str
    ddl: str
    arrow: pa.DataType
    meaning: str


COLUMNS = (
    TableColumn("topic", "STRING", pa.string(), "topic of the message"),
    TableColumn("channel", "STRING", pa.string(), "channel from which it was consumed; null if none"),
    TableColumn("timestamp", "TIMESTAMP", pa.timestamp("us", tz="UTC"), "when it was published"),
    TableColumn(
        "timestamp_ns", "BIGINT", pa.int64(), "the same in ns since the epoch; Spark's TIMESTAMP has µs only"
    ),
    TableColumn("id", "STRING", pa.string(), "message id, 16 hex characters"),
    TableColumn("attempts", "INT", pa.int32(), "number of deliveries before it was stored"),
    TableColumn("body", "BINARY", pa.binary(), "the message"),
    TableColumn("nsqd", "STRING", pa.string(), "host:port of the nsqd that delivered it"),
    TableColumn("file", "STRING", pa.string(), "path of the file that it was read from"),
    TableColumn(
        "position",
        "BIGINT",
        pa.int64(),
        "place in that file: rises from message to message, and never changes",
    ),
)


def ddl() -> str:
    """Return the columns with their types, as Spark writes them."""
    return ", ".join(f"{column.name} {column.ddl}" for column in COLUMNS)


@lru_cache
def arrow_schema() -> pa.Schema:
    """The schema of every batch that readers give."""
    return pa.schema([pa.field(column.name, column.arrow) for column in COLUMNS])
