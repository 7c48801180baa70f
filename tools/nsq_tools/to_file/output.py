"""Files that are being written, their claims, and the manifest of finished files.

Each file that is being written has a claim, `.nsq_to_file.<token>.json` in the work-dir. Its process holds a lock on it
(flock). So another nsq-to-file with the same directory does not touch the file, and after a crash the next start finds
the unfinished file and its format. On a network file system this needs locks that work between machines (NFS has them,
unless it is mounted with local_lock).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from pathlib import Path
from typing import Any

import orjson
from google_crc32c import extend

from nsq_tools.to_file.formats import FORMATS
from nsq_tools.to_file.log_parts import LogParts
from nsqd_py.diskqueue.files.log_file import sync_directory
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.runtime.documents import BAD_CONTENT, decode_fields, describe
from nsqd_py.runtime.private_files import open_file

MODE = 0o666  # for other programs to read, unless the umask says otherwise
# Not *.jsonl: programs that read the messages of a glob such as that would take it for messages.
MANIFEST = "_nsq_manifest"
_MOST_RANGES = 100
_MOVED = "its directory was moved, replaced or mounted over, with what is finished of the file; a new one is begun, with the rest"
# The names of claims.
PREFIX = ".nsq_to_file."
_SUFFIX = ".json"
_NEW_SUFFIX = ".new"


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
        self.end = 0
        self._written_end = 0
        self._written_checksum = 0
        self._is_name_synced = False
        # Before the file has its name there: a directory that is replaced in between counts as moved.
        self._directory = path.parent.stat()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (0 if is_shared else os.O_EXCL)
        self._fd = open_file(path, flags, MODE)
        try:
            if not is_shared:
                flock(self._fd, LOCK_EX | LOCK_NB)
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
    def is_moved(self) -> bool:
        """True if its path leads to another directory, which was moved, replaced or mounted over. Raises OSError.

        A file that was renamed alone is not: its directory is there, and SIGHUP begins a new file, as for logrotate.
        """
        return not _leads_to(self.path.parent, self._directory)

    @property
    def synced_bytes(self) -> int:
        """Return the number of synced bytes from `start_offset` on."""
        return self._written_end - self.start_offset

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
        Raises FileNotFoundError if the file was removed, or moved together with its directory.
        """
        os.fdatasync(self._fd)
        if self.is_removed:
            raise FileNotFoundError(errno.ENOENT, "the file was removed; a new one is begun", str(self.path))
        if self.is_moved:
            raise FileNotFoundError(errno.ENOENT, _MOVED, str(self.path))
        if not self._is_name_synced:
            sync_directory(self.path.parent)
            self._is_name_synced = True
        self._written_end = self.end
        if self.checksum is not None:
            self.checksum = self._written_checksum

    def rewind(self) -> None:
        """Remove the data since the last sync, unless other programs wrote after it. The caller writes it again."""
        self._written_checksum = self.checksum or 0
        with self._at_end():
            self.end = self._written_end
            os.ftruncate(self._fd, self.end)

    def close(self) -> None:
        os.close(self._fd)

    def has_line(self, line: bytes) -> bool:
        """True if this is one of the lines of the file."""
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            return line in file

    @contextmanager
    def _at_end(self) -> Iterator[None]:
        """Begin a write: at the end of a shared file, which is locked, else behind what was written last."""
        if not self.is_shared:
            # The remains of a write, which could not be cut off then.
            if os.fstat(self._fd).st_size > self.end:
                os.ftruncate(self._fd, self.end)
            yield
            return
        flock(self._fd, LOCK_EX)
        try:
            self._go_behind_others()
            yield
        finally:
            flock(self._fd, LOCK_UN)

    def _go_behind_others(self) -> None:
        size = os.fstat(self._fd).st_size
        if size == self.end:
            return
        # A killed process left a line incomplete.
        if os.pread(self._fd, 1, max(0, size - 1)) not in (b"", b"\n"):
            size += os.write(self._fd, b"\n")
        self.checksum = None
        self.end = size
        self._written_end = size


def _leads_to(path: Path, status: os.stat_result) -> bool:
    """True if this is the path of the file or directory with this status. Raises OSError."""
    try:
        return os.path.samestat(path.stat(), status)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _write_all(descriptor: int, data: bytes) -> None:
    """Raises OSError; a part of the data may be written then."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


# --- the manifest


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
        original          name in the work-dir of the original, which stays if the file has less than the original may have
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
    nsqds: LogParts = field(default_factory=list)

    def with_damage(self, damaged: list[Range], original: str = "") -> ManifestEntry:
        """Return the entry with these damaged parts."""
        first = [list(part) for part in damaged[:_MOST_RANGES]]
        size_bytes = sum(end - start for start, end in damaged)
        return replace(self, damaged_bytes=size_bytes, damaged_ranges=first, original=original)


def add_to_manifest(output_dir: Path, entry: ManifestEntry, is_repeated: bool = False) -> None:
    """Append a line to the manifest of an output-dir; with `is_repeated` only if it is not there. Raises OSError.

    Several processes may do that at the same time.
    """
    line = orjson.dumps(asdict(entry), option=orjson.OPT_APPEND_NEWLINE)
    with closing(OutputFile(output_dir / MANIFEST, is_shared=True)) as manifest:
        if is_repeated and manifest.has_line(line):
            return
        try:
            manifest.append(line)
            manifest.sync()
        except OSError:
            manifest.rewind()
            raise


# --- claims


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
    nsqds            the messages of each nsqd so far, with their positions in the logs
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
    nsqds: LogParts = field(default_factory=list)


@dataclass
class Claim:
    """A claim that this process holds."""

    _path: Path
    details: ClaimDetails
    _fd: int = -1

    @classmethod
    def make(cls, directory: Path, token: str, details: ClaimDetails) -> Claim:
        """Create a claim. Raises OSError."""
        claim = cls(side_path(directory, token, _SUFFIX), details)
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

    @property
    def is_moved(self) -> bool:
        """True if it has a name, but not its path: its directory was moved, replaced or mounted over. Raises OSError."""
        status = os.fstat(self._fd)
        return status.st_nlink > 0 and not _leads_to(self._path, status)

    def update(self, details: ClaimDetails) -> None:
        """Write a new claim, which replaces the old one when it is locked and complete. Raises OSError."""
        unnamed = self._path.with_suffix(_NEW_SUFFIX)
        unnamed.unlink(missing_ok=True)  # of an update that failed, or of a process that was killed here
        descriptor = open_file(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o660)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
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
        for path in sorted(directory.glob(f"{PREFIX}*")):
            if path.suffix in (_SUFFIX, _NEW_SUFFIX) and (claim := _take_over(path, report)):
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
        flock(descriptor, LOCK_EX | LOCK_NB)
        status = os.fstat(descriptor)
        if not os.path.samestat(status, path.stat()):
            raise FileNotFoundError(path)
        if is_open_to_all(path.parent) and status.st_uid != os.geteuid():
            raise ValueError("another user wrote it, and everyone can write to its directory")
        if path.suffix == _SUFFIX:
            details = _parsed(os.pread(descriptor, status.st_size, 0))
            if details.is_shared:  # it is written where it stays, also if that directory was moved
                details = replace(details, output_dir=str(path.parent))
            return Claim(path, details, descriptor)
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
    names = [details.name, details.work_name]
    if details.entry is not None:
        names.append(decode_fields(ManifestEntry, details.entry).path)
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name} is not in its directory")
    if details.compress not in FORMATS[details.format].codecs:
        raise ValueError(f"{details.format} files have no compression {details.compress}")
    return details
