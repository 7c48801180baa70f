"""Names of files, and moving a finished file to its name in the output-dir, without overwriting another file.

A filename format contains the words <TOPIC>, <HOST>, <PID>, <DATETIME> and <REV>. The first three are replaced once a
topic, <DATETIME> and <REV> for each file; <REV> counts the files that would otherwise have the same name.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from nsq_tools.to_file.options import HOST, HOSTNAME, PID, REV, SHORT_HOST, TOPIC
from nsq_tools.to_file.output import side_path
from nsqd_py.diskqueue.files import sync_directory


def host_identifier(given: str, hostname: str) -> str:
    """Return the value of <HOST>: `given` with its words replaced, or the host name up to its first dot."""
    short = hostname.partition(".")[0]
    return given.replace(SHORT_HOST, short).replace(HOSTNAME, hostname) if given else short


def filename_template(filename_format: str, topic: str, host: str, pid: int, *, has_revisions: bool) -> str:
    """Replace all words but <DATETIME> and, if files have revisions, <REV>."""
    template = filename_format if has_revisions else filename_format.replace(REV, "")
    return template.replace(TOPIC, topic).replace(HOST, host).replace(PID, str(pid))


def with_revision(name: str, revision: int) -> str:
    """Replace <REV>: `a<REV>.log` with revision 12 becomes `a-000012.log`."""
    return name.replace(REV, f"-{revision:06d}")


# --- moving

DIRECTORY_MODE = 0o770
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


class _OtherFileSystem(OSError):
    """The directories are on different file systems, so a hard link is impossible."""


# (source, target) makes the target from the source, and syncs it.
Make = Callable[[Path, Path], None]


def make_directories(directory: Path) -> None:
    """Make the directory and its parents, with the mode that Go's nsq_to_file uses. Raises OSError."""
    directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)


def place(source: Path, output_dir: Path, name: str, revision: int, token: str, make: Make | None = None) -> str:
    """Link `source` to the first free name in the output-dir from `revision` on. Return the name. Raises OSError.

    If the output-dir is on another file system, or with `make`, a new file is written first; it gets its name only when
    it is complete and synced. After an interruption at any point, another call has the same result, until
    `remove_other_names` was called.
    """
    if make is None:
        with suppress(_OtherFileSystem):
            return _link(source, output_dir, name, revision)
    adjacent = _beside(output_dir, token)
    if not _is_placed(adjacent):
        source.lstat()  # without the source, an incomplete copy is all there is
        adjacent.unlink(missing_ok=True)
        (make or copy)(source, adjacent)
    return _link(adjacent, output_dir, name, revision)


def remove_other_names(source: Path, output_dir: Path, placed: str, token: str, is_copy: Callable[[Path], bool]) -> bool:
    """Remove the other names of a file that was placed. Raises OSError.

    Before a name is removed, the inodes must show that the placed file exists and is the same file or a complete copy;
    if they cannot, `is_copy(path)` reads the file. Return False if the placed file is missing or is another file: then
    the source may be the last copy, and is kept.
    """
    target, adjacent = output_dir / placed, _beside(output_dir, token)
    kept, original, copied = _status(target), _status(source), _status(adjacent)
    if original is not None and not (source.name == target.name and source.parent.samefile(target.parent)):
        if kept is None or not (_is_one_file(original, kept) or _is_one_file(copied, kept) or is_copy(target)):
            return False
        remove_name(source, kept)
        sync_directory(source.parent)
    if copied is not None:
        if kept is None or not _is_one_file(copied, kept):
            return False
        remove_name(adjacent, kept)
    return True


def remove_name(path: Path, kept: os.stat_result) -> None:
    """Remove one name of a file, but not the last. Raises OSError.

    kept  status of the remaining file: another name of the same file, or a copy
    """
    status = path.lstat()
    # On a file system that ignores case, one entry has two names.
    if not os.path.samestat(status, kept) or status.st_nlink > 1:
        path.unlink()


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a name, or None if it does not exist. Symbolic links are not followed."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _is_one_file(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    return one is not None and other is not None and os.path.samestat(one, other)


def _beside(output_dir: Path, token: str) -> Path:
    return side_path(output_dir, token, ".moving")


def copy(source: Path, target: Path) -> None:
    """Make a synced copy with the mode and times of the source. Raises OSError."""
    with source.open("rb") as original, target.open("xb") as out:
        shutil.copyfileobj(original, out, 1024 * 1024)
        out.flush()
        shutil.copystat(source, target)
        os.fsync(out.fileno())


def _is_placed(adjacent: Path) -> bool:
    """True if the file has a second name, which it gets only when it is complete."""
    status = _status(adjacent)
    return status is not None and status.st_nlink > 1


def _link(source: Path, output_dir: Path, name: str, revision: int) -> str:
    """Link the file to the first name that is free or belongs to it. Return the name."""
    while True:
        candidate = with_revision(name, revision)
        target = output_dir / candidate
        make_directories(target.parent)
        try:
            _link_exclusively(source, target)
        except FileExistsError:
            # A symbolic link to the source does not count: it is broken once the source is deleted.
            if not _is_one_file(_status(target), _status(source)):
                if REV not in name:
                    raise
                revision += 1
                continue
        sync_directory(target.parent)
        return candidate


def _link_exclusively(source: Path, target: Path) -> None:
    """Link the file, or rename it on a file system without links. Raises FileExistsError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise _OtherFileSystem(*error.args) from error
        if error.errno not in _NO_LINKS:
            raise
        # Reserve the name, so that no other process takes it; a kill here leaves an empty file.
        target.touch(exist_ok=False)
        os.rename(source, target)
