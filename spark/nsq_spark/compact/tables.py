"""What the messages of a store are compacted into: Parquet files, a Delta table, or an Iceberg table.

Each knows what it has of a log, and adds files in one step with that knowledge, so that whatever is killed, no file is added
twice. Delta has it as the version of a transaction of the log, Iceberg as a property of the table, both as the sequence number
behind the last message; Parquet files have it in their names. Only one run at a time may add files (`alone`).

The packages are extras, and raise many kinds of errors; all come out as OSError.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from nsq_spark.archive.splits import Span
from nsq_spark.archive.storage import is_local, local_path
from nsq_spark.compact.options import DELTA, ICEBERG
from nsq_spark.compact.plan import Done, Log, file_name, parse_name
from nsq_spark.schema import arrow_schema
from nsqd_py.stores.directories import DELTA_LOG
from nsqd_py.stores.object_stores import Store, delta_options, open_store

# All columns of a message but the file that it was read from.
COLUMNS = tuple(name for name in arrow_schema().names if name != "file")
# Spark's name for what is not complete: readers pass over it.
_UNFINISHED = "_temporary"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Delta forgets a transaction after this time, and with it what was compacted.
_FORGETS = "delta.setTransactionRetentionDuration"


class Written(NamedTuple):
    """A Parquet file that a task has written, and what is in it. No other task ever writes a file of this name."""

    log: Log
    span: Span
    name: str
    size_bytes: int
    messages: int
    times: Span


class Table(Protocol):
    """A destination. Its methods raise OSError.

    root       the directory that tasks write to, below which `Written.name` is
    directory  of its files, which may not be there yet
    """

    root: str
    directory: str

    def clean(self) -> None:
        """Remove what a run has left that was killed. No other one may run."""
        return

    def done(self, logs: Iterable[Log]) -> Done:
        """Return what it has of these logs."""
        ...

    def add(self, written: Sequence[Written]) -> None:
        """Add files of which it has nothing, those of a log in order and from where `done` ends."""
        ...


def table_schema() -> pa.Schema:
    schema = arrow_schema()
    return pa.schema([schema.field(name) for name in COLUMNS])


def open_table(table: str, directory: str, settings: Mapping[str, str]) -> Table:
    """Open or create what --table and --output-dir name. Raises OSError."""
    if table == DELTA:
        return _DeltaTable(directory, settings)
    if table:
        return _IcebergTable(table.removeprefix(ICEBERG), settings)
    return _ParquetFiles(directory, settings)


@contextmanager
def _os_errors(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise OSError(f"{where}: {reason or type(error).__name__}") from error


def open_directory(directory: str, settings: Mapping[str, str]) -> Store:
    """Open the file system of a directory or of a URL. Raises what pyarrow raises."""
    if is_local(directory):
        return Store(pafs.LocalFileSystem(), "", "")
    return open_store(directory, settings)


def _names_in(directory: str, settings: Mapping[str, str]) -> list[str]:
    """Return the names in a directory, which may not be there. Raises what pyarrow raises."""
    store = open_directory(directory, settings)
    selector = pafs.FileSelector(store.inner(directory), allow_not_found=True)
    return [info.base_name for info in store.files.get_file_info(selector)]


def _plain(directory: str) -> str:
    if is_local(directory):
        return local_path(directory)
    return directory.rstrip("/")


# ---- Parquet files


class _ParquetFiles(Table):
    """Files in a directory. A task writes below `_temporary`, and the driver gives a file its name when it is complete."""

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        self.directory = _plain(directory)
        self._settings = settings
        self.root = f"{self.directory}/{_UNFINISHED}"
        with _os_errors(self.directory):
            names = _names_in(self.directory, settings)
        if DELTA_LOG in names:
            raise OSError(
                f"{self.directory} is a Delta table: add to it with --table=delta, or give Parquet files a directory of their own"
            )

    def clean(self) -> None:
        with _os_errors(self.directory):
            store = open_directory(self.root, self._settings)
            store.files.delete_dir_contents(store.inner(self.root), missing_dir_ok=True)

    def done(self, logs: Iterable[Log]) -> Done:
        wanted = set(logs)
        found: dict[Log, list[Span]] = {}
        with _os_errors(self.directory):
            for name in _names_in(self.directory, self._settings):
                parsed = parse_name(name)
                if parsed and parsed[0] in wanted:
                    found.setdefault(parsed[0], []).append(parsed[1])
        return found

    def add(self, written: Sequence[Written]) -> None:
        with _os_errors(self.directory):
            store = open_directory(self.directory, self._settings)
            for one in written:
                target = store.inner(f"{self.directory}/{file_name(one.log, one.span)}")
                store.files.move(store.inner(f"{self.root}/{one.name}"), target)


# ---- Delta


class _DeltaTable(Table):
    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        from deltalake import DeltaTable, Schema  # of an extra

        self.root = self.directory = _plain(directory)
        with _os_errors(self.root):
            self._storage = delta_options(self.root, settings)
            names = (
                [] if DeltaTable.is_deltatable(self.root, self._storage) else _names_in(self.root, settings)
            )
        if any(map(parse_name, names)):
            raise OSError(
                f"{self.root} has Parquet files of spark-compact without --table: give the table a directory of its own"
            )
        with _os_errors(self.root):
            table = DeltaTable.create(self.root, table_schema(), mode="ignore", storage_options=self._storage)
            there = {field.name: field.type for field in table.schema().fields}
        needed = Schema.from_arrow(table_schema()).fields
        if table.metadata().partition_columns or any(there.get(one.name) != one.type for one in needed):
            raise OSError(
                f"the table in {self.root} is partitioned, or its columns are not those of spark-compact"
            )
        if _FORGETS in table.metadata().configuration:
            raise OSError(
                f"the table in {self.root} forgets after a time what was compacted ({_FORGETS}), as those of nsq-to-file do: "
                "give spark-compact a table of its own"
            )

    def done(self, logs: Iterable[Log]) -> Done:
        with _os_errors(self.root):
            table = self._open()
            ends = {log: table.transaction_version(_key(log)) for log in logs}
        return {log: [(0, end)] for log, end in ends.items() if end is not None}

    def add(self, written: Sequence[Written]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        with _os_errors(self.root):
            table = self._open()
            now_ms = time.time_ns() // 1_000_000
            actions = [
                AddAction(one.name, one.size_bytes, {}, now_ms, True, _statistics(one)) for one in written
            ]
            ends = _ends(written)
            marks = [Transaction(_key(log), end, now_ms) for log, end in ends.items()]
            properties = CommitProperties(app_transactions=marks)
            table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)

    def _open(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.root, storage_options=self._storage)


def _statistics(written: Written) -> str:
    """Return the JSON by which readers of the table skip files."""
    bounds: dict[str, Any] = {"numRecords": written.messages}
    first_seq, end_seq = written.span
    kinds = ("minValues", "maxValues")
    for kind, time_ns, position in zip(kinds, written.times, (first_seq, end_seq - 1), strict=True):
        moment = (_EPOCH + timedelta(microseconds=time_ns // 1000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        bounds[kind] = {
            "topic": written.log.topic,
            "timestamp": moment,
            "timestamp_ns": time_ns,
            "position": position,
        }
    return json.dumps(bounds)


# ---- Iceberg


@dataclass
class _IcebergTable(Table):
    """A table of pyiceberg's default catalog, which is made if it is missing; its files are where the table is."""

    _name: str
    _settings: Mapping[str, str]
    root: str = ""
    directory: str = ""

    def __post_init__(self) -> None:
        with self._open() as table:
            self.directory = _plain(table.location())
            self.root = f"{table.location().rstrip('/')}/data"
            there = table.schema().as_arrow()
        missing = [name for name in COLUMNS if name not in there.names]
        if missing:
            raise OSError(
                f"the table {self._name} has no column {missing[0]}: its columns are not those of spark-compact"
            )

    def done(self, logs: Iterable[Log]) -> Done:
        with self._open() as table:
            ends = {log: table.properties.get(_key(log)) for log in logs}
        return {log: [(0, int(end))] for log, end in ends.items() if end is not None}

    def add(self, written: Sequence[Written]) -> None:
        with self._open() as table, table.transaction() as transaction:
            paths = [f"{self.root}/{one.name}" for one in written]
            transaction.add_files(paths, check_duplicate_files=False)
            transaction.set_properties({_key(log): str(end) for log, end in _ends(written).items()})

    @contextmanager
    def _open(self) -> Iterator[Any]:
        from pyiceberg.catalog import load_catalog  # of an extra
        from pyiceberg.exceptions import NoSuchTableError

        with _os_errors(self._name), closing(load_catalog()) as catalog:
            try:
                table = catalog.load_table(self._name)
            except NoSuchTableError:
                catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
                table = catalog.create_table_if_not_exists(self._name, table_schema())
            yield table


def _key(log: Log) -> str:
    return f"nsq-store.{log}"


def _ends(written: Iterable[Written]) -> dict[Log, int]:
    """Return the number behind the last message of each log."""
    in_order = sorted(written, key=lambda one: one.span)
    return {one.log: one.span[1] for one in in_order}
