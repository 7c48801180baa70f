"""Files: local ones, and those of any file system that pyarrow opens. Read at a place, listed, described."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from spark.archive import remote
from spark.archive.errors import ArchiveError


class Entry(NamedTuple):
    """A file, with its whole path."""

    path: str
    size_bytes: int
    modified_ns: int


class File(Protocol):
    """An open file. `read_at` gives fewer bytes only at the end; raises OSError."""

    @property
    def size_bytes(self) -> int: ...

    def read_at(self, offset: int, size: int) -> bytes: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Closing:
    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalFile(_Closing):
    """By `pread`, not mapped: a log that nsqd cuts under a reader would end its process."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    @classmethod
    def open(cls, path: str) -> LocalFile:
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @classmethod
    def temporary(cls) -> LocalFile:
        """A file without a name, which is gone when it is closed."""
        with tempfile.TemporaryFile() as file:
            return cls(os.dup(file.fileno()))

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]  # 2 GiB is the most at a time
        while data and (size := size - len(data)):
            offset += len(data)
            data = os.pread(self._fd, size, offset)
            parts.append(data)
        return b"".join(parts)

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def close(self) -> None:
        os.close(self._fd)


class RemoteFile(_Closing):
    """A file of pyarrow's."""

    def __init__(self, file: Any) -> None:
        self._file = file

    @property
    def size_bytes(self) -> int:
        return int(self._file.size())

    def read_at(self, offset: int, size: int) -> bytes:
        data: bytes = self._file.read_at(size, offset)
        return data

    def close(self) -> None:
        self._file.close()


class Storage:
    """Opens and lists. A path without a scheme, or with `file:`, is local.

    options  Hadoop's settings by name, as Spark knows them (`fs.s3a.endpoint`); see `remote`

    Can be pickled: each process opens file systems of its own. Raises ArchiveError.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self.options = dict(options or {})
        self._systems: dict[str, Any] = {}

    def __reduce__(self) -> tuple[type[Storage], tuple[dict[str, str]]]:
        return Storage, (self.options,)

    def open(self, path: str) -> File:
        try:
            if is_local(path):
                return LocalFile.open(local_path(path))
            system, inner = self._system(path)
            return RemoteFile(system.open_input_file(inner))
        except (OSError, pa.ArrowException) as error:
            raise _not_readable(path, error) from error

    def find(self, path: str) -> Entry | None:
        """The file at this path; None where there is none, or a directory."""
        if is_local(path):
            return _local_entry(local_path(path))
        system, inner = self._system(path)
        info = self._infos(path, lambda: [system.get_file_info(inner)])[0]
        return _remote_entry(path, inner, info) if info.type == pafs.FileType.File else None

    def is_directory(self, path: str) -> bool:
        if is_local(path):
            return os.path.isdir(local_path(path))
        system, inner = self._system(path)
        info = self._infos(path, lambda: [system.get_file_info(inner)])[0]
        return bool(info.type == pafs.FileType.Directory)

    def names(self, directory: str) -> list[str]:
        """What is in a directory; nothing where it cannot be listed."""
        try:
            if is_local(directory):
                return os.listdir(local_path(directory))
            system, inner = self._system(directory)
            return [info.base_name for info in system.get_file_info(pafs.FileSelector(inner))]
        except (OSError, pa.ArrowException, ArchiveError):
            return []

    def walk(self, directory: str) -> Iterator[Entry]:
        """All files below a directory, which need not exist, in no order; none in a hidden one (`.name`, `_name`)."""
        if is_local(directory):
            yield from _walk_local(local_path(directory))
            return
        system, inner = self._system(directory)
        selector = pafs.FileSelector(inner, allow_not_found=True, recursive=True)
        for info in self._infos(directory, lambda: system.get_file_info(selector)):
            directories = info.path[len(inner) :].split("/")[:-1]
            if info.type == pafs.FileType.File and not any(map(is_hidden, directories)):
                yield _remote_entry(directory, inner, info)

    def _infos(self, path: str, ask: Any) -> list[Any]:
        try:
            infos: list[Any] = ask()
        except (OSError, pa.ArrowException) as error:
            raise _not_readable(path, error) from error
        return infos

    def _system(self, path: str) -> tuple[Any, str]:
        """The file system of a path, and the path in it."""
        scheme, authority = urlsplit(path)[:2]
        key = f"{scheme}://{authority}"
        if key not in self._systems:
            try:
                self._systems[key] = remote.open_system(scheme, authority, self.options)
            except (OSError, pa.ArrowException, ValueError) as error:
                raise _not_readable(path, error) from error
        return self._systems[key], remote.inner_path(scheme, authority, path)


# ---- paths


def is_local(path: str) -> bool:
    return "://" not in path or path.startswith("file:")


def local_path(path: str) -> str:
    """An absolute path of `file:` URIs and relative paths."""
    if path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    parts = path.split("/")
    if ".." in parts:
        # What is before a `..` may be a symbolic link, and then its parent is not the directory that the text names.
        end = len(parts) - parts[::-1].index("..")
        path = os.path.join(os.path.realpath("/".join(parts[:end])), *parts[end:])
    return os.path.abspath(path)


def is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def directory_of(path: str) -> str:
    return path.rpartition("/")[0]


# ---- entries


def _local_entry(path: str) -> Entry | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _not_readable(path, error) from error
    return Entry(path, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _walk_local(directory: str) -> Iterator[Entry]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise _not_readable(directory, error) from error

    for parent, directories, names in os.walk(directory, onerror=refuse, followlinks=True):
        directories[:] = [name for name in directories if not is_hidden(name)]
        for name in names:
            entry = _local_entry(f"{parent.rstrip('/')}/{name}")
            if entry is not None:  # a file may be gone by now
                yield entry


def _remote_entry(asked: str, inner: str, info: Any) -> Entry:
    """`asked` is what the path is written as, `inner` what it is in its file system."""
    prefix = asked[: len(asked) - len(inner)] if asked.endswith(inner) else asked.partition("://")[0] + "://"
    return Entry(prefix + info.path, info.size, info.mtime_ns or 0)


def _not_readable(path: str, error: Exception) -> ArchiveError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
    return ArchiveError(f"{path} cannot be read: {reason}")
