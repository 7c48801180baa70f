"""The acknowledged messages of a job, on disk: for the progress of a run, and so that a later run goes on from there.

    job.json                       the job, its times, and the files that its first run found
    acks-<run>-<task>-<try>.log    the ledger of one try of a task
    refused-<run>-<task>-<try>.jsonl   the messages that nsqd refused in one try of a task
    stop                           asks all tasks to end
    complete                       exists once all was sent
    lock                           is locked while a driver uses the directory

A job is about the files of its first run, at the size that they had then: what is written to the archive later is not
sent. All executors have to see the directory. Without --checkpoint, a temporary directory has the ledgers.

A ledger has a line `<crc32c in hex> <JSON>` for each change:

    ["counts", sending, sent, bytes, failed, {topic: messages}]
        all so far, except the last: the messages that were acknowledged since the line before. Written before a batch is sent
    ["done", lane, mark, messages, bytes, {topic: messages}, again, refused, shared ids]
        a lane is a slice that is done, or a part with all its slices, with the mark null;
        or a topic that is sent up to the time `mark`, with `again` messages of that time, which are sent once more

The kernel keeps what a killed process has written; fsync, at most twice a second, is for a machine that fails. A torn
line ends the file.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from google_crc32c import value as crc32c

from nsq_spark.archive.splits import ArchiveError, Compression, FileInfo, Format
from nsq_spark.archive.storage import Storage, local_path
from nsq_spark.publisher import PublishCounts
from nsq_spark.replay.job import SHARED, CheckpointError, Job
from nsq_spark.replay.refused import RefusedMessage
from nsqd_py.diskqueue.files import replace_file, sync_directory
from nsqd_py.runtime.documents import BAD_CONTENT, describe
from nsqd_py.runtime.private_files import open_file

SYNC_INTERVAL_S = 0.5
_VERSION = 4
_HEAD, _HEAD_BYTES = "head_crc32c", 4096
# Executors notice within this time that their driver has ended.
_WRITERS_LEAVE_S = 15.0
_POLL_S = 0.05
_SLICE_NAME = re.compile(r"\d+#")
_TAIL_BYTES = 64 * 1024


# ---- ledgers


@dataclass(slots=True)
class Unit:
    """Messages that are done together: those of a slice, or of a topic up to a time.

    count    how many are to be sent, so far; `is_closed`: there are no more
    refused  the messages that nsqd refused
    shared_ids  how many of its ids are those of messages with different bodies, as SHARED_ID counts them
    """

    lane: str
    mark: int | None = None
    again: int = 0
    count: int = 0
    refused: list[RefusedMessage] = field(default_factory=list)
    shared_ids: int = 0
    is_closed: bool = False
    counts: PublishCounts = field(default_factory=PublishCounts)

    @property
    def is_answered(self) -> bool:
        return self.is_closed and self.counts.messages + len(self.refused) == self.count

    def acknowledged(self, topic: str, count: int, size_bytes: int) -> None:
        self.counts.add(PublishCounts(count, size_bytes, 0, {topic: count}))


class Totals(NamedTuple):
    """Messages of a try of a task: those that it began to send, those acknowledged and their bytes, and those refused."""

    sending: int = 0
    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0

    def plus(self, *others: int) -> Totals:
        return Totals(*(one + other for one, other in zip(self, others, strict=True)))


class Ledger:
    """The file is locked as long as this process lives: a reader that finds it unlocked knows that it is complete.

    Without a path, nothing is kept.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._file = None if path is None else open(path, "ab", buffering=0, opener=partial(open_file, mode=SHARED))  # noqa: SIM115  until `close`
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._totals = self._written = Totals()
        self._topics: Counter[str] = Counter()  # acknowledged since the last line with counts
        self._lines: list[bytes] = []
        self._synced_s = clock()

    @property
    def is_kept(self) -> bool:
        return self._file is not None

    def sending(self, count: int) -> None:
        """Write it at once: what is sent must be known to be a possible duplicate."""
        self._totals = self._totals.plus(count, 0, 0, 0)
        self.write()

    def sent(self, topic: str, count: int, size_bytes: int) -> None:
        self._topics[topic] += count
        self._totals = self._totals.plus(0, count, size_bytes, 0)

    def failed(self, count: int) -> None:
        self._totals = self._totals.plus(0, 0, 0, count)

    def done(self, unit: Unit) -> None:
        counts = unit.counts
        sent = counts.messages, counts.size_bytes, counts.topics
        self._lines.append(_line(["done", unit.lane, unit.mark, *sent, unit.again, len(unit.refused), unit.shared_ids]))

    def write(self) -> None:
        """Write all changes since the last call."""
        if self._totals != self._written:
            self._lines.append(_line(["counts", *self._totals, self._topics]))
            self._topics = Counter()
        data = b"".join(self._lines)
        self._lines, self._written = [], self._totals
        while data and self._file is not None:
            data = data[self._file.write(data) :]
        if self._file is not None and self._clock() - self._synced_s >= SYNC_INTERVAL_S:
            self._sync()

    def close(self) -> None:
        if self._file is not None:
            self.write()
            self._sync()
        self.abandon()

    def abandon(self) -> None:
        """Close the file without writing: others wait for its lock."""
        if self._file is not None:
            self._file.close()

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._synced_s = self._clock()


def _line(fields: list[Any]) -> bytes:
    text = orjson.dumps(fields)
    return b"%08x %b\n" % (crc32c(text), text)


def lines_in(data: bytes) -> Iterator[list[Any]]:
    """Yield what the lines before the first torn one say."""
    for line in data.split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % crc32c(text):
            return
        yield orjson.loads(text)


@dataclass(slots=True)
class Acknowledged:
    """The content of ledgers.

    done     slices and parts, and the times up to which topics are sent, by lane. Slice 7 of a part is named `7#<part>`
    counts   of all that is done
    refused  the number of messages that nsqd refused in what is done
    shared_ids  the number of ids in it that messages with different bodies have
    unsure   the number of messages that nsqd may have, and that are sent again
    topics   the messages that nsqd acknowledged, also those that are not done
    """

    done: dict[str, int | None] = field(default_factory=dict)
    counts: PublishCounts = field(default_factory=PublishCounts)
    refused: int = 0
    shared_ids: int = 0
    unsure: int = 0
    topics: Counter[str] = field(default_factory=Counter)

    @property
    def marks(self) -> dict[str, int]:
        """The times up to which topics are sent."""
        return {lane: mark for lane, mark in self.done.items() if mark is not None}

    @property
    def done_parts(self) -> frozenset[str]:
        return frozenset(lane for lane, mark in self.done.items() if mark is None and not _SLICE_NAME.match(lane))

    @property
    def done_slices(self) -> frozenset[str]:
        """The slices that are done, of parts that are not."""
        slices = ((lane, _SLICE_NAME.match(lane)) for lane, mark in self.done.items() if mark is None)
        return frozenset(lane for lane, match in slices if match and lane[match.end() :] not in self.done)


def slice_name(number: int, part: str) -> str:
    return f"{number}#{part}"


def _read(paths: Iterable[Path]) -> Acknowledged:
    """Raises CheckpointError if a ledger is still written to after a while."""
    found = Acknowledged()
    again: dict[str, int] = {}
    deadline_s = time.monotonic() + _WRITERS_LEAVE_S
    for path in sorted(paths):
        while not _is_free(path):
            if time.monotonic() >= deadline_s:
                raise CheckpointError(f"{path} is still written to by an earlier run: end that run first")
            time.sleep(_POLL_S)
        begun = 0
        for kind, *fields in lines_in(path.read_bytes()):
            if kind == "counts":
                begun = fields[0] - fields[3]
                found.topics.update(fields[4])
                continue
            lane, mark, messages, size_bytes, topics, again[lane], refused, shared_ids = fields
            found.done[lane] = mark if mark is None else max(mark, found.done.get(lane) or mark)
            found.refused += refused
            found.shared_ids += shared_ids
            found.counts.add(PublishCounts(messages, size_bytes, 0, topics))
            found.unsure -= messages
        found.unsure += begun
    found.unsure += sum(again.values())
    return found


def _is_free(path: Path) -> bool:
    """True if no process writes to the file any more."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The ledgers of a run, as executors use them. `token` says whether they see the directory of the driver."""

    directory: str
    run: int
    token: str
    is_checkpoint: bool

    def ledger(self, task: int, attempt_id: int) -> Ledger:
        """Begin the ledger of one try of a task. Raises CheckpointError if there is a checkpoint, but not in sight."""
        if self._is_seen():
            return Ledger(self._path(task, attempt_id))
        if self.is_checkpoint:
            raise CheckpointError(
                f"the executors do not see the checkpoint directory {self.directory} of the driver: "
                "it must be on a file system that all of them share"
            )
        return Ledger(None)

    def earlier(self, task: int, attempt_id: int) -> Acknowledged:
        """Return what earlier tries of the task did in this run. Waits for one that still works."""
        own = self._path(task, attempt_id)
        return _read(path for path in own.parent.glob(self._path(task, "*").name) if path != own)

    def totals(self) -> Totals:
        """Return the sum over all tries of all tasks in this run."""
        found = Totals()
        for path in Path(self.directory).glob(f"acks-{self.run:06d}-*.log"):
            with suppress(OSError):
                with path.open("rb") as file:
                    file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                    tail = file.read().split(b"\n")
                said = [orjson.loads(line[9:]) for line in tail[:-1] if line[9:].startswith(b'["counts"')]
                found = found.plus(*said[-1][1:5]) if said else found
        return found

    def acknowledged(self) -> Acknowledged:
        """Return what all tries of all tasks did in this run. Raises CheckpointError if one goes on for long."""
        return _read(Path(self.directory).glob(f"acks-{self.run:06d}-*.log"))

    def stop(self) -> None:
        """Ask all tasks to end."""
        with suppress(OSError):
            _touch(Path(self.directory) / "stop")

    @property
    def is_stopped(self) -> bool:
        return (Path(self.directory) / "stop").exists()

    def _is_seen(self) -> bool:
        try:
            found: dict[str, Any] = orjson.loads((Path(self.directory) / "job.json").read_bytes())
        except (OSError, ValueError):
            return False
        return found.get("token") == self.token

    def refused_path(self, task: int, attempt_id: int) -> Path | None:
        """Return the file for the messages that nsqd refuses in one try of a task; None if it would not be seen."""
        name = f"refused-{self.run:06d}-{task:05d}-{attempt_id}.jsonl"
        return Path(self.directory) / name if self._is_seen() else None

    def _path(self, task: int, attempt_id: int | str) -> Path:
        return Path(self.directory) / f"acks-{self.run:06d}-{task:05d}-{attempt_id}.log"


# ---- the directory


class Checkpoint:
    """An open directory.

    job, files    as of the first run
    earlier       what earlier runs did; `is_complete`: nothing is left to do
    """

    def __init__(self, directory: Path, document: dict[str, Any], job: Job, lock: int) -> None:
        self.directory = directory
        self._document = document
        self._lock = lock
        job = job.at_times(document["start_ns"], document["end_ns"])
        schema = document.get("json_schema") or job.selection.json_schema
        self.job = replace(job, selection=replace(job.selection, json_schema=schema))
        self.files = [_file_info(fields) for fields in document["files"]]
        paths = list(directory.glob("acks-*.log"))
        self.earlier = _read(paths)
        self.is_complete = (directory / "complete").exists()
        run = max((int(path.name.split("-")[1]) for path in paths), default=0) + 1
        self.ledgers = Ledgers(str(directory), run, document["token"], job.checkpoint is not None)

    def remember_schema(self, schema: str | None) -> None:
        """Write down the types that Spark inferred, so that later runs choose the same messages."""
        if schema is not None and self._document.get("json_schema") != schema:
            self._document["json_schema"] = schema
            replace_file(self.directory / "job.json", orjson.dumps(self._document), mode=SHARED)

    def completed(self) -> None:
        _touch(self.directory / "complete")
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


def _touch(path: Path) -> None:
    """Make an empty file, or keep the one that is there. Raises OSError, also if it is a symbolic link."""
    os.close(open_file(path, os.O_CREAT | os.O_WRONLY, SHARED))


def has_checkpoint(directory: str) -> bool:
    return Path(local_path(directory), "job.json").exists()


def open_checkpoint(directory: str, job: Job, files: Sequence[FileInfo]) -> Checkpoint:
    """Open or begin a checkpoint.

    Raises CheckpointError: it belongs to another job, it is in use, or a file has changed.
    """
    path = Path(local_path(directory))
    try:
        return _open(path, job, files)
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be used: {error.strerror}") from error
    except BAD_CONTENT as error:
        raise CheckpointError(f"the checkpoint {path} has content that spark-replay does not write: {describe(error)}") from error


def _open(directory: Path, job: Job, files: Sequence[FileInfo]) -> Checkpoint:
    directory.mkdir(parents=True, exist_ok=True)
    lock = open_file(directory / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(f"the checkpoint {directory} is in use by another spark-replay") from None
        document = _document(directory)
        if document is None:
            document = _first_document(job, files)
            replace_file(directory / "job.json", orjson.dumps(document), mode=SHARED)
        else:
            _check_job(directory, document["identity"], job)
            _check_files(document["files"], Storage(job.storage))
        (directory / "stop").unlink(missing_ok=True)
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
        raise CheckpointError(f"the checkpoint {directory} is of another version of spark-replay: use that one, or delete it")
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
    for name, value in orjson.loads(orjson.dumps(job.identity())).items():
        if theirs.get(name) != value:
            was, is_now = ("not given" if one in (None, "", []) else str(one) for one in (theirs.get(name), value))
            raise CheckpointError(
                f"the checkpoint {directory} is of another job: its {name} is {was}, not {is_now}; use another directory, "
                "or delete this one"
            )


def _check_files(files: Iterable[dict[str, Any]], storage: Storage) -> None:
    for fields in files:
        found = _head_checksum(fields["path"], fields["size_bytes"], storage)
        if None not in (found, fields[_HEAD]) and found != fields[_HEAD]:
            raise CheckpointError(f"{fields['path']} is another file than when the job began; use a new checkpoint")
