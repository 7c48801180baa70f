"""Claims: lock files for files that are being written.

Each file that is being written has a claim, `.nsq_to_file.<token>.json` in the work-dir. Its process holds a lock on it
(flock). So another nsq-to-file with the same directory does not touch the file, and after a crash the next start finds
the unfinished file and its format. On a network file system this needs locks that work between machines (NFS has them,
unless it is mounted with local_lock).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from nsq_tools.to_file.formats import FORMATS
from nsq_tools.to_file.manifest import Entry
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.runtime.documents import BAD_CONTENT, decode_fields, describe
from nsqd_py.runtime.private_files import open_file

PREFIX = ".nsq_to_file."
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class ClaimDetails:
    """The data of a claim: everything that is needed to finish its file.

    topic, channel   the source of its messages
    format, compress the values of --format and --compress
    name             its name in the output-dir, with <REV> if files have revisions
    revision         the lowest number for <REV>
    work_name        its name in the work-dir while it is written
    output_dir       its final directory, as an absolute path
    is_shared        True if other programs may append to it
    offset           position of the first byte of this run; not 0 if the file existed before
    entry            its line of the manifest, once it has its name in the output-dir
    """

    topic: str
    channel: str
    format: str
    compress: str
    name: str
    revision: int
    work_name: str
    output_dir: str
    is_shared: bool
    offset: int = 0
    entry: dict[str, Any] | None = None


class Claim:
    """A claim that this process holds."""

    def __init__(self, path: Path, descriptor: int, details: ClaimDetails) -> None:
        self._path = path
        self._fd = descriptor
        self.details = details

    @classmethod
    def make(cls, directory: Path, token: str, details: ClaimDetails) -> Claim:
        """Create a claim. It gets its name only when it is locked and complete. Raises OSError."""
        path = claim_path(directory, token)
        unnamed = path.with_suffix(".new")
        descriptor = open_file(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o660)
        claim = cls(path, descriptor, details)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            claim.update(details)
            os.rename(unnamed, path)
            sync_directory(directory)
        except OSError:
            claim.drop()
            with contextlib.suppress(OSError):
                unnamed.unlink()
            raise
        return claim

    @property
    def token(self) -> str:
        """Return the part of the name that identifies the claim and its other files."""
        return self._path.name.removeprefix(PREFIX).removesuffix(_SUFFIX)

    @property
    def work_dir(self) -> Path:
        return self._path.parent

    @property
    def work_path(self) -> Path:
        """Return the path of its file while it is written."""
        return self.work_dir / self.details.work_name

    def update(self, details: ClaimDetails) -> None:
        """Replace the data of the claim. Raises OSError."""
        data = orjson.dumps(asdict(details))
        os.ftruncate(self._fd, max(len(data), os.fstat(self._fd).st_size))  # a full disk fails here
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))
        os.fsync(self._fd)
        self.details = details

    def release(self) -> None:
        """Delete the claim, because its file is finished or deleted. Raises OSError."""
        self._path.unlink(missing_ok=True)
        self.drop()

    def drop(self) -> None:
        """Unlock the claim and keep it for the next start."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def new_token() -> str:
    return secrets.token_hex(8)


def claim_path(directory: Path, token: str) -> Path:
    return directory / f"{PREFIX}{token}{_SUFFIX}"


def side_path(directory: Path, token: str, suffix: str) -> Path:
    """Return the path of a hidden file that belongs to the claim with this token."""
    return directory / f"{PREFIX}{token}{suffix}"


def abandoned(directory: Path, report: Callable[[str], None]) -> Iterator[Claim]:
    """Yield and lock the claims in a directory whose processes have ended. Raises OSError.

    `report` gets a line about each claim that nsq-to-file did not write.
    """
    with os.scandir(directory) as entries:
        paths = sorted(Path(entry.path) for entry in entries if entry.name.startswith(PREFIX))
    for path in paths:
        claim = _take_over(path, report) if path.suffix == _SUFFIX else None
        if claim is not None:
            yield claim


def _take_over(path: Path, report: Callable[[str], None]) -> Claim | None:
    """Lock and read a claim. Return None if its process runs or has just released it, or if it cannot be read."""
    try:
        descriptor = open_file(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise FileNotFoundError(path)
        if is_open_to_all(path.parent) and os.fstat(descriptor).st_uid != os.geteuid():
            raise ValueError("another user wrote it, and everyone can write to its directory")
        return Claim(path, descriptor, _parsed(os.pread(descriptor, os.fstat(descriptor).st_size, 0)))
    except BAD_CONTENT as error:
        report(f"{path} is left alone: {describe(error)}")
    except OSError:
        pass
    os.close(descriptor)
    return None


def is_open_to_all(directory: Path) -> bool:
    """True if everyone can write to the directory. Raises OSError."""
    return bool(directory.stat().st_mode & stat.S_IWOTH)


def _parsed(data: bytes) -> ClaimDetails:
    """Raises BAD_CONTENT."""
    details = decode_fields(ClaimDetails, orjson.loads(data))
    entry = decode_fields(Entry, details.entry) if details.entry is not None else None
    for name in (details.name, details.work_name, entry.path if entry is not None else ""):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name} is not in its directory")
    if details.compress not in FORMATS[details.format].codecs:
        raise ValueError(f"{details.format} files have no compression {details.compress}")
    return details
