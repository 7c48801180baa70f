"""Object stores that finished files are uploaded to, and tables of Delta and Iceberg that they are committed to.

Both can be repeated after a kill: an upload writes the same object again, and a table that has the file says so. The key
is the token of the file's claim, which stays in the table when its files are compacted. All functions block.

Many small commits must not make a table slow: what a commit leaves is limited where the table is created. Files and
snapshots are left to those who own the table (docs/small-files.md).

The packages are extras. Credentials and endpoints are those of the environment, and of pyiceberg's configuration.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from nsq_tools.to_file.formats import parquet_schema
from nsq_tools.to_file.output import ManifestEntry
from nsqd_py.runtime.private_files import open_directory
from nsqd_py.stores.commits import (
    DELTA,
    TableFile,
    check_fits,
    commit_to_delta,
    delta_table,
    iceberg_table,
    os_errors,
)
from nsqd_py.stores.object_stores import iceberg_properties, open_store
from nsqd_py.stores.tables import is_in, pointer_to

# In the summary of an Iceberg snapshot: the token of the file that it added.
_TOKEN = "nsq-to-file"
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


# --- object stores


def check_store(url: str) -> None:
    """Raise OSError if the object store does not answer within seconds, or if the bucket is not there."""
    with os_errors(url):
        store = open_store(url, retry_s=_CHECK_S)
        store.check_bucket()
        store.files.get_file_info(store.inner(url))


def upload(source: Path, url: str, name: str) -> None:
    """Make an object of a file; it is there when it is complete. A missing file must be there already. Raises OSError."""
    from pyarrow import fs  # of an extra

    with os_errors(url):
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
    with os_errors(table), _committing:
        if table == DELTA:
            _delta_table(root)
        else:
            with _iceberg_table(table, root) as found:
                _leave_pointer(root, found.location())


def commit(table: str, root: str, entry: ManifestEntry, token: str, *, is_repeated: bool) -> None:
    """Add a file below `root` to a table, unless an earlier call has, as `is_repeated` says is possible. Raises OSError."""
    with os_errors(table), _committing:
        if table == DELTA:
            _commit_to_delta(root, entry, token, is_repeated=is_repeated)
        else:
            _commit_to_iceberg(table, root, entry.path, token, is_repeated=is_repeated)


def _delta_table(root: str) -> Any:
    schema = parquet_schema()
    table = delta_table(root, schema, configuration=_DELTA_LIMITS)
    check_fits(table, schema, root, "nsq-to-file")
    return table


def _commit_to_delta(root: str, entry: ManifestEntry, token: str, *, is_repeated: bool) -> None:
    table = _delta_table(root)
    is_there = table.transaction_version(token) is not None
    if is_there or (is_repeated and any(uri.endswith(f"/{entry.path}") for uri in table.file_uris())):
        return
    times = entry.first_timestamp, entry.last_timestamp
    file = TableFile(entry.path, entry.bytes, entry.messages, entry.topic, times)
    commit_to_delta(table, [file], entry.closed // 1_000_000, {token: 1})


def _iceberg_table(table: str, root: str) -> AbstractContextManager[Any]:
    """Return a table of pyiceberg's catalog. For the store of `root`, the environment has what its configuration does not say."""
    return iceberg_table(table, parquet_schema(), _ICEBERG_LIMITS, iceberg_properties(root))


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
