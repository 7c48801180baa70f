"""Private files and directories: only their owner can read them, whatever the umask is. They contain messages.

Files        written only if they are regular files and have the given name themselves. Through a symbolic link, somebody
             who may write to the directory could make a program overwrite any other file of its user.
Directories  made, filled and removed with the same care.
Locks        held by descriptors of directories: one nsqd works in a data path.
Files of others, such as certificates, are read, also through links. A stamp says if one has changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

# (modification time in ns, inode, size) of a file: a tool may replace the file, or overwrite it. None without one.
Stamp = tuple[int, int, int] | None

MODE = 0o600
DIRECTORY_MODE = 0o700
_NO_LINKS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe without a reader must not block


# ---- files


def open_file(path: str | Path, flags: int, mode: int = MODE) -> int:
    """Open a file and return its descriptor. Raises OSError, also if it is a symbolic link or no regular file."""
    try:
        descriptor = os.open(path, flags | _NO_LINKS, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return descriptor


@contextmanager
def opened(path: str | Path, flags: int, mode: int = MODE) -> Iterator[int]:
    """Yield the descriptor of a file, which is closed then. Raises OSError as `open_file` does."""
    descriptor = open_file(path, flags, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def create(path: str | Path, buffer_bytes: int = -1) -> BinaryIO:
    """Open an empty file for writing. Raises OSError."""
    return open(path, "wb", buffer_bytes, opener=open_file)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file with this content. Raises OSError."""
    with create(path) as file:
        file.write(data)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raises OSError as `open_file` does."""
    with open(path, "rb", opener=open_file) as file:
        return file.read()


# ---- directories


def make_directory(path: str | Path) -> None:
    """Make a directory for its owner only, or use the one that exists. Raises OSError, also if it is a symbolic link."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        os.close(open_directory(path))


def open_directory(path: str | Path, *, is_own: bool = False) -> int:
    """Open a directory and return its descriptor. Raises OSError, also if it is a symbolic link.

    is_own  raise OSError if the directory belongs to another user, who may have made it before
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if os.path.islink(path):
            raise OSError(error.errno, f"{path} is a symbolic link, which is not followed") from None
        raise
    if is_own and os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise OSError(errno.EPERM, f"{path} belongs to another user")
    return descriptor


# ---- locks of directories


def lock_directory(path: str | Path, *, is_exclusive: bool = True) -> int:
    """Return a descriptor that holds the lock of a data path; Go's nsqd uses the same lock.

    Raises BlockingIOError if an nsqd works there, and OSError.
    """
    return _lock(os.open(path, os.O_RDONLY | os.O_DIRECTORY), is_exclusive=is_exclusive)


def _lock(descriptor: int, *, is_exclusive: bool = True) -> int:
    """Lock an open directory and return its descriptor. Close it if that fails. Raises OSError."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def making(path: str | Path, *, is_own: bool = False) -> Iterator[int]:
    """Make a directory as `make_directory` does, and hold its lock. Yield its descriptor. Raises as `open_directory` does."""
    make_directory(path)
    descriptor = _lock(open_directory(path, is_own=is_own))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: str | Path, *, is_exclusive: bool = True) -> Iterator[None]:
    """Hold the lock of a data path. Raises as `lock_directory` does."""
    descriptor = lock_directory(path, is_exclusive=is_exclusive)
    try:
        yield
    finally:
        os.close(descriptor)


# ---- files of others


def read_regular(path: str, most_bytes: int) -> tuple[bytes, int]:
    """Return the content and the mode of a file that others write, also through symbolic links. A pipe does not block.

    A byte order mark, with which editors on Windows begin a file, is left out.

    Raises OSError, also if it is not a regular file, or longer than that.
    """
    with open(
        path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    ) as file:
        mode = os.fstat(file.fileno()).st_mode
        content = b""
        if stat.S_ISREG(mode):
            content = file.read(most_bytes + 1)
    if not stat.S_ISREG(mode) or len(content) > most_bytes:
        raise OSError(errno.EINVAL, f"must be a file of at most {most_bytes} bytes", path)
    return content.removeprefix(BOM_UTF8), mode


def stamp_of(path: str) -> Stamp:
    """Return the stamp of a file, which differs when the file has changed."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
