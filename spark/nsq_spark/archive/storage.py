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

# ---- file systems by their schemes

_S3, _AZURE = "fs.s3a.", "fs.azure."
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
# Names of pyarrow's arguments by Hadoop's settings.
_S3_TEXTS = {
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    "endpoint.region": "region",
}
_AZURE_TEXTS = {"account.key": "account_key", "sas.fixed.token": "sas_token"}
_AZURE_HOST = "dfs.core.windows.net"


class System(NamedTuple):
    """An open file system. A path `uri` + x is `root` + x in it."""

    files: Any
    uri: str
    root: str

    def inner(self, path: str) -> str:
        behind = path[len(self.uri) :]
        return (self.root + behind).rstrip("/") or "/"

    def outer(self, inner: str) -> str:
        return self.uri + inner[len(self.root) :]


def s3_arguments(options: Mapping[str, str], bucket: str = "") -> dict[str, object]:
    """Return the arguments of pyarrow's S3FileSystem for a bucket."""
    own = f"{_S3}bucket.{bucket}."
    options = {**options, **{_S3 + name[len(own) :]: text for name, text in options.items() if name.startswith(own)}}
    arguments: dict[str, object] = {name: text for key, name in _S3_TEXTS.items() if (text := options.get(_S3 + key))}
    if endpoint := options.get(_S3 + "endpoint"):
        scheme, found, host = endpoint.rpartition("://")
        is_encrypted = options.get(_S3 + "connection.ssl.enabled", "true").lower() != "false"
        arguments["endpoint_override"] = host
        arguments["scheme"] = scheme if found else "https" if is_encrypted else "http"
        # Spark's default is the bucket in the host's name; what is not Amazon's seldom has names for that.
        arguments["force_virtual_addressing"] = options.get(_S3 + "path.style.access", "true").lower() == "false"
    if _ANONYMOUS in options.get(_S3 + "aws.credentials.provider", ""):
        arguments["anonymous"] = True
    return arguments


def azure_arguments(options: Mapping[str, str], host: str) -> dict[str, object]:
    """Return the arguments of pyarrow's AzureFileSystem for `<account>.dfs.core.windows.net`, or an account alone."""
    account = host.partition(".")[0]
    suffix = f".{account}.{_AZURE_HOST}"
    texts = {name: options.get(_AZURE + key + suffix) or options.get(_AZURE + key) for key, name in _AZURE_TEXTS.items()}
    return {"account_name": account, **{name: text for name, text in texts.items() if text}}


def open_system(scheme: str, authority: str, options: Mapping[str, str]) -> System:
    """Raises ArchiveError, OSError, ValueError and pyarrow's errors."""
    uri = f"{scheme}://{authority}/"
    if scheme in ("s3a", "s3n", "s3"):
        return System(pafs.S3FileSystem(**s3_arguments(options, authority)), uri, f"{authority}/")
    if scheme == "gs":
        return System(pafs.GcsFileSystem(), uri, f"{authority}/")
    if scheme not in ("abfs", "abfss"):
        return System(pafs.HadoopFileSystem.from_uri(uri), uri, "/")
    container, found, host = authority.partition("@")
    if not found:
        raise ArchiveError(f"{scheme}://{authority} names no container: write <container>@<account>.{_AZURE_HOST}")
    return System(pafs.AzureFileSystem(**azure_arguments(options, host)), uri, f"{container}/")


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
        self._systems: dict[str, System] = {}

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
            system = self._system(path)
            return RemoteFile(system.files.open_input_file(system.inner(path)))
        except (OSError, pa.ArrowException) as error:
            raise _not_readable(path, error) from error

    def find(self, path: str) -> Entry | None:
        """Return the file at this path; None for a directory, and if there is nothing."""
        if is_local(path):
            return _local_entry(local_path(path))
        system, info = self._info(path)
        return _remote_entry(system, info) if info.type == pafs.FileType.File else None

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

    def _info(self, path: str) -> tuple[System, Any]:
        system = self._system(path)
        return system, self._infos(path, system, system.inner(path))

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; nothing if it cannot be listed."""
        try:
            if is_local(directory):
                return os.listdir(local_path(directory))
            system = self._system(directory)
            return [info.base_name for info in system.files.get_file_info(pafs.FileSelector(system.inner(directory)))]
        except (OSError, pa.ArrowException, ArchiveError):
            return []

    def walk(self, directory: str) -> Iterator[Entry]:
        """Yield all files below a directory, which need not exist, in no order; none in directories that are passed over."""
        if is_local(directory):
            yield from _walk_local(local_path(directory))
            return
        system = self._system(directory)
        inner = system.inner(directory)
        for info in self._infos(directory, system, pafs.FileSelector(inner, allow_not_found=True, recursive=True)):
            directories = info.path[len(inner) :].split("/")[:-1]
            if info.type == pafs.FileType.File and not any(map(_is_passed_over, directories)):
                yield _remote_entry(system, info)

    def _infos(self, path: str, system: System, what: Any) -> Any:
        try:
            return system.files.get_file_info(what)
        except (OSError, pa.ArrowException) as error:
            raise _not_readable(path, error) from error

    def _system(self, path: str) -> System:
        scheme, authority = urlsplit(path)[:2]
        if scheme in ("http", "https"):
            paths = "a directory, a file, or one of an object store such as s3a://bucket/path"
            raise ArchiveError(f"{path} is an address; an archive is a path: {paths}; the option nsqd reads a running nsqd")
        key = f"{scheme}://{authority}"
        if key not in self._systems:
            try:
                self._systems[key] = open_system(scheme, authority, self.options)
            except (OSError, pa.ArrowException, ValueError) as error:
                raise _not_readable(path, error) from error
        return self._systems[key]


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
        yield from filter(None, (_local_entry(f"{parent.rstrip('/')}/{name}") for name in sorted(names)))


def _remote_entry(system: System, info: Any) -> Entry:
    return Entry(system.outer(info.path), info.size, info.mtime_ns or 0)


def _not_readable(path: str, error: Exception) -> ArchiveError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
    return ArchiveError(f"{path} cannot be read: {reason}")
