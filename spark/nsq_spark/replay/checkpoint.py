"""The checkpoint of a job: a directory that keeps what nsqd acknowledged, so that a later run goes on from there.

    job.json                       the job, its times, and the files that its first run found
    acks-<run>-<task>-<try>.log    the ledger of one try of a task: what was acknowledged
    complete                       exists once all was
    lock                           is locked while a driver uses the directory

A job is about the files of its first run, at the size that they had then: what is written to the archive meanwhile is
not sent. All executors have to see the directory.

A ledger has a line `<crc32c in hex> <JSON>` for each range: [lane, low, high, messages, bytes, {topic: messages}]. The
line ["end"] says that nothing was unanswered when the file was closed. Lines are only appended. The kernel keeps what a
killed process has written; fsync, at most twice a second, is for a machine that fails. A torn line ends the file.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson
from google_crc32c import value as crc32c

from nsq_spark.archive.damage import ArchiveError
from nsq_spark.archive.formats import Compression, Format
from nsq_spark.archive.listing import Hints
from nsq_spark.archive.splits import FileInfo
from nsq_spark.archive.storage import Storage, identical, is_local, local_path
from nsq_spark.publisher import PublishCounts
from nsq_spark.replay.errors import CheckpointError
from nsq_spark.replay.job import Job
from nsq_spark.replay.positions import Mark, Range, merged
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.runtime.documents import BAD_CONTENT, describe
from nsqd_py.runtime.private_files import open_file

SYNC_INTERVAL_S = 0.5
_VERSION = 1
_END = ["end"]
_HEAD, _HEAD_BYTES = "head_crc32c", 4096
# Executors notice within this time that their driver has ended.
_WRITERS_LEAVE_S = 15.0
_POLL_S = 0.05


# ---- ledgers


@dataclass(slots=True)
class Entry:
    """The number of acknowledged messages in a range, in which there are no others to send."""

    lane: str
    range: Range
    messages: int = 0
    size_bytes: int = 0
    topics: dict[str, int] = field(default_factory=dict)


class Ledger:
    """Collects ranges, joins those that adjoin, and writes them when `write` is called.

    The file is locked as long as this process lives. A reader that finds it unlocked knows that it is complete. Without
    a path, nothing is written.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._file = None if path is None else open(path, "ab", buffering=0, opener=_open_shared)  # noqa: SIM115  held until `abandon`
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._unwritten: list[Entry] = []
        self._last: dict[str, Entry] = {}  # by lane
        self._synced_s = clock()
        self._is_synced = True

    def add(self, lane: str, low: Mark, high: Mark, count: int, size_bytes: int = 0, topic: str = "") -> None:
        entry = self._last.get(lane)
        if entry is None or entry.range.high != low:
            entry = self._last[lane] = Entry(lane, Range(low, low))
            self._unwritten.append(entry)
        entry.range = Range(entry.range.low, high)
        entry.messages += count
        entry.size_bytes += size_bytes
        if count:
            entry.topics[topic] = entry.topics.get(topic, 0) + count

    def write(self) -> None:
        """Write all ranges that were added since the last call."""
        if self._unwritten:
            self._append(b"".join(map(encoded, self._unwritten)))
            self._unwritten, self._last = [], {}
        if not self._is_synced and self._clock() - self._synced_s >= SYNC_INTERVAL_S:
            self._sync()

    def close(self, *, is_settled: bool = True) -> None:
        """Write the rest. `is_settled`: nsqd has answered every publish."""
        self.write()
        if is_settled:
            self._append(_line(_END))
        if not self._is_synced:
            self._sync()
        self.abandon()

    def abandon(self) -> None:
        """Close the file without writing: others wait for its lock."""
        if self._file is not None:
            self._file.close()

    def _append(self, data: bytes) -> None:
        while data and self._file is not None:
            self._is_synced = False
            data = data[self._file.write(data) :]

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._synced_s = self._clock()
        self._is_synced = True


def encoded(entry: Entry) -> bytes:
    """Return the line of an entry."""
    return _line([entry.lane, *entry.range, entry.messages, entry.size_bytes, entry.topics])


def _line(fields: list[Any]) -> bytes:
    text = orjson.dumps(fields)
    return b"%08x %b\n" % (crc32c(text), text)


def entries_in(data: bytes) -> Iterator[Entry]:
    """Yield the entries before the first torn line."""
    for line in data.split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % crc32c(text):
            return
        fields = orjson.loads(text)
        if fields != _END:
            lane, low, high, *rest = fields
            yield Entry(lane, Range((*low,), (*high,)), *rest)


def _is_free(path: Path) -> bool:
    """True if no process writes to the file any more."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@dataclass(slots=True)
class Acknowledged:
    """The merged ranges of acknowledged messages by lane, and their counts.

    is_settled  nothing was unanswered in the end
    """

    done: dict[str, list[Range]] = field(default_factory=dict)
    counts: PublishCounts = field(default_factory=PublishCounts)
    is_settled: bool = True


def _read(paths: Iterable[Path]) -> Acknowledged:
    """Raises CheckpointError if a ledger is still written to after a while."""
    found = Acknowledged()
    deadline_s = time.monotonic() + _WRITERS_LEAVE_S
    for path in sorted(paths):
        while not _is_free(path):
            if time.monotonic() >= deadline_s:
                raise CheckpointError(f"{path} is still written to by an earlier run: end that run first")
            time.sleep(_POLL_S)
        data = path.read_bytes()
        found.is_settled = found.is_settled and data.endswith(_line(_END))
        for entry in entries_in(data):
            found.done.setdefault(entry.lane, []).append(entry.range)
            found.counts.add(PublishCounts(entry.messages, entry.size_bytes, 0, entry.topics))
    found.done = {lane: merged(ranges) for lane, ranges in found.done.items()}
    return found


# ---- the directory


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """The checkpoint of a run, as executors use it. `token` tells whether they see the directory of the driver."""

    directory: str
    run: int
    token: str

    def ledger(self, task: int, attempt: int) -> Ledger:
        """Begin the ledger of one try of a task. Raises CheckpointError."""
        return Ledger(self._acks(task, attempt))

    def done(self, task: int, attempt: int) -> Acknowledged:
        """Return what earlier tries of the task did in this run. Waits for one that still works."""
        own = self._acks(task, attempt)
        return _read(path for path in own.parent.glob(self._acks(task, "*").name) if path != own)

    def _acks(self, task: int, attempt: int | str) -> Path:
        """Return the path of a ledger. Raises CheckpointError if this process does not see the driver's directory."""
        directory = Path(self.directory)
        try:
            token = orjson.loads((directory / "job.json").read_bytes())["token"]
        except (OSError, ValueError, KeyError):
            token = None
        if token != self.token:
            raise CheckpointError(
                f"the executors do not see the checkpoint directory {directory} of the driver: "
                "it must be on a file system that all of them share"
            )
        return directory / f"acks-{self.run:06d}-{task:05d}-{attempt}.log"


class Checkpoint:
    """A checkpoint that `open_checkpoint` has opened.

    job, files    as of the first run
    parts         the number of parts of the shuffle, if messages were shuffled
    acknowledged  the number of messages that nsqd acknowledged in earlier runs
    is_settled    nothing was unanswered when they ended
    is_complete   nothing is left to do
    """

    def __init__(self, directory: Path, document: dict[str, Any], job: Job, lock: int) -> None:
        self.directory = directory
        self._document = document
        self._lock = lock
        self.job = job.at_times(document["start_ns"], document["end_ns"])
        self.files = [_file_info(fields) for fields in document["files"]]
        ledgers = list(directory.glob("acks-*.log"))
        found = _read(ledgers)
        self.done, self.acknowledged, self.is_settled = found.done, found.counts.messages, found.is_settled
        self.parts: int | None = document.get("parts")
        self.is_complete = (directory / "complete").exists()
        run = max((int(path.name.split("-")[1]) for path in ledgers), default=0) + 1
        self.place = CheckpointPlace(str(directory), run, document["token"])

    def remember_parts(self, parts: int) -> None:
        """Write down the number of parts, so that later runs shuffle in the same way."""
        self._document["parts"] = self.parts = parts
        _replace(self.directory / "job.json", self._document)

    def completed(self) -> None:
        self.is_complete = True
        (self.directory / "complete").touch()
        sync_directory(self.directory)

    def forget(self) -> None:
        """Let another job use the directory: no message matched."""
        for path in (self.directory / "job.json", *self.directory.glob("acks-*.log")):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let another driver use the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def open_checkpoint(job: Job, files: Sequence[FileInfo], *, is_dry: bool = False) -> Checkpoint | None:
    """Open or begin the checkpoint of a job; return None for a job without one. A dry run begins none.

    Raises CheckpointError: it belongs to another job, it is in use, or a file has changed.
    """
    given = job.safety.checkpoint
    if given is None:
        return None
    if not is_local(given):
        raise CheckpointError(f"the checkpoint {given} must be a local or mounted directory")
    directory = Path(local_path(given))
    if is_dry and not (directory / "job.json").exists():
        return None
    try:
        return _open(directory, job, files)
    except OSError as error:
        raise CheckpointError(f"the checkpoint {directory} cannot be used: {error.strerror}") from error
    except BAD_CONTENT as error:
        raise CheckpointError(
            f"the checkpoint {directory} cannot be used: it has content that spark-replay does not write: {describe(error)}"
        ) from error


def _open(directory: Path, job: Job, files: Sequence[FileInfo]) -> Checkpoint:
    directory.mkdir(parents=True, exist_ok=True)
    lock = open_file(directory / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(f"the checkpoint {directory} is in use by another spark-replay") from None
        for left in directory.glob("nsq-replay-*"):  # of a driver that was killed
            shutil.rmtree(left, ignore_errors=True)
        document = _document(directory)
        if document is None:
            document = _first_document(job, files)
            _replace(directory / "job.json", document)
        else:
            _check_job(directory, document["identity"], job)
            _check_files(document["files"], Storage(job.storage))
        return Checkpoint(directory, document, job, lock)
    except BaseException:
        os.close(lock)
        raise


# ---- job.json


def _document(directory: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = orjson.loads((directory / "job.json").read_bytes())
    except FileNotFoundError:
        return None
    if document.get("version") != _VERSION:
        raise CheckpointError(f"the checkpoint {directory} was written by another version of spark-replay")
    return document


def _first_document(job: Job, files: Sequence[FileInfo]) -> dict[str, Any]:
    storage, wanted = Storage(job.storage), job.selection.wanted
    return {
        "version": _VERSION,
        "token": secrets.token_hex(8),
        "identity": job.identity(),
        "start_ns": wanted.start_ns,
        "end_ns": wanted.end_ns,
        "files": [{**asdict(info), _HEAD: _head_checksum(info.path, info.size_bytes, storage)} for info in files],
    }


def _file_info(fields: dict[str, Any]) -> FileInfo:
    own = {name: value for name, value in fields.items() if name != _HEAD}
    return FileInfo(**{**own, "format": Format(own["format"]), "compression": Compression(own["compression"])})


def _head_checksum(path: str, size_bytes: int, storage: Storage) -> int | None:
    """Return the checksum of the first bytes of a file that had this size; None if it cannot be read."""
    try:
        with storage.open(path) as file:
            return int(crc32c(file.read_at(0, min(size_bytes, _HEAD_BYTES))))
    except (ArchiveError, OSError):
        return None


def _check_job(directory: Path, theirs: dict[str, Any], job: Job) -> None:
    # A document of an earlier version has fewer hints, and paths as they were given.
    paths, hints = [identical(path) for path in theirs["paths"]], {**asdict(Hints()), **theirs["format"]}
    known = {**theirs, "paths": paths, "format": hints}
    for name, value in orjson.loads(orjson.dumps(job.identity())).items():
        if known.get(name) != value:
            was, is_now = ("not given" if one in (None, "", []) else str(one) for one in (known.get(name), value))
            raise CheckpointError(
                f"the checkpoint {directory} is of another job: its {name} is {was}, not {is_now}; use another "
                "directory, or delete this one"
            )


def _check_files(files: Iterable[dict[str, Any]], storage: Storage) -> None:
    for fields in files:
        found = _head_checksum(fields["path"], fields["size_bytes"], storage)
        if None not in (found, fields[_HEAD]) and found != fields[_HEAD]:
            raise CheckpointError(f"{fields['path']} is another file than when the job began; use a new checkpoint")


def _open_shared(path: str, flags: int) -> int:
    """Open a file that executors of other users may read."""
    return open_file(path, flags, 0o666)


def _replace(path: Path, document: dict[str, Any]) -> None:
    """Write the whole document, or leave the file as it was."""
    new = path.with_name(path.name + ".new")
    with open(new, "wb", opener=_open_shared) as file:
        file.write(orjson.dumps(document))
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync_directory(path.parent)
