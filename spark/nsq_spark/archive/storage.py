"""Finds, lists and opens files: local ones, and those of any file system that pyarrow or Hadoop opens."""

from __future__ import annotations

import errno
import getpass
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from nsq_spark.archive.files import File, LocalFile, RemoteFile
from nsq_spark.archive.splits import ArchiveError
from nsqd_py.stores.object_stores import Store, open_store
from nsqd_py.stores.tables import DELTA_LOG

_OF_ENGINES = re.compile(r"_(?:temporary|spark_metadata|delta_\w+|change_data|symlink_format_manifest|checkpoints?)")
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # a link that leads in a circle is no file


class Entry(NamedTuple):
    """A file, with its whole path."""

    path: str
    size_bytes: int
    modified_ns: int


class Storage:
    """Opens and lists files. A path without a scheme, or with `file:`, is local; but see `resolved`.

    `options` are Hadoop's settings by name, as in Spark (`fs.s3a.endpoint`); see `remote`. A Storage can be pickled:
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
        return local_path(path) if is_local(path) else path

    def open(self, path: str) -> File:
        try:
            if is_local(path):
                return LocalFile.open(local_path(path))
            store = self._store(path)
            return RemoteFile(store.files.open_input_file(store.inner(path)))
        except (OSError, pa.ArrowException) as error:
            raise _not_readable(path, error) from error

    def find(self, path: str) -> Entry | None:
        """Return the file at this path; None for a directory, and if there is nothing."""
        if is_local(path):
            return _local_entry(local_path(path))
        store, info = self._info(path)
        return _remote_entry(store, info) if info.type == pafs.FileType.File else None

    def may_grow(self, path: str) -> bool:
        """False if no process has the file open for writing, as the kernel of Linux knows of files on this machine's disks."""
        if not is_local(path) or sys.platform != "linux":
            return True
        with self.open(path) as file:
            return not isinstance(file, LocalFile) or file.may_have_writer()

    def is_directory(self, path: str) -> bool:
        if is_local(path):
            return os.path.isdir(local_path(path))
        return bool(self._info(path)[1].type == pafs.FileType.Directory)

    def _info(self, path: str) -> tuple[Store, Any]:
        store = self._store(path)
        return store, self._infos(path, store, store.inner(path))

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; nothing if it cannot be listed."""
        try:
            if is_local(directory):
                return os.listdir(local_path(directory))
            store = self._store(directory)
            return [info.base_name for info in store.files.get_file_info(pafs.FileSelector(store.inner(directory)))]
        except (OSError, pa.ArrowException, ArchiveError):
            return []

    def head(self, path: str, size_bytes: int) -> bytes:
        """Return the first bytes of a file; b"" if it cannot be read."""
        try:
            with self.open(path) as file:
                return file.read_at(0, size_bytes)
        except (OSError, pa.ArrowException, ArchiveError):
            return b""

    def walk(self, directory: str) -> Iterator[Entry]:
        """Yield all files below a directory, which need not exist, in no order; none in directories that are passed over.

        The log of a Delta table is passed over too, but an Entry of its directory, of 0 bytes, says that it is there.
        """
        if is_local(directory):
            yield from _walk_local(local_path(directory))
            return
        store = self._store(directory)
        inner = store.inner(directory)
        for info in self._infos(directory, store, pafs.FileSelector(inner, allow_not_found=True, recursive=True)):
            *directories, name = info.path[len(inner) :].split("/")
            if any(map(_is_passed_over, directories)):
                continue
            if info.type == pafs.FileType.File or name == DELTA_LOG:
                yield _remote_entry(store, info)

    def _infos(self, path: str, store: Store, what: Any) -> Any:
        """Return what a path or a selector leads to. A bucket that is not there is an error, and not an empty one."""
        try:
            found = store.files.get_file_info(what)
            if not found or (isinstance(what, str) and found.type == pafs.FileType.NotFound):
                store.check_bucket()
            return found
        except (OSError, pa.ArrowException) as error:
            raise _not_readable(path, error) from error

    def _store(self, path: str) -> Store:
        scheme, authority = urlsplit(path)[:2]
        if scheme in ("http", "https"):
            paths = "a directory, a file, or one of an object store such as s3a://bucket/path"
            raise ArchiveError(f"{path} is an address; an archive is a path: {paths}; the option nsqd reads a running nsqd")
        key = f"{scheme}://{authority}"
        if key not in self._stores:
            try:
                self._stores[key] = open_store(path, self.options)
            except (OSError, pa.ArrowException, ValueError) as error:
                raise _not_readable(path, error) from error
        return self._stores[key]


# ---- paths


def is_local(path: str) -> bool:
    return "://" not in path or path.startswith("file:")


def local_path(path: str) -> str:
    """Return the absolute path of a `file:` URI or a relative path."""
    if path.startswith("file:"):
        path = os.fsdecode(unquote_to_bytes(urlsplit(path).path))
    parts = path.split("/")
    if ".." in parts:
        # What is before a `..` may be a symbolic link, and then its parent is not the directory that the text names.
        end = len(parts) - parts[::-1].index("..")
        path = os.path.join(os.path.realpath("/".join(parts[:end])), *parts[end:])
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
    return as_text(os.path.realpath(local_path(path))) if is_local(path) else path.rstrip("/")


def is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _is_passed_over(directory: str) -> bool:
    """True for the name of a hidden directory, and of one in which Spark or a table format keeps its own files. Others may
    be named after a topic, which may begin with an underscore.
    """
    return directory.startswith(".") or _OF_ENGINES.fullmatch(directory) is not None


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def directory_of(path: str) -> str:
    return path.rpartition("/")[0]


# ---- entries


def _local_entry(path: str) -> Entry | None:
    """Return the file at this path; None for a directory, and where there is nothing. Raises ArchiveError."""
    status = _status(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return Entry(as_text(path), status.st_size, status.st_mtime_ns)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise _not_readable(path, error) from error


def _walk_local(directory: str) -> Iterator[Entry]:
    """Yield the files of each directory once, however many links lead to it."""

    def on_error(error: OSError) -> None:
        if error.errno not in _NO_FILE:
            raise _not_readable(str(error.filename), error)

    seen: set[tuple[int, int]] = set()
    for parent, directories, names in os.walk(directory, onerror=on_error, followlinks=True):
        status = _status(parent)
        if status is None or (status.st_dev, status.st_ino) in seen:
            directories.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        own_first = sorted(directories, key=lambda name: (os.path.islink(f"{parent}/{name}"), name))
        directories[:] = [name for name in own_first if not _is_passed_over(name)]
        if DELTA_LOG in own_first:
            yield Entry(as_text(f"{parent.rstrip('/')}/{DELTA_LOG}"), 0, 0)
        yield from filter(None, (_local_entry(f"{parent.rstrip('/')}/{name}") for name in sorted(names)))


def _remote_entry(store: Store, info: Any) -> Entry:
    return Entry(store.outer(info.path), info.size or 0, info.mtime_ns or 0)


def _not_readable(path: str, error: Exception) -> ArchiveError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
    return ArchiveError(f"{path} cannot be read: {reason}")
