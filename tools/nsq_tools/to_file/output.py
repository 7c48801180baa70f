"""Files that are being written, their claims, and the manifest of finished files.

Each file that is being written has a claim, `.nsq_to_file.<token>.json` in the work-dir. Its process holds a lock on it
(flock). So another nsq-to-file with the same directory does not touch the file, and after a crash the next start finds
the unfinished file and its format. On a network file system this needs locks that work between machines (NFS has them,
unless it is mounted with local_lock).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from google_crc32c import extend

from nsq_tools.to_file.formats import FORMATS
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.diskqueue.ranges import Range
from nsqd_py.runtime.documents import BAD_CONTENT, decode_fields, describe
from nsqd_py.runtime.private_files import open_file

MODE = 0o666  # for other programs to read, unless the umask says otherwise


class OutputFile:
    """A file that is appended to. All methods may block, and raise OSError.

    A file that is not shared is locked until it is closed. A shared file may exist already, and other programs may
    append to it. It is locked during each write; an incomplete line of another program is ended first.

    start_offset  position of the first byte that this object wrote
    end           position of the next byte
    checksum      crc32c of the synced bytes from there on; None if other programs wrote between them
    """

    def __init__(self, path: Path, *, is_shared: bool = False) -> None:
        """Create the file, or open an existing shared one. Raises FileExistsError if an unshared file exists."""
        self.path = path
        self.is_shared = is_shared
        self.end = self._kept_end = 0
        self._written_checksum = 0
        self._is_name_synced = False
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (0 if is_shared else os.O_EXCL)
        self._fd = open_file(path, flags, MODE)
        try:
            if not is_shared:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self._at_end():
                self.start_offset = self.end
        except OSError:
            self.close()
            raise
        self.checksum: int | None = 0

    @property
    def is_removed(self) -> bool:
        """True if the file has no name any more, so that nothing will find what is written to it."""
        return not os.fstat(self._fd).st_nlink

    @property
    def synced_bytes(self) -> int:
        """Return the number of synced bytes from `start_offset` on."""
        return self._kept_end - self.start_offset

    def append(self, data: bytes) -> None:
        """Append the data. After an error the file is unchanged."""
        with self._at_end():
            try:
                _write_all(self._fd, data)
            except OSError:
                os.ftruncate(self._fd, self.end)
                raise
        self.end += len(data)
        self._written_checksum = extend(self._written_checksum, data)

    def sync(self) -> None:
        """Sync the file and, the first time, its directory.

        After an error, call `rewind`: the data since the last sync may be lost, even if a later sync succeeds.
        Raises FileNotFoundError if the file was removed.
        """
        os.fdatasync(self._fd)
        if self.is_removed:
            raise FileNotFoundError(errno.ENOENT, "the file was removed; a new one is begun", str(self.path))
        if not self._is_name_synced:
            sync_directory(self.path.parent)
            self._is_name_synced = True
        self._kept_end = self.end
        if self.checksum is not None:
            self.checksum = self._written_checksum

    def rewind(self) -> None:
        """Remove the data since the last sync, unless other programs wrote after it. The caller writes it again."""
        self._written_checksum = self.checksum or 0
        with self._at_end():
            self.end = self._kept_end
            os.ftruncate(self._fd, self.end)

    def close(self) -> None:
        os.close(self._fd)

    @contextlib.contextmanager
    def _at_end(self) -> Iterator[None]:
        """Begin a write: at the end of a shared file, which is locked, else behind what was written last."""
        if not self.is_shared:
            if os.fstat(self._fd).st_size > self.end:  # the remains of a write, which could not be cut off then
                os.ftruncate(self._fd, self.end)
            yield
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            self._go_behind_others()
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _go_behind_others(self) -> None:
        size = os.fstat(self._fd).st_size
        if size == self.end:
            return
        if _ends_inside_line(self._fd, size):
            size += os.write(self._fd, b"\n")  # so that the next message begins on a new line
        self.checksum = None
        self.end = self._kept_end = size


def _write_all(descriptor: int, data: bytes) -> None:
    """Raises OSError; a part of the data may be written then."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _ends_inside_line(descriptor: int, size: int) -> bool:
    """True if the file ends in a line that a killed process left incomplete."""
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


# --- the manifest

# Not *.jsonl: programs that read the messages of a glob such as that would take it for messages.
MANIFEST = "_nsq_manifest"
_MOST_RANGES = 100


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One finished file, as a line of JSON in the manifest:

        path              relative to the output-dir
        topic, channel, format, compress
        messages          number of messages; for a repaired file in the lines format, number of lines
        first_timestamp   the earliest and the latest timestamp of its messages, ns since the epoch; null if they are
        last_timestamp    unknown, as in a repaired file in the lines format
        offset            position of the first byte; not 0 if the file existed before
        bytes             number of bytes from there on
        crc32c            checksum of these bytes, 8 hex digits; null if other programs wrote between them
        repaired          true if an earlier run left the file unfinished
        cut_bytes         size of the incomplete end that was removed
        closed            time of finishing, ns since the epoch
        damaged_bytes     size of the parts that cannot be read: of the file, or of the original that it was made from
        damaged_ranges    the first of these parts, each as the offsets of its first byte and of the byte behind it
        original          name in the work-dir of the original, which is kept if the file has less than the original may have
        nsqds             the messages of each nsqd, see `LogPart`; empty if the format has no ids

    Spark and other readers of directories skip names that begin with an underscore.
    """

    path: str
    topic: str
    channel: str
    format: str
    compress: str
    messages: int
    first_timestamp: int | None
    last_timestamp: int | None
    offset: int
    bytes: int
    crc32c: str | None
    repaired: bool
    cut_bytes: int
    closed: int
    damaged_bytes: int = 0
    damaged_ranges: list[list[int]] = field(default_factory=list)
    original: str = ""
    nsqds: list[dict[str, Any]] = field(default_factory=list)

    def with_damage(self, damaged: list[Range], original: str = "") -> ManifestEntry:
        """Return the entry with these damaged parts."""
        first = [list(part) for part in damaged[:_MOST_RANGES]]
        size_bytes = sum(end - start for start, end in damaged)
        return replace(self, damaged_bytes=size_bytes, damaged_ranges=first, original=original)


class Manifest:
    """The manifest of an output-dir. Several processes may append to it at the same time."""

    def __init__(self, output_dir: Path) -> None:
        self._path = output_dir / MANIFEST

    def add(self, entry: ManifestEntry, is_repeated: bool = False) -> None:
        """Append a line; with `is_repeated` only if it is not there. Raises OSError; then nothing was added."""
        line = orjson.dumps(asdict(entry)) + b"\n"
        with open(self._path, "ab+", opener=partial(open_file, mode=MODE)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if not (is_repeated and line in file):
                self._append(file.fileno(), line)

    def _append(self, descriptor: int, line: bytes) -> None:
        size = os.fstat(descriptor).st_size
        if _ends_inside_line(descriptor, size):
            line = b"\n" + line
        try:
            _write_all(descriptor, line)
            os.fdatasync(descriptor)
            if not size:
                sync_directory(self._path.parent)
        except OSError:
            os.ftruncate(descriptor, size)
            raise


# --- claims

PREFIX = ".nsq_to_file."
_SUFFIX = ".json"
_NEW_SUFFIX = ".new"


@dataclass(frozen=True, slots=True)
class ClaimDetails:
    """The data of a claim: everything that is needed to finish its file.

    topic, channel   the source of its messages
    format, compress the values of --format and --compress
    name             its name in the output-dir, with <REV> if files have revisions
    revision         the lowest number for <REV>
    work_name        its name in the work-dir while it is written
    output_dir       its final directory, or that from which it is uploaded, as an absolute path
    is_shared        True if other programs may append to it
    offset           position of the first byte of this run; not 0 if the file existed before
    entry            its line of the manifest, once it has its name in the output-dir
    nsqds            the messages of each nsqd so far, with their places in the logs
    store, table     the object store to upload it to, and the value of --table
    omits_topic      True if it has no column `topic`, since its directory says the topic
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
    store: str = ""
    table: str = ""
    omits_topic: bool = False
    nsqds: list[dict[str, Any]] = field(default_factory=list)


class Claim:
    """A claim that this process holds."""

    def __init__(self, path: Path, descriptor: int, details: ClaimDetails) -> None:
        self._path = path
        self._fd = descriptor
        self.details = details

    @classmethod
    def make(cls, directory: Path, token: str, details: ClaimDetails) -> Claim:
        """Create a claim. Raises OSError."""
        claim = cls(side_path(directory, token, _SUFFIX), -1, details)
        try:
            claim.update(details)
        except OSError:
            claim.release()
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
        """Write a new claim, which replaces the old one when it is locked and complete. Raises OSError."""
        unnamed = self._path.with_suffix(_NEW_SUFFIX)
        unnamed.unlink(missing_ok=True)  # of an update that failed, or of a process that was killed here
        descriptor = open_file(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o660)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_all(descriptor, orjson.dumps(asdict(details)))
            os.fsync(descriptor)
            os.rename(unnamed, self._path)
        except OSError:
            os.close(descriptor)
            raise
        self.drop()
        self._fd = descriptor
        self.details = details
        sync_directory(self.work_dir)

    def release(self) -> None:
        """Delete the claim, because its file is finished or deleted. Raises OSError."""
        for path in (self._path, self._path.with_suffix(_NEW_SUFFIX)):
            path.unlink(missing_ok=True)
        self.drop()

    def drop(self) -> None:
        """Unlock the claim and keep it for the next start."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def side_path(directory: Path, token: str, suffix: str) -> Path:
    """Return the path of a hidden file that belongs to the claim with this token."""
    return directory / f"{PREFIX}{token}{suffix}"


def left_behind(*directories: Path, report: Callable[[str], None] = lambda text: None) -> Iterator[Claim]:
    """Yield and lock the claims in these directories whose processes have ended. Raises OSError.

    `report` gets a line about each claim that nsq-to-file did not write.
    """
    for directory in dict.fromkeys(directory.resolve() for directory in directories):
        for name in sorted(os.listdir(directory)):
            if name.startswith(PREFIX) and name.endswith((_SUFFIX, _NEW_SUFFIX)):
                claim = _take_over(directory / name, report)
                if claim is not None:
                    yield claim


def _take_over(path: Path, report: Callable[[str], None]) -> Claim | None:
    """Lock and read a claim. Return None if its process runs or has just released it, or if it cannot be read.

    Remove one that has no name yet: its process was killed before it wrote to its file.
    """
    try:
        descriptor = open_file(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        if not os.path.samestat(status, path.stat()):
            raise FileNotFoundError(path)
        if is_open_to_all(path.parent) and status.st_uid != os.geteuid():
            raise ValueError("another user wrote it, and everyone can write to its directory")
        if path.suffix == _SUFFIX:
            return Claim(path, descriptor, _parsed(os.pread(descriptor, status.st_size, 0)))
        path.unlink()
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
    entry = decode_fields(ManifestEntry, details.entry) if details.entry is not None else None
    for name in (details.name, details.work_name, entry.path if entry is not None else ""):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name} is not in its directory")
    if details.compress not in FORMATS[details.format].codecs:
        raise ValueError(f"{details.format} files have no compression {details.compress}")
    return details
