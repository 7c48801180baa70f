"""Finds, lists and opens files: local ones, and those of any file system that pyarrow or Hadoop opens."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from nsq_spark.archive.files import RemoteFile
from nsq_spark.archive.splits import ArchiveError, Gone, first_line
from nsqd_py.stores.directories import DELTA_LOG, LocalFiles, is_passed_over
from nsqd_py.stores.directories import Entry as Entry
from nsqd_py.stores.files import File, LocalFile
from nsqd_py.stores.object_stores import Store, open_store

# The directory of a store's rounds, and the name of a log file behind it.
_MAY_BE_TAIL = "/rounds/"


class Storage:
    """Opens files, and lists them as `Files` does. A path without a scheme, or with `file:`, is local; but see `resolved`.

    `options` are Hadoop's settings by name, as in Spark (`fs.s3a.endpoint`); see `open_store`. A Storage can be pickled:
    each process opens its own file systems. All methods raise ArchiveError.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self.options = dict(options or {})
        self._stores: dict[str, Store] = {}

    def __reduce__(self) -> tuple[type[Storage], tuple[dict[str, str]]]:
        return Storage, (self.options,)

    def resolved(self, path: str) -> str:
        """Return the full path that a user's path stands for: as in Spark, one without a scheme is of the file system
        that `fs.defaultFS` names.
        """
        default = self.options.get("fs.defaultFS")
        if is_local(path) and not path.startswith("file:") and default and not default.startswith("file:"):
            home = "" if path.startswith("/") else f"/user/{getpass.getuser()}/"
            path = default.rstrip("/") + home + path.removeprefix("./")
        if is_local(path):
            return local_path(path)
        return path

    def open(self, path: str) -> File:
        """Open a file, or a tail of a store, which is in its rounds. Raises Gone if there is no such file."""
        if _MAY_BE_TAIL in path and (tail := self._open_tail(path)):
            return tail
        with _errors_of(path):
            if is_local(path):
                return LocalFile.open(local_path(path))
            store = self._store(path)
            return RemoteFile(store.files.open_input_file(store.inner(path)))

    def _open_tail(self, path: str) -> File | None:
        from nsq_spark.archive.store_logs import open_tail  # which only stores need

        return open_tail(path, self.open)

    def read(self, path: str, size_bytes: int) -> bytes:
        """Return the first bytes of a file. Raises Gone if there is no such file."""
        with self.open(path) as file, _errors_of(path):
            return file.read_at(0, min(size_bytes, file.size_bytes))

    def head(self, path: str, size_bytes: int) -> bytes:
        with suppress(ArchiveError):
            return self.read(path, size_bytes)
        return b""

    def find(self, path: str) -> Entry | None:
        if not is_local(path):
            store, info = self._infos(path)
            if info.type == pafs.FileType.File:
                return _remote_entry(store, info)
            return None
        entry = _local.find(local_path(path))
        if entry:
            return entry._replace(path=as_text(entry.path))
        return None

    def may_grow(self, path: str) -> bool:
        """False if no process has the file open for writing, as the kernel of Linux knows of files on this machine's disks."""
        if not is_local(path) or sys.platform != "linux":
            return True
        with self.open(path) as file:
            return not isinstance(file, LocalFile) or file.may_have_writer()

    def is_directory(self, path: str) -> bool:
        if is_local(path):
            return os.path.isdir(local_path(path))
        _, info = self._infos(path)
        return bool(info.type == pafs.FileType.Directory)

    def names(self, directory: str) -> list[str]:
        if is_local(directory):
            return _local.names(local_path(directory))
        with suppress(ArchiveError):
            _, infos = self._infos(directory, recursive=False)
            return [info.base_name for info in infos]
        return []

    def walk(self, directory: str) -> Iterator[Entry]:
        if is_local(directory):
            for entry in _local.walk(local_path(directory)):
                yield entry._replace(path=as_text(entry.path))
            return
        store, infos = self._infos(directory, recursive=True, allow_not_found=True)
        for info in infos:
            *directories, name = info.path.removeprefix(store.inner(directory)).split("/")
            if any(map(is_passed_over, directories)):
                continue
            if info.type == pafs.FileType.File or name == DELTA_LOG:
                yield _remote_entry(store, info)

    def _infos(self, path: str, **selector: bool) -> tuple[Store, Any]:
        """Return the store of a path and what the path leads to; with a selector, what is in the directory.

        A bucket that is not there is an error, and not an empty one.
        """
        store = self._store(path)
        inner = store.inner(path)
        with _errors_of(path):
            asked = pafs.FileSelector(inner, **selector) if selector else inner
            found = store.files.get_file_info(asked)
            if not found or (not selector and found.type == pafs.FileType.NotFound):
                store.check_bucket()
        return store, found

    def _store(self, path: str) -> Store:
        scheme, authority = urlsplit(path)[:2]
        if scheme in ("http", "https"):
            paths = "a directory, a file, or one of an object store such as s3a://bucket/path"
            raise ArchiveError(
                f"{path} is an address; an archive is a path: {paths}; the option nsqd reads a running nsqd"
            )
        key = f"{scheme}://{authority}"
        if key not in self._stores:
            with _errors_of(path):
                self._stores[key] = open_store(path, self.options)
        return self._stores[key]


# ---- paths


def is_local(path: str) -> bool:
    return "://" not in path or path.startswith("file:")


def local_path(path: str) -> str:
    """Return the absolute path of a `file:` URI or a relative path."""
    if path.startswith("file:"):
        path = os.fsdecode(unquote_to_bytes(urlsplit(path).path))
    above, dots, below = f"{path}/".rpartition("/../")
    if dots:  # what is before them may be a symbolic link, and then its parent is not the directory that the text names
        real = os.path.realpath(f"{above}/..")
        path = os.path.join(real, below.lstrip("/"))
    return os.path.abspath(path)


def as_text(path: str) -> str:
    """Return the path, as a `file:` URI if a name in it is not UTF-8, so that it can be a column, and JSON."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"file://{quote(os.fsencode(path))}"
    return path


def identical(path: str) -> str:
    """Return the same text for all ways to write a path: relative, through links, `file:`, with a slash at its end."""
    if is_local(path):
        return as_text(os.path.realpath(local_path(path)))
    return path.rstrip("/")


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def directory_of(path: str) -> str:
    return path.rpartition("/")[0]


# ---- entries


def _remote_entry(store: Store, info: Any) -> Entry:
    return Entry(store.outer(info.path), info.size or 0, info.mtime_ns or 0)


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """Raise errors of the system and of pyarrow as ArchiveError."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError) as error:
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        else:
            reason = first_line(error)
        kind = Gone if isinstance(error, FileNotFoundError) else ArchiveError
        raise kind(f"{path} cannot be read: {reason}") from error


def _refuse(error: OSError) -> None:
    with _errors_of(str(error.filename)):
        raise error


_local = LocalFiles(_refuse)
