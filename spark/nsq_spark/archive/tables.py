"""The files below a directory that readers read: of Delta and Iceberg tables, their current files."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.archive.storage import Entry, Storage
from nsqd_py.stores.tables import UnreadableTable, current_files, everything


def walk(directory: str, storage: Storage, is_chosen: Callable[[str], bool] = everything) -> Iterator[Entry]:
    """Yield the files below a directory as `Storage.walk` does, without those that a pattern leaves out, and without those
    that a table has rewritten. Raises ArchiveError.
    """
    entries = {entry.path: entry for entry in storage.walk(directory)}
    try:
        paths = current_files(directory, list(entries), storage, is_chosen, storage.options)
    except UnreadableTable as error:
        raise ArchiveError(str(error)) from error
    for path in paths:
        entry = entries.get(path) or storage.find(path)
        if entry is None:
            raise ArchiveError(f"the table in {directory} lists {path}, which is not there")
        yield entry
