"""The checkpoint of a job: a directory that keeps what nsqd acknowledged, so that a later run goes on from there.

    job.json                       the job, its times, and the files that its first run found
    acks-<run>-<task>-<try>.log    what was acknowledged (see `ledger`)
    complete                       exists once all was
    lock                           is locked while a driver uses the directory

A job is about the files of its first run, at the size that they had then: what is written to the archive meanwhile is
not sent. All executors have to see the directory.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Sequence
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
from nsq_spark.publish_batch import PublishCounts
from nsq_spark.replay.errors import CheckpointError
from nsq_spark.replay.job import Job
from nsq_spark.replay.ledger import Ledger, entries_in, is_free, is_settled
from nsq_spark.replay.positions import Range, merged
from nsqd_py.diskqueue.files import sync_directory

_VERSION = 1
_HEAD, _HEAD_BYTES = "head_crc32c", 4096
# Executors notice within this time that their driver has ended.
_WRITERS_LEAVE_S = 15.0
_POLL_S = 0.05


@dataclass(slots=True)
class Acknowledged:
    """The merged ranges of acknowledged messages by lane, and their counts.

    is_settled  nothing was unanswered in the end
    """

    done: dict[str, list[Range]] = field(default_factory=dict)
    counts: PublishCounts = field(default_factory=PublishCounts)
    is_settled: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """The checkpoint of a run, as executors use it. `token` tells whether they see the directory of the driver."""

    directory: str
    run: int
    token: str

    def ledger(self, task: int, attempt: int) -> Ledger:
        """Begin the ledger of one try of a task. Raises CheckpointError."""
        self._check()
        return Ledger(_acks_path(Path(self.directory), self.run, task, attempt))

    def done(self, task: int, attempt: int) -> Acknowledged:
        """Return what earlier tries of the task did in this run. Waits for one that still works."""
        self._check()
        own = _acks_path(Path(self.directory), self.run, task, attempt)
        paths = Path(self.directory).glob(_acks_path(Path(), self.run, task, "*").name)
        return _read([path for path in paths if path != own])

    def _check(self) -> None:
        try:
            found = orjson.loads((Path(self.directory) / "job.json").read_bytes())["token"]
        except (OSError, ValueError, KeyError):
            found = None
        if found != self.token:
            raise CheckpointError(
                f"the executors do not see the checkpoint directory {self.directory} of the driver: "
                "it must be on a file system that all of them share"
            )


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
        found = _read(directory.glob("acks-*.log"))
        self.done, self.acknowledged, self.is_settled = found.done, found.counts.messages, found.is_settled
        self.parts: int | None = document.get("parts")
        self.is_complete = (directory / "complete").exists()
        runs = [int(path.name.split("-")[1]) for path in directory.glob("acks-*.log")]
        self.place = CheckpointPlace(str(directory), max(runs, default=0) + 1, document["token"])

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


def _open(directory: Path, job: Job, files: Sequence[FileInfo]) -> Checkpoint:
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
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


def _document(directory: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = orjson.loads((directory / "job.json").read_bytes())
    except FileNotFoundError:
        return None
    except orjson.JSONDecodeError as error:
        raise CheckpointError(f"the checkpoint {directory} cannot be read: job.json is not JSON: {error}") from error
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


def _acks_path(directory: Path, run: int, task: int, attempt: int | str) -> Path:
    return directory / f"acks-{run:06d}-{task:05d}-{attempt}.log"


def _read(paths: Iterable[Path]) -> Acknowledged:
    """Raises CheckpointError if a ledger is still written to after a while."""
    found = Acknowledged()
    deadline_s = time.monotonic() + _WRITERS_LEAVE_S
    for path in sorted(paths):
        while not is_free(path):
            if time.monotonic() >= deadline_s:
                raise CheckpointError(f"{path} is still written to by an earlier run: end that run first")
            time.sleep(_POLL_S)
        data = path.read_bytes()
        found.is_settled = found.is_settled and is_settled(data)
        for entry in entries_in(data):
            found.done.setdefault(entry.lane, []).append(entry.range)
            found.counts.add(PublishCounts(entry.messages, entry.size_bytes, 0, entry.topics))
    found.done = {lane: merged(ranges) for lane, ranges in found.done.items()}
    return found


def _replace(path: Path, document: dict[str, Any]) -> None:
    """Write the whole document, or leave the file as it was."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(orjson.dumps(document))
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync_directory(path.parent)
