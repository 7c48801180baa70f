"""What the messages of a store are compacted into: Parquet files, a Delta table, or an Iceberg table.

Each knows what it has of a log, and adds files in one step with that knowledge, so that whatever is killed, no file is added
twice. Delta has it as the version of a transaction of the log, Iceberg as a property of the table, both as the sequence number
behind the last message; Parquet files have it in their names. Only one run at a time may add files (`alone`).

The packages are extras, and raise many kinds of errors; all come out as OSError.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from nsq_spark.archive.splits import Span
from nsq_spark.archive.storage import is_local, local_path
from nsq_spark.compact.plan import Done, Log, file_name, parse_name
from nsq_spark.schema import arrow_schema
from nsqd_py.stores.commits import (
    DELTA,
    ICEBERG,
    TableFile,
    check_fits,
    commit_to_delta,
    delta_table,
    iceberg_table,
    os_errors,
)
from nsqd_py.stores.directories import DELTA_LOG
from nsqd_py.stores.object_stores import Store, delta_options, open_store

# All columns of a message but the file that it was read from.
COLUMNS = tuple(name for name in arrow_schema().names if name != "file")
# Spark's name for what is not complete: readers pass over it.
_UNFINISHED = "_temporary"
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

    def in_table(self) -> TableFile:
        first_seq, end_seq = self.span
        positions = first_seq, end_seq - 1
        return TableFile(self.name, self.size_bytes, self.messages, self.log.topic, self.times, positions)


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
        with os_errors(self.directory):
            names = _names_in(self.directory, settings)
        if DELTA_LOG in names:
            raise OSError(
                f"{self.directory} is a Delta table: add to it with --table=delta, or give Parquet files a directory of their own"
            )

    def clean(self) -> None:
        with os_errors(self.directory):
            store = open_directory(self.root, self._settings)
            store.files.delete_dir_contents(store.inner(self.root), missing_dir_ok=True)

    def done(self, logs: Iterable[Log]) -> Done:
        wanted = set(logs)
        found: dict[Log, list[Span]] = {}
        with os_errors(self.directory):
            for name in _names_in(self.directory, self._settings):
                parsed = parse_name(name)
                if parsed and parsed[0] in wanted:
                    found.setdefault(parsed[0], []).append(parsed[1])
        return found

    def add(self, written: Sequence[Written]) -> None:
        with os_errors(self.directory):
            store = open_directory(self.directory, self._settings)
            for one in written:
                target = store.inner(f"{self.directory}/{file_name(one.log, one.span)}")
                store.files.move(store.inner(f"{self.root}/{one.name}"), target)


# ---- Delta


class _DeltaTable(Table):
    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        self.root = self.directory = _plain(directory)
        self._settings = settings
        with os_errors(self.root):
            names = [] if self._is_there() else _names_in(self.root, settings)
        if any(map(parse_name, names)):
            raise OSError(
                f"{self.root} has Parquet files of spark-compact without --table: give the table a directory of its own"
            )
        with os_errors(self.root):
            table = self._open()
        check_fits(table, table_schema(), self.root, "spark-compact")
        if _FORGETS in table.metadata().configuration:
            raise OSError(
                f"the table in {self.root} forgets after a time what was compacted ({_FORGETS}), as those of nsq-to-file do: "
                "give spark-compact a table of its own"
            )

    def done(self, logs: Iterable[Log]) -> Done:
        with os_errors(self.root):
            table = self._open()
            ends = {log: table.transaction_version(_key(log)) for log in logs}
        return _spans_to(ends)

    def add(self, written: Sequence[Written]) -> None:
        with os_errors(self.root):
            files = [one.in_table() for one in written]
            ends = {_key(log): end for log, end in _ends(written).items()}
            commit_to_delta(self._open(), files, time.time_ns() // 1_000_000, ends)

    def _is_there(self) -> bool:
        from deltalake import DeltaTable  # of an extra

        return bool(DeltaTable.is_deltatable(self.root, delta_options(self.root, self._settings)))

    def _open(self) -> Any:
        return delta_table(self.root, table_schema(), self._settings)


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
        return _spans_to(ends)

    def add(self, written: Sequence[Written]) -> None:
        with self._open() as table, table.transaction() as transaction:
            paths = [f"{self.root}/{one.name}" for one in written]
            transaction.add_files(paths, check_duplicate_files=False)
            ends = _ends(written).items()
            transaction.set_properties({_key(log): str(end) for log, end in ends})

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with os_errors(self._name), iceberg_table(self._name, table_schema()) as table:
            yield table


def _spans_to(ends: Mapping[Log, Any]) -> Done:
    """Return what a table has of logs that it has up to these numbers; None if it has nothing of a log."""
    done = {}
    for log, end in ends.items():
        if end is not None:
            done[log] = [(0, int(end))]
    return done


def _key(log: Log) -> str:
    return f"nsq-store.{log}"


def _ends(written: Iterable[Written]) -> dict[Log, int]:
    """Return the number behind the last message of each log."""
    in_order = sorted(written, key=lambda one: one.span)
    return {one.log: one.span[1] for one in in_order}
