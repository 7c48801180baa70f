"""Files: local ones, and those of any file system that pyarrow or Hadoop opens. Read at a place, listed, described."""

from __future__ import annotations

import errno
import getpass
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self
from urllib.parse import quote, unquote_to_bytes, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from nsq_spark.archive import remote
from nsq_spark.archive.damage import ArchiveError
from nsq_spark.archive.remote import HadoopFiles, configured_default

# A link that leads in a circle is no file.
_NO_FILE = (FileNotFoundError, NotADirectoryError)


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
    """Opens and lists. A path without a scheme, or with `file:`, is local; but see `resolved`.

    options  Hadoop's settings by name, as Spark knows them (`fs.s3a.endpoint`); see `remote`

    Can be pickled: each process opens file systems of its own. Raises ArchiveError.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self.options = dict(options or {})
        self._systems: dict[str, remote.System] = {}

    def __reduce__(self) -> tuple[type[Storage], tuple[dict[str, str]]]:
        return Storage, (self.options,)

    def resolved(self, path: str) -> str:
        """A path that a user wrote, with all that it stands for: as in Spark, one without a scheme is of the file
        system that `fs.defaultFS` names.
        """
        default = self.options.get("fs.defaultFS") or configured_default(os.environ)
        if is_local(path) and not path.startswith("file:") and default and not default.startswith("file:"):
            home = "" if path.startswith("/") else f"/user/{getpass.getuser()}/"
            path = default.rstrip("/") + home + path.removeprefix("./")
        return local_path(path) if is_local(path) else path

    def open(self, path: str) -> File:
        try:
            if is_local(path):
                return LocalFile.open(local_path(path))
            system = self._system(path)
            if isinstance(system.files, HadoopFiles):
                return system.files.open_file(system.inner(path))
            return RemoteFile(system.files.open_input_file(system.inner(path)))
        except (OSError, pa.ArrowException) as error:
            raise _not_readable(path, error) from error

    def find(self, path: str) -> Entry | None:
        """The file at this path; None where there is none, or a directory."""
        if is_local(path):
            return _local_entry(local_path(path))
        system = self._system(path)
        info = self._infos(path, system, system.inner(path))
        return _remote_entry(system, info) if info.type == pafs.FileType.File else None

    def is_directory(self, path: str) -> bool:
        if is_local(path):
            return os.path.isdir(local_path(path))
        system = self._system(path)
        return bool(self._infos(path, system, system.inner(path)).type == pafs.FileType.Directory)

    def names(self, directory: str) -> list[str]:
        """What is in a directory; nothing where it cannot be listed."""
        try:
            if is_local(directory):
                return os.listdir(local_path(directory))
            system = self._system(directory)
            return [info.base_name for info in system.files.get_file_info(pafs.FileSelector(system.inner(directory)))]
        except (OSError, pa.ArrowException, ArchiveError):
            return []

    def walk(self, directory: str) -> Iterator[Entry]:
        """All files below a directory, which need not exist, in no order; none in a hidden one (`.name`, `_name`)."""
        if is_local(directory):
            yield from _walk_local(local_path(directory))
            return
        system = self._system(directory)
        inner = system.inner(directory)
        for info in self._infos(directory, system, pafs.FileSelector(inner, allow_not_found=True, recursive=True)):
            directories = info.path[len(inner) :].split("/")[:-1]
            if info.type == pafs.FileType.File and not any(map(is_hidden, directories)):
                yield _remote_entry(system, info)

    def _infos(self, path: str, system: remote.System, what: Any) -> Any:
        try:
            return system.files.get_file_info(what)
        except (OSError, pa.ArrowException) as error:
            raise _not_readable(path, error) from error

    def _system(self, path: str) -> remote.System:
        scheme, authority = urlsplit(path)[:2]
        key = f"{scheme}://{authority}"
        if key not in self._systems:
            try:
                self._systems[key] = remote.open_system(scheme, authority, self.options)
            except (OSError, pa.ArrowException, ValueError) as error:
                raise _not_readable(path, error) from error
        return self._systems[key]


# ---- paths


def is_local(path: str) -> bool:
    return "://" not in path or path.startswith("file:")


def local_path(path: str) -> str:
    """An absolute path of `file:` URIs and relative paths."""
    if path.startswith("file:"):
        path = os.fsdecode(unquote_to_bytes(urlsplit(path).path))
    parts = path.split("/")
    if ".." in parts:
        # What is before a `..` may be a symbolic link, and then its parent is not the directory that the text names.
        end = len(parts) - parts[::-1].index("..")
        path = os.path.join(os.path.realpath("/".join(parts[:end])), *parts[end:])
    return os.path.abspath(path)


def as_text(path: str) -> str:
    """The path; as a `file:` URI where a name in it is not UTF-8, so that it can be a column, and JSON."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"file://{quote(os.fsencode(path))}"
    return path


def identical(path: str) -> str:
    """The same text for all ways to write a path: relative, through links, with `file:`, with a slash at its end."""
    return as_text(os.path.realpath(local_path(path))) if is_local(path) else path.rstrip("/")


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
    except OSError as error:
        if isinstance(error, _NO_FILE) or error.errno == errno.ELOOP:
            return None
        raise _not_readable(path, error) from error
    return Entry(as_text(path), status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _walk_local(directory: str) -> Iterator[Entry]:
    """Each directory once, however many links lead to it, and by its own name if it is below this one."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, _NO_FILE):
            raise _not_readable(directory, error) from error

    seen: set[tuple[int, int]] = set()
    waiting = [directory]
    for top in waiting:
        for parent, directories, names in os.walk(top, onerror=refuse):
            if not _is_new(parent, seen):
                directories.clear()
                continue
            visible = [f"{parent.rstrip('/')}/{name}" for name in directories if not is_hidden(name)]
            linked = {path for path in visible if os.path.islink(path)}
            waiting += sorted(linked)
            directories[:] = [name_of(path) for path in visible if path not in linked]
            for name in names:
                entry = _local_entry(f"{parent.rstrip('/')}/{name}")
                if entry is not None:  # a file may be gone by now
                    yield entry


def _is_new(directory: str, seen: set[tuple[int, int]]) -> bool:
    try:
        status = os.stat(directory)
    except OSError:  # it is gone by now
        return False
    known = len(seen)
    seen.add((status.st_dev, status.st_ino))
    return len(seen) > known


def _remote_entry(system: remote.System, info: Any) -> Entry:
    return Entry(system.outer(info.path), info.size, info.mtime_ns or 0)


def _not_readable(path: str, error: Exception) -> ArchiveError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
    return ArchiveError(f"{path} cannot be read: {reason}")
