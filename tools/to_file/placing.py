"""A finished file gets its name in the output-dir, and never takes the name of another."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from nsqd_py.diskqueue.files import sync_directory
from tools.to_file.claims import side_path
from tools.to_file.naming import REV, with_revision

DIRECTORY_MODE = 0o770
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


class _OtherFileSystem(OSError):
    """There are no links from one to the other."""


# Makes the second file of the first, and syncs it.
Make = Callable[[Path, Path], None]


def make_directories(directory: Path) -> None:
    """As Go's nsq_to_file makes them. Raises OSError."""
    directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)


def place(source: Path, output_dir: Path, name: str, revision: int, token: str, make: Make | None = None) -> str:
    """Give `source` the first free name in the output-dir from `revision` on; the name. Raises OSError.

    On another file system it is copied, or `make` makes another file of it: then it has its name only once it is
    complete and synced. May be called again, with the same outcome, after it was interrupted anywhere, until
    `let_go` removes what this leaves.
    """
    if make is None:
        with suppress(_OtherFileSystem):
            return _link(source, output_dir, name, revision)
    beside = _beside(output_dir, token)
    if not _is_placed(beside):
        beside.unlink(missing_ok=True)
        (make or copy)(source, beside)
    return _link(beside, output_dir, name, revision)


def let_go(source: Path, output_dir: Path, placed: str, token: str) -> None:
    """Remove the other names of a file that was placed. Raises OSError."""
    if source != output_dir / placed:
        source.unlink(missing_ok=True)
        sync_directory(source.parent)
    _beside(output_dir, token).unlink(missing_ok=True)


def _beside(output_dir: Path, token: str) -> Path:
    return side_path(output_dir, token, ".moving")


def copy(source: Path, target: Path) -> None:
    """A synced copy, with the mode and the times of the source. Raises OSError."""
    with source.open("rb") as original, target.open("xb") as out:
        shutil.copyfileobj(original, out, 1024 * 1024)
        out.flush()
        shutil.copystat(source, target)
        os.fsync(out.fileno())


def _is_placed(beside: Path) -> bool:
    """Whether it has another name already: then it is complete."""
    try:
        return beside.stat().st_nlink > 1
    except FileNotFoundError:
        return False


def _link(source: Path, output_dir: Path, name: str, revision: int) -> str:
    """The first name that was free, or was this very file's."""
    while True:
        candidate = with_revision(name, revision)
        target = output_dir / candidate
        make_directories(target.parent)
        try:
            _link_exclusively(source, target)
        except FileExistsError:
            if not target.samefile(source):
                if REV not in name:
                    raise
                revision += 1
                continue
        sync_directory(target.parent)
        return candidate


def _link_exclusively(source: Path, target: Path) -> None:
    """Raises FileExistsError. Where the file system has no links, between the look and the rename is a gap."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise _OtherFileSystem(*error.args) from error
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        os.rename(source, target)
