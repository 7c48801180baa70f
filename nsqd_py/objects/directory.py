"""`DirectoryObjects`: objects as files of a directory, for a backup, a mounted file system, and tests.

An object is written under another name and synced; then a link gives it its name, which fails if there is one. A swap
compares the content while it holds the lock of the directory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nsqd_py.errors import NsqdError
from nsqd_py.objects.calls import (
    Changed,
    Exists,
    Listed,
    Missing,
    Objects,
    StoreError,
    StoreRefused,
    Version,
    created_by_swap,
)
from nsqd_py.runtime.private_files import DIRECTORY_MODE, MODE, open_directory, open_file, read_bytes

_PIECE_BYTES = 1024 * 1024
# Files that begin so are no objects: they are being written.
_TEMPORARY = ".writing-"
_REFUSED = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EOPNOTSUPP,
    errno.EINVAL,
)


class DirectoryObjects(Objects):
    """The objects in a directory, which is made with the first of them. A version is the content itself."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __repr__(self) -> str:
        return f"file://{self._root}"

    def create(self, name: str, data: bytes) -> Version:
        path = self._path(name)
        with _translated(name), _written(path, (data,)) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                raise Exists(f"{name} exists already") from None
        return data

    def get(self, name: str) -> tuple[bytes, Version]:
        with _translated(name, Missing):
            data = read_bytes(self._path(name))
        return data, data

    def get_range(self, name: str, start: int, end: int) -> bytes:
        with _translated(name, Missing):
            descriptor = open_file(self._path(name), os.O_RDONLY)
            try:
                return os.pread(descriptor, max(0, end - start), start)
            finally:
                os.close(descriptor)

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        if version is None:
            return created_by_swap(self, name, data)
        path = self._path(name)
        with _translated(name, Changed), _lock_of(self._root):
            try:
                found = read_bytes(path)
            except FileNotFoundError:
                raise Changed(f"{name} is missing") from None
            if found != version:
                raise Changed(f"{name} was replaced")
            with _written(path, (data,)) as temporary:
                os.rename(temporary, path)
        return data

    def put_file(self, name: str, path: Path, size_bytes: int) -> None:
        target = self._path(name)
        with open(path, "rb", opener=open_file) as source, _translated(name):
            pieces = iter(lambda: source.read(min(_PIECE_BYTES, size_bytes - source.tell())), b"")
            with _written(target, pieces) as temporary:
                if os.path.getsize(temporary) != size_bytes:
                    raise OSError(errno.EIO, f"{path} has fewer than {size_bytes} bytes")
                os.rename(temporary, target)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with _translated(name), suppress(FileNotFoundError):
                self._path(name).unlink()

    def list(self, prefix: str) -> Iterator[Listed]:
        for directory, _, files in os.walk(self._path(prefix)):
            for file in files:
                path = Path(directory, file)
                if file.startswith(_TEMPORARY):
                    continue
                with suppress(FileNotFoundError):
                    yield Listed(str(path.relative_to(self._root)), path.stat().st_size)

    def _path(self, name: str) -> Path:
        if any(part in ("", ".", "..") for part in name.split("/")):
            raise StoreRefused(f"{name!r} is no name of an object")
        return self._root / name


@contextmanager
def _written(path: Path, pieces: Iterable[bytes]) -> Iterator[Path]:
    """Write a synced file next to `path`; the caller renames or links it. Then sync the name."""
    os.makedirs(path.parent, DIRECTORY_MODE, exist_ok=True)
    temporary = path.with_name(f"{_TEMPORARY}{os.urandom(8).hex()}")
    try:
        descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
        with open(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(descriptor)
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    _sync_names(path.parent)


def _sync_names(directory: Path) -> None:
    descriptor = open_directory(directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _lock_of(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; wait for it."""
    import fcntl

    descriptor = open_directory(directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _translated(name: str, missing: type[NsqdError] = StoreError) -> Iterator[None]:
    """Raise an OSError as an error of a store.

    missing  the error if there is no file; a write finds none only if its directory is removed in the meantime
    """
    try:
        yield
    except FileNotFoundError:
        raise missing(f"{name} is missing") from None
    except OSError as error:
        text = f"{name}: {error.strerror or error}"
        if error.errno in _REFUSED:
            raise StoreRefused(text) from error
        raise StoreError(text) from error
