"""Ledgers: what nsqd acknowledged in each try of a task, on disk, so that a later run goes on from there.

    acks-<run>-<task>-<try>.log        the ledger of one try
    refused-<run>-<task>-<try>.jsonl   the messages that nsqd refused in it
    stop-<run>                         asks all tasks of a run to end

A ledger has a line `<crc32c in hex> <JSON>` for each change:

    ["counts", sending, sent, bytes, failed, {topic: messages}]
        all so far, except the last: the messages that were acknowledged since the line before. Written before a batch is sent
    ["done", key, mark, messages, bytes, {topic: messages}, again, refused, shared ids]
        a key is a slice that is done, or a part with all its slices, with the mark null;
        or a topic that is sent up to the time `mark`, with `again` messages of that time, which are sent once more

The kernel keeps what a killed process has written; fsync, at most twice a second, is for a machine that fails. A torn
line ends the file.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from functools import partial
from io import FileIO
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import orjson
from google_crc32c import value as crc32c

from nsq_spark.publisher import PublishCounts
from nsq_spark.replay.checkpoint.refused import RefusedMessage
from nsq_spark.replay.job import SHARED, CheckpointError, checkpoint_errors
from nsqd_py.runtime.private_files import open_file

_SYNC_INTERVAL_S = 0.5
# Executors notice within this time that their driver has ended.
_WRITERS_LEAVE_S = 15.0
_POLL_S = 0.05
_TAIL_BYTES = 64 * 1024
_COUNTS = re.compile(rb'^\w{8} \["counts",(\d+),(\d+),(\d+),(\d+),', re.MULTILINE)


@dataclass(slots=True)
class Totals:
    """Messages of a try of a task: those that it began to send, those acknowledged and their bytes, and those refused."""

    sending: int = 0
    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0


# ---- writing


@dataclass(slots=True)
class Unit:
    """Messages that are done together: those of a slice, or of a topic up to a time; or none, for a part with all its slices.

    count    how many are to be sent, so far
    refused  the messages that nsqd refused
    shared_ids  how many of its ids are those of messages with different bodies, as SHARED_ID counts them
    """

    key: str
    mark: int | None = None
    again: int = 0
    count: int = 0
    refused: list[RefusedMessage] = field(default_factory=list)
    shared_ids: int = 0
    counts: PublishCounts = field(default_factory=PublishCounts)

    @property
    def is_answered(self) -> bool:
        return self.counts.messages + len(self.refused) == self.count


class Ledger:
    """The file is locked as long as this process lives: a reader that finds it unlocked knows that it is complete.

    Without a path, nothing is saved. Methods raise CheckpointError if the file cannot be written;
    then it must be abandoned, since readers end at a torn line.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: FileIO | None = None
        self.totals = Totals()
        self._written = astuple(self.totals)
        self._topics: Counter[str] = Counter()  # acknowledged since the last line with counts
        self._lines: list[bytes] = []
        self._synced_s = monotonic()
        if path:
            with checkpoint_errors(f"{path} cannot be written"):
                self._file = FileIO(path, "a", opener=partial(open_file, mode=SHARED))
                fcntl.flock(self._file, fcntl.LOCK_EX)

    @property
    def refused_path(self) -> Path | None:
        """The file for the messages that nsqd refuses in this try; None if nothing is saved."""
        return self.path and self.path.with_name(f"{self.path.stem.replace('acks', 'refused')}.jsonl")

    def sending(self, count: int) -> None:
        """Write it at once: what is sent must be known to be a possible duplicate."""
        self.totals.sending += count
        self.write()

    def sent(self, unit: Unit, counts: PublishCounts) -> None:
        """Count messages of the unit that nsqd has acknowledged."""
        unit.counts.add(counts)
        self._topics.update(counts.topics)
        self.totals.sent += counts.messages
        self.totals.sent_bytes += counts.size_bytes

    def done(self, unit: Unit) -> None:
        counts = unit.counts
        sent = counts.messages, counts.size_bytes, counts.topics
        self._lines.append(
            _line(["done", unit.key, unit.mark, *sent, unit.again, len(unit.refused), unit.shared_ids])
        )

    def write(self, *, is_last: bool = False) -> None:
        """Write all changes since the last call. Sync them now and then, and with the last ones."""
        totals = astuple(self.totals)
        if totals != self._written:
            self._lines.append(_line(["counts", *totals, self._topics]))
            self._written = totals
            self._topics = Counter()
        data = b"".join(self._lines)
        self._lines = []
        if not self._file:
            return
        with checkpoint_errors(f"{self.path} cannot be written"):
            while data:
                data = data[self._file.write(data) :]
            if is_last or monotonic() - self._synced_s >= _SYNC_INTERVAL_S:
                os.fsync(self._file.fileno())
                self._synced_s = monotonic()

    def close(self) -> None:
        self.write(is_last=True)
        self.abandon()

    def abandon(self) -> None:
        """Close the file without writing: others wait for its lock."""
        if self._file:
            self._file.close()
            self._file = None


def _line(fields: list[Any]) -> bytes:
    text = orjson.dumps(fields)
    return b"%08x %b\n" % (crc32c(text), text)


# ---- reading


def lines_in(data: bytes) -> Iterator[list[Any]]:
    """Yield what the lines before the first torn one say."""
    for line in data.split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % crc32c(text):
            return
        yield orjson.loads(text)


def slice_name(number: int, part: str) -> str:
    return f"{number}#{part}"


@dataclass(slots=True)
class Acknowledged:
    """The content of ledgers.

    parts    that are done
    slices   that are done. Slice 7 of a part is named `7#<part>`
    marks    the times up to which topics are sent
    counts   of all that is done
    refused  the number of messages that nsqd refused in what is done
    shared_ids  the number of ids in it that messages with different bodies have
    unsure   the number of messages that nsqd may have, and that are sent again
    topics   the messages that nsqd acknowledged, also those that are not done
    """

    parts: set[str] = field(default_factory=set)
    slices: set[str] = field(default_factory=set)
    marks: dict[str, int] = field(default_factory=dict)
    counts: PublishCounts = field(default_factory=PublishCounts)
    refused: int = 0
    shared_ids: int = 0
    unsure: int = 0
    topics: Counter[str] = field(default_factory=Counter)

    def add(self, key: str, mark: int | None) -> None:
        if mark is not None:
            self.marks[key] = max(mark, self.marks.get(key, mark))
        elif key.partition("#")[0].isdigit():
            self.slices.add(key)
        else:
            self.parts.add(key)


def read_ledgers(paths: Iterable[Path]) -> Acknowledged:
    """Raises CheckpointError if a ledger is still written to after a while."""
    found = Acknowledged()
    deadline_s = monotonic() + _WRITERS_LEAVE_S
    for path in sorted(paths):
        while not _is_free(path):
            if monotonic() >= deadline_s:
                raise CheckpointError(f"{path} is still written to by an earlier run: end that run first")
            sleep(_POLL_S)
        begun = 0
        again: dict[str, int] = {}  # the next try, or the next run, sends them once more
        for kind, *fields in lines_in(path.read_bytes()):
            if kind == "counts":
                sending, _, _, failed, topics = fields
                begun = sending - failed
                found.topics.update(topics)
                continue
            key, mark, messages, size_bytes, topics, again[key], refused, shared_ids = fields
            found.add(key, mark)
            found.refused += refused
            found.shared_ids += shared_ids
            found.counts.add(PublishCounts(messages, size_bytes, 0, topics))
            found.unsure -= messages
        found.unsure += begun + sum(again.values())
    return found


def _is_free(path: Path) -> bool:
    """True if no process writes to the file any more."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# ---- all of a run


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The ledgers of a run, as executors use them. `token` says whether they see the directory of the driver."""

    directory: Path
    run: int
    token: str
    is_checkpoint: bool

    def ledger(self, task: int, attempt_id: int) -> Ledger:
        """Begin the ledger of one try of a task. Raises CheckpointError if there is a checkpoint, but not in sight."""
        if self._is_seen():
            return Ledger(self.directory / f"acks-{self.run:06d}-{task:05d}-{attempt_id}.log")
        if self.is_checkpoint:
            raise CheckpointError(
                f"the executors do not see the checkpoint directory {self.directory} of the driver: "
                "it must be on a file system that all of them share"
            )
        return Ledger(None)

    def earlier(self, task: int, own: Ledger) -> Acknowledged:
        """Return what earlier tries of the task did in this run. Waits for one that still works."""
        return read_ledgers(path for path in self._ledgers(f"{task:05d}-*") if path != own.path)

    def acknowledged(self) -> Acknowledged:
        """Return what all tries of all tasks did in this run. Raises CheckpointError if one goes on for long."""
        return read_ledgers(self._ledgers("*"))

    def totals(self) -> Totals:
        """Return the sum over all tries of all tasks in this run."""
        rows = []
        for path in self._ledgers("*"):
            with suppress(OSError), path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                rows += _COUNTS.findall(file.read())[-1:]
        columns = zip(*rows, strict=True)
        return Totals(*(sum(map(int, column)) for column in columns))

    def stop(self) -> None:
        """Ask all tasks to end."""
        with suppress(OSError):
            touch(stop_path(self.directory, self.run))

    @property
    def is_stopped(self) -> bool:
        return stop_path(self.directory, self.run).exists()

    def _is_seen(self) -> bool:
        try:
            found: dict[str, Any] = orjson.loads((self.directory / "job.json").read_bytes())
        except (OSError, ValueError):
            return False
        return found.get("token") == self.token

    def _ledgers(self, pattern: str) -> Iterator[Path]:
        return self.directory.glob(f"acks-{self.run:06d}-{pattern}.log")


def stop_path(directory: Path, run: int) -> Path:
    """Return the file that asks the tasks of a run to end."""
    return directory / f"stop-{run:06d}"


def touch(path: Path) -> None:
    """Make an empty file, or keep the one that is there. Raises OSError, also if it is a symbolic link."""
    os.close(open_file(path, os.O_CREAT | os.O_WRONLY, SHARED))
