"""Object stores that finished files are uploaded to, and tables of Delta and Iceberg that they are committed to.

Both can be repeated after a kill: an upload writes the same object again, and a table that has the file says so. The key
is the token of the file's claim, which stays in the table when its files are compacted. All functions block.

The packages are extras. Credentials and endpoints are those of the environment, and of pyiceberg's configuration.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from nsq_tools.to_file.formats import parquet_schema
from nsq_tools.to_file.output import ManifestEntry

DELTA, ICEBERG = "delta", "iceberg:"
_EXTRAS = {DELTA: ("delta", "deltalake"), ICEBERG: ("iceberg", "pyiceberg")}
# In the summary of an Iceberg snapshot: the token of the file that it added.
_TOKEN = "nsq-to-file"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Google's client repeats a request for 15 minutes, also if there are no credentials: too long for the check of a start.
_CHECK_S = 5
# Topics of a process commit one after the other: Iceberg refuses all but one of several commits at the same time.
_committing = Lock()


def missing_extra(table: str) -> str:
    """Return what to install for a table; "" if it is there."""
    extra, package = _EXTRAS[DELTA if table == DELTA else ICEBERG]
    return "" if find_spec(package) else f"{package}: pip install 'nsqd-py[{extra}]'"


@contextmanager
def _os_errors(place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the packages and their clients of stores and catalogs raise many kinds
        reason = str(error).partition("\n")[0].partition(" error_info=")[0]  # Google's client says everything twice
        raise OSError(f"{place}: {reason or type(error).__name__}") from error


# --- object stores


def check_store(url: str) -> None:
    """Raise OSError if the object store does not answer within seconds."""
    with _os_errors(url):
        limit = f"{'&' if '?' in url else '?'}retry_limit_seconds={_CHECK_S}" if url.startswith("gs:") else ""
        files, root = _open_store(url + limit)
        files.get_file_info(root)


def upload(source: Path, store: str, name: str) -> None:
    """Make an object of a file; it is there when it is complete. A missing file must be there already. Raises OSError."""
    from pyarrow import fs  # of an extra

    with _os_errors(store):
        files, root = _open_store(store)
        target = f"{root}/{name}"
        if source.exists():
            fs.copy_files(str(source), target, fs.LocalFileSystem(), files)
        elif files.get_file_info(target).type != fs.FileType.File:
            raise FileNotFoundError(f"neither {source} nor the object {name} is there")


@lru_cache
def _open_store(url: str) -> tuple[Any, str]:
    """Return the file system of a store, and the path in it. Raises pyarrow's errors."""
    from pyarrow import fs

    scheme, _, path = url.partition("://")
    if scheme == "az":  # the account's name and key are where Azure's tools and Delta look for them
        name, key = (os.environ.get(f"AZURE_STORAGE_ACCOUNT_{word}") for word in ("NAME", "KEY"))
        return fs.AzureFileSystem(name or "", account_key=key), path
    files, path = fs.FileSystem.from_uri(url)
    return files, path


# --- tables


def check_table(table: str, root: str) -> None:
    """Create the table if it is missing. Raises OSError."""
    with _os_errors(table), _committing:
        if table == DELTA:
            _delta_table(root)
        else:
            with closing(_catalog()) as catalog:
                _iceberg_table(catalog, table)


def commit(table: str, root: str, entry: ManifestEntry, token: str, *, is_repeated: bool) -> None:
    """Add a file below `root` to a table, unless an earlier call has, as `is_repeated` says is possible. Raises OSError."""
    with _os_errors(table), _committing:
        if table == DELTA:
            _commit_to_delta(root, entry, token)
        else:
            _commit_to_iceberg(table, f"{root}/{entry.path}", token, is_repeated=is_repeated)


def _delta_table(root: str) -> Any:
    from deltalake import DeltaTable, Schema  # of an extra

    table = DeltaTable.create(root, parquet_schema(), mode="ignore")
    there = {field.name: field.type for field in table.schema().fields}
    is_ours = all(there.get(field.name) == field.type for field in Schema.from_arrow(parquet_schema()).fields)
    if table.metadata().partition_columns or not is_ours:  # no reader could read it with one of our files
        raise OSError(f"the table in {root} is partitioned, or its columns are not those of nsq-to-file")
    return table


def _commit_to_delta(root: str, entry: ManifestEntry, token: str) -> None:
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction

    table = _delta_table(root)
    if table.transaction_version(token) is None:
        action = AddAction(entry.path, entry.bytes, {}, entry.closed // 1_000_000, True, _delta_statistics(entry))
        properties = CommitProperties(app_transactions=[Transaction(token, 1)])
        table.create_write_transaction([action], "append", table.schema(), commit_properties=properties)


def _delta_statistics(entry: ManifestEntry) -> str:
    """Return the JSON by which readers of the table skip files."""
    bounds: dict[str, Any] = {}
    for kind, time_ns in ("minValues", entry.first_timestamp), ("maxValues", entry.last_timestamp):
        if time_ns is not None:
            time = (_EPOCH + timedelta(microseconds=time_ns // 1000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            bounds[kind] = {"topic": entry.topic, "timestamp": time, "timestamp_ns": time_ns}
    return orjson.dumps({"numRecords": entry.messages, **bounds}).decode()


def _catalog() -> Any:
    from pyiceberg.catalog import load_catalog  # of an extra

    return load_catalog()


def _iceberg_table(catalog: Any, table: str) -> Any:
    name = table.removeprefix(ICEBERG)
    if not catalog.table_exists(name):
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        catalog.create_table_if_not_exists(name, parquet_schema())
    return catalog.load_table(name)


def _commit_to_iceberg(table: str, path: str, token: str, *, is_repeated: bool) -> None:
    with closing(_catalog()) as catalog:
        found = _iceberg_table(catalog, table)
        if is_repeated and _is_in_iceberg(found, path, token):
            return
        found.add_files([path], {_TOKEN: token}, check_duplicate_files=False)


def _is_in_iceberg(found: Any, path: str, token: str) -> bool:
    """True if a snapshot added the file, or, after that has expired, if the table still has it."""
    summaries = [snapshot.summary for snapshot in found.snapshots() if snapshot.summary is not None]
    is_added = any(summary.get(_TOKEN) == token for summary in summaries)
    return is_added or path in found.inspect.data_files()["file_path"].to_pylist()
