"""Object stores that finished files are uploaded to, and tables of Delta and Iceberg that they are committed to.

Both can be repeated after a kill: an upload writes the same object again, and a table that has the file says so. The key
is the token of the file's claim, which stays in the table when its files are compacted. All functions block.

Many small commits must not make a table slow: what a commit leaves is limited where the table is created. Files and
snapshots are left to those who own the table (docs/small-files.md).

The packages are extras. Credentials and endpoints are those of the environment, and of pyiceberg's configuration.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from nsq_tools.to_file.formats import parquet_schema
from nsq_tools.to_file.output import ManifestEntry
from nsqd_py.runtime.private_files import open_directory
from nsqd_py.stores.object_stores import delta_options, iceberg_properties, open_store
from nsqd_py.stores.tables import is_in, pointer_to

DELTA = "delta"
ICEBERG = "iceberg:"
# In the summary of an Iceberg snapshot: the token of the file that it added.
_TOKEN = "nsq-to-file"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Delta forgets the token of a file after this time; else its checkpoints would grow with each file for ever. A claim that was
# left for longer is searched for among the files of the table.
_DELTA_LIMITS = {"delta.setTransactionRetentionDuration": "interval 30 days"}
# Iceberg writes all snapshots again with each commit: it keeps ten of these files, and merges the lists of files. Without that,
# 100 commits leave 4.7 MB, with it 1.4 MB.
_ICEBERG_LIMITS = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "10",
}
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block
# Google's client repeats a request for 15 minutes, also if there are no credentials: too long for the check of a start.
_CHECK_S = 5
# Topics of a process commit one after the other: Iceberg refuses all but one of several commits at the same time.
_committing = Lock()


def package_of(table: str) -> tuple[str, str]:
    """Return the package for a table, and its extra."""
    if table == DELTA:
        return ("deltalake", "delta")
    return ("pyiceberg", "iceberg")


@contextmanager
def _os_errors(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the packages and their clients of stores and catalogs raise many kinds
        # Google's client says everything twice.
        reason = str(error).partition("\n")[0].partition(" error_info=")[0]
        raise OSError(f"{where}: {reason or type(error).__name__}") from error


# --- object stores


def check_store(url: str) -> None:
    """Raise OSError if the object store does not answer within seconds, or if the bucket is not there."""
    with _os_errors(url):
        store = open_store(url, retry_s=_CHECK_S)
        store.check_bucket()
        store.files.get_file_info(store.inner(url))


def upload(source: Path, url: str, name: str) -> None:
    """Make an object of a file; it is there when it is complete. A missing file must be there already. Raises OSError."""
    from pyarrow import fs  # of an extra

    with _os_errors(url):
        store = _opened_store(url)
        target = store.inner(f"{url.rstrip('/')}/{name}")
        if source.exists():
            fs.copy_files(str(source), target, fs.LocalFileSystem(), store.files)
        elif store.files.get_file_info(target).type != fs.FileType.File:
            raise FileNotFoundError(f"neither {source} nor the object {name} is there")


# Opened once for all files of a process.
_opened_store = lru_cache(open_store)


# --- tables


def check_table(table: str, root: str) -> None:
    """Create the table if it is missing. Raises OSError."""
    with _os_errors(table), _committing:
        if table == DELTA:
            _delta_table(root)
        else:
            with _iceberg_table(table, root) as found:
                _leave_pointer(root, found.location())


def commit(table: str, root: str, entry: ManifestEntry, token: str, *, is_repeated: bool) -> None:
    """Add a file below `root` to a table, unless an earlier call has, as `is_repeated` says is possible. Raises OSError."""
    with _os_errors(table), _committing:
        if table == DELTA:
            _commit_to_delta(root, entry, token, is_repeated=is_repeated)
        else:
            _commit_to_iceberg(table, root, entry.path, token, is_repeated=is_repeated)


def _delta_table(root: str) -> Any:
    from deltalake import DeltaTable, Schema  # of an extra

    options = delta_options(root)
    table = DeltaTable.create(
        root, parquet_schema(), mode="ignore", configuration=_DELTA_LIMITS, storage_options=options
    )
    there = {field.name: field.type for field in table.schema().fields}
    ours = Schema.from_arrow(parquet_schema())
    is_ours = all(there.get(field.name) == field.type for field in ours.fields)
    if table.metadata().partition_columns or not is_ours:  # no reader could read it with one of our files
        raise OSError(f"the table in {root} is partitioned, or its columns are not those of nsq-to-file")
    return table


def _commit_to_delta(root: str, entry: ManifestEntry, token: str, *, is_repeated: bool) -> None:
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction

    table = _delta_table(root)
    is_there = table.transaction_version(token) is not None
    if is_there or (is_repeated and any(uri.endswith(f"/{entry.path}") for uri in table.file_uris())):
        return
    action = AddAction(entry.path, entry.bytes, {}, entry.closed // 1_000_000, True, _delta_statistics(entry))
    transaction = Transaction(token, 1, time.time_ns() // 1_000_000)
    properties = CommitProperties(app_transactions=[transaction])
    table.create_write_transaction([action], "append", table.schema(), commit_properties=properties)


def _delta_statistics(entry: ManifestEntry) -> str:
    """Return the JSON by which readers of the table skip files."""
    bounds: dict[str, Any] = {}
    for kind, time_ns in ("minValues", entry.first_timestamp), ("maxValues", entry.last_timestamp):
        if time_ns is not None:
            time = (_EPOCH + timedelta(microseconds=time_ns // 1000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            bounds[kind] = {"topic": entry.topic, "timestamp": time, "timestamp_ns": time_ns}
    return orjson.dumps({"numRecords": entry.messages, **bounds}).decode()


@contextmanager
def _iceberg_table(table: str, root: str) -> Iterator[Any]:
    """Yield a table of pyiceberg's catalog. For the store of `root`, the environment has what its configuration does not say."""
    from pyiceberg.catalog import load_catalog  # of an extra
    from pyiceberg.exceptions import NoSuchTableError

    name = table.removeprefix(ICEBERG)
    with closing(load_catalog()) as catalog:
        for key, value in iceberg_properties(root).items():
            catalog.properties.setdefault(key, value)
        try:
            found = catalog.load_table(name)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            found = catalog.create_table_if_not_exists(name, parquet_schema(), properties=_ICEBERG_LIMITS)
        yield found


def _leave_pointer(root: str, location: str) -> None:
    """Note in the output-dir where the table of its files is, so that its readers pass over files that were rewritten.

    Raises OSError, also if the directory of these notes is a symbolic link.
    """
    if is_in(root, location):
        return
    if "://" not in root:
        pointer = Path(root, pointer_to(location))
        pointer.parent.mkdir(exist_ok=True)
        directory = open_directory(pointer.parent)
        try:
            os.close(os.open(pointer.name, _NEW_FILE, 0o666, dir_fd=directory))
        finally:
            os.close(directory)
        return
    store = _opened_store(root)
    with store.files.open_output_stream(store.inner(f"{root.rstrip('/')}/{pointer_to(location)}")):
        pass


def _commit_to_iceberg(table: str, root: str, name: str, token: str, *, is_repeated: bool) -> None:
    path = f"{root}/{name}"
    with _iceberg_table(table, root) as found:
        if not (is_repeated and _is_in_iceberg(found, path, token)):
            found.add_files([path], {_TOKEN: token}, check_duplicate_files=False)


def _is_in_iceberg(found: Any, path: str, token: str) -> bool:
    """True if a snapshot added the file, or, after that has expired, if the table still has it."""
    summaries = [snapshot.summary for snapshot in found.snapshots() if snapshot.summary is not None]
    is_added = any(summary.get(_TOKEN) == token for summary in summaries)
    if is_added:
        return True
    return path in found.inspect.data_files()["file_path"].to_pylist()
