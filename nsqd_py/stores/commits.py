"""Parquet files that are added to Delta and Iceberg tables, by nsq-to-file and spark-compact.

A table is named `delta`, which is a Delta table in the directory of its files, or `iceberg:namespace.table`, which is an Iceberg
table of pyiceberg's default catalog. Both are made if they are missing. The packages are extras, and raise many kinds of errors;
all come out of `os_errors` as OSError.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from nsqd_py.stores.object_stores import NO_SETTINGS, delta_options

DELTA = "delta"
ICEBERG = "iceberg:"
_ICEBERG_NAME = re.compile(r"iceberg:[^:]+\.[^.:]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROW_GROUP_ROWS = 120_000
_ROW_GROUP_BYTES = 64 * 1024 * 1024

T = TypeVar("T")


# ---- options


def check_table_name(text: str) -> str | None:
    """Return what is wrong with a value of --table, or None."""
    is_table = text in ("", DELTA) or _ICEBERG_NAME.fullmatch(text)
    return None if is_table else "must be delta or iceberg:namespace.table"


def package_of(table: str) -> tuple[str, str]:
    """Return the package for a table, and its extra."""
    if table == DELTA:
        return ("deltalake", "delta")
    return ("pyiceberg", "iceberg")


@contextmanager
def os_errors(where: str) -> Iterator[None]:
    """Raise all errors as OSError, with the first line of what they say."""
    try:
        yield
    except Exception as error:  # the packages and their clients of stores and catalogs raise many kinds
        # Google's client says everything twice.
        reason = str(error).partition("\n")[0].partition(" error_info=")[0]
        raise OSError(f"{where}: {reason or type(error).__name__}") from error


# ---- files


class TableFile(NamedTuple):
    """A Parquet file for a table.

    path       below the root of the table
    times      the earliest and the latest one of its messages, in ns; None if it is not known
    positions  the first and the last one of its messages, if the table has them
    """

    path: str
    size_bytes: int
    messages: int
    topic: str
    times: tuple[int | None, int | None]
    positions: tuple[int, int] | None = None

    def statistics(self) -> str:
        """Return the JSON by which readers of a Delta table skip files."""
        found: dict[str, Any] = {"numRecords": self.messages}
        for index, kind in enumerate(("minValues", "maxValues")):
            time_ns = self.times[index]
            if time_ns is not None:
                moment = (_EPOCH + timedelta(microseconds=time_ns // 1000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                found[kind] = {"topic": self.topic, "timestamp": moment, "timestamp_ns": time_ns}
                if self.positions:
                    found[kind]["position"] = self.positions[index]
        return json.dumps(found)


def row_groups(pieces: Iterable[T], size_of: Callable[[T], tuple[int, int]]) -> Iterator[list[T]]:
    """Yield the pieces of each row group of a Parquet file; `size_of` returns the rows and the bytes of one."""
    group: list[T] = []
    rows = size_bytes = 0
    for piece in pieces:
        group.append(piece)
        piece_rows, piece_bytes = size_of(piece)
        rows += piece_rows
        size_bytes += piece_bytes
        if rows >= _ROW_GROUP_ROWS or size_bytes >= _ROW_GROUP_BYTES:
            yield group
            group = []
            rows = size_bytes = 0
    if group:
        yield group


# ---- Delta


def delta_table(
    root: str,
    schema: Any,
    settings: Mapping[str, str] = NO_SETTINGS,
    configuration: Mapping[str, str] | None = None,
) -> Any:
    """Open or create a table; `schema` is that of pyarrow. Raises OSError, and deltalake's errors."""
    from deltalake import DeltaTable  # of an extra

    options = delta_options(root, settings)
    return DeltaTable.create(
        root, schema, mode="ignore", configuration=configuration, storage_options=options
    )


def check_fits(table: Any, schema: Any, root: str, writer: str) -> None:
    """Raise OSError if no reader could read the table with a file of `writer`, which has this schema."""
    from deltalake import Schema

    there = {field.name: field.type for field in table.schema().fields}
    is_another = any(there.get(field.name) != field.type for field in Schema.from_arrow(schema).fields)
    if table.metadata().partition_columns or is_another:
        raise OSError(f"the table in {root} is partitioned, or its columns are not those of {writer}")


def commit_to_delta(
    table: Any, files: Sequence[TableFile], closed_ms: int, transactions: Mapping[str, int]
) -> None:
    """Add files in one step with the versions of transactions, by which a later call knows what is there."""
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction

    now_ms = time.time_ns() // 1_000_000
    actions = [
        AddAction(file.path, file.size_bytes, {}, closed_ms, True, file.statistics()) for file in files
    ]
    marks = [Transaction(name, version, now_ms) for name, version in transactions.items()]
    properties = CommitProperties(app_transactions=marks)
    table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)


# ---- Iceberg


@contextmanager
def iceberg_table(
    table: str,
    schema: Any,
    properties: Mapping[str, str] = NO_SETTINGS,
    of_catalog: Mapping[str, str] = NO_SETTINGS,
) -> Iterator[Any]:
    """Yield a table, which is created with `properties`; `of_catalog` has what pyiceberg's configuration does not say."""
    from pyiceberg.catalog import load_catalog  # of an extra
    from pyiceberg.exceptions import NoSuchTableError

    name = table.removeprefix(ICEBERG)
    with closing(load_catalog()) as catalog:
        for key, value in of_catalog.items():
            catalog.properties.setdefault(key, value)
        try:
            found = catalog.load_table(name)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            found = catalog.create_table_if_not_exists(name, schema, properties=dict(properties))
        yield found
