"""Claims: which files are being written.

While a file is written, a small file beside it says so: `.nsq_to_file.<token>.json` in the work-dir. It is locked
(flock) as long as its process lives, so that another nsq-to-file on the same directory leaves the file alone, and
after a kill the next one knows what was left behind and how it was written. On a network file system this needs
locks that reach all machines (NFS has them, unless it is mounted with local_lock).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from nsqd_py.diskqueue.files import sync_directory

PREFIX = ".nsq_to_file."
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Facts:
    """What has to be known to finish a file.

    topic, channel   where its messages are from
    format, compress how it is written
    name             what it is called in the output-dir, with <REV> where there are revisions
    revision         what stands for <REV>, or a higher one when that is taken
    work_name        what it is called in the work-dir while it is written
    output_dir       where it belongs in the end, as an absolute path
    is_shared        whether others may append to it
    offset           where in it this began: not 0 where it was there before
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

    def __init__(self, path: Path, descriptor: int, facts: Facts) -> None:
        self._path = path
        self._fd = descriptor
        self.facts = facts

    @classmethod
    def make(cls, directory: Path, token: str, facts: Facts) -> Claim:
        """Raises OSError. Only a claim that is locked and whole gets its name."""
        path = claim_path(directory, token)
        unnamed = path.with_suffix(".new")
        descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o660)
        claim = cls(path, descriptor, facts)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            claim.update(facts)
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
        """Names the claim, and whatever is written for it beside it."""
        return self._path.name.removeprefix(PREFIX).removesuffix(_SUFFIX)

    @property
    def work_dir(self) -> Path:
        return self._path.parent

    @property
    def work_path(self) -> Path:
        """Where its file is while it is written."""
        return self.work_dir / self.facts.work_name

    def update(self, facts: Facts) -> None:
        """Raises OSError."""
        data = orjson.dumps(asdict(facts))
        os.ftruncate(self._fd, max(len(data), os.fstat(self._fd).st_size))  # a full disk is found out before a write
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))
        os.fsync(self._fd)
        self.facts = facts

    def release(self) -> None:
        """The file is finished, or gone. Raises OSError."""
        self._path.unlink(missing_ok=True)
        self.drop()

    def drop(self) -> None:
        """Leave the file as it is, for who looks for claims next."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def new_token() -> str:
    return secrets.token_hex(8)


def claim_path(directory: Path, token: str) -> Path:
    return directory / f"{PREFIX}{token}{_SUFFIX}"


def side_path(directory: Path, token: str, suffix: str) -> Path:
    """A hidden file that belongs to the claim with this token."""
    return directory / f"{PREFIX}{token}{suffix}"


def abandoned(directory: Path) -> Iterator[Claim]:
    """The claims in a directory whose processes are gone; they are this one's now. Raises OSError."""
    with os.scandir(directory) as entries:
        paths = sorted(Path(entry.path) for entry in entries if entry.name.startswith(PREFIX))
    for path in paths:
        claim = _take_over(path) if path.suffix == _SUFFIX else None
        if claim is not None:
            yield claim


def _take_over(path: Path) -> Claim | None:
    """None where its process lives, has just ended it, or where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise FileNotFoundError(path)
        return Claim(path, descriptor, _parsed(os.pread(descriptor, os.fstat(descriptor).st_size, 0)))
    except (OSError, ValueError, TypeError):
        os.close(descriptor)
        return None


def _parsed(data: bytes) -> Facts:
    """Raises ValueError and TypeError."""
    values: dict[str, Any] = orjson.loads(data)
    return Facts(**values)
