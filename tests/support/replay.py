"""A replay without Spark, and nsqds that are played: what a task sends, and what becomes of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.splits import FileInfo
from nsq_spark.archive.storage import Storage
from nsq_spark.publisher import Producers
from nsq_spark.replay.checkpoint.directory import Checkpoint
from nsq_spark.replay.checkpoint.ledger import Acknowledged, Ledgers
from nsq_spark.replay.job import Job
from nsq_spark.replay.messages import SENDING
from nsq_spark.replay.outcome import Outcome
from nsq_spark.replay.pace import Pace
from nsq_spark.replay.task import Sender
from nsq_spark.source.batch_reader import partitions_of, read_partition
from nsq_spark.source.options import ReadOptions
from nsqd_py.client.errors import ConnectionLost, NsqClientError
from nsqd_py.client.publishing.publish import PendingPublish
from tests.support.archives import Message, framed

OnDone = Callable[[NsqClientError | None], object]


class Killed(BaseException):
    """The process ends here: nothing that stands behind it happens."""


class PlayedNsqd:
    """Stores what it acknowledges.

    verdict   asked about each publish before it is acknowledged: an error refuses it
    dies_at   after so many acknowledgements whoever talks to it is killed
    """

    def __init__(self, dies_at: int | None = None) -> None:
        self.stored: list[tuple[str, bytes]] = []
        self.acknowledged_publishes = 0
        self.dies_at = dies_at
        self.verdict: Callable[[str, list[bytes]], NsqClientError | None] = lambda topic, bodies: None

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.stored]

    def counts(self) -> Counter[bytes]:
        return Counter(self.bodies)

    def publish(self, topic: str, bodies: list[bytes]) -> NsqClientError | None:
        if self.dies_at is not None and self.acknowledged_publishes >= self.dies_at:
            raise Killed
        error = self.verdict(topic, bodies)
        if error is None:
            self.stored += [(topic, body) for body in bodies]
            self.acknowledged_publishes += 1
        return error


class PlayedProducer:
    """A producer, as far as a TaskPublisher needs one. Answers come with the steps."""

    has_discovered = True
    nsqd_count = 1
    is_refused = False

    def __init__(self, nsqd: PlayedNsqd) -> None:
        self._nsqd = nsqd
        self._unanswered: deque[tuple[str, list[bytes], OnDone]] = deque()

    def send_mpub_pieces(self, topic: str, pieces: Sequence[bytes], on_done: OnDone) -> PendingPublish:
        self._unanswered.append((topic, parsed_mpub(b"".join(pieces)), on_done))
        return PendingPublish(b"", b"", 0.0)

    def publish_soon(self, topic: str, body: bytes, on_done: OnDone, *, defer_s: float) -> PendingPublish:
        self._unanswered.append((topic, [body], on_done))
        return PendingPublish(b"", b"", 0.0)

    def step(self, timeout_s: float) -> None:
        if self._unanswered:
            topic, bodies, on_done = self._unanswered.popleft()
            error = self._nsqd.publish(topic, bodies)
            on_done(error)
            if isinstance(error, ConnectionLost):
                self.close(timeout_s)

    def close(self, timeout_s: float) -> None:
        """What is not answered comes back."""
        unanswered, self._unanswered = self._unanswered, deque()
        for _, _, on_done in unanswered:
            on_done(ConnectionLost("played:1", "closed"))


def played(nsqd: PlayedNsqd) -> type[Producers]:
    class Played(Producers):
        def open(self) -> PlayedProducer:  # type: ignore[override]
            return PlayedProducer(nsqd)

    return Played


def parsed_mpub(body: bytes) -> list[bytes]:
    count, position = int.from_bytes(body[:4], "big"), 4
    found = []
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        found.append(body[position + 4 : position + 4 + size])
        position += 4 + size
    assert len(found) == count
    return found


def write_framed(path: Path, some: Sequence[Message], record: int = 10) -> Path:
    """A file of records of so many messages."""
    path.write_bytes(framed([some[start : start + record] for start in range(0, len(some), record)]))
    return path


def files_of(*paths: Path) -> list[FileInfo]:
    return list_files([str(path) for path in paths], Storage())


def rows_of(
    job: Job,
    files: Sequence[FileInfo],
    done: Collection[str] = (),
    slice_bytes: int = 2048,
    columns: Sequence[str] = (*SENDING[:2], "id", *SENDING[2:]),
) -> list[pa.RecordBatch]:
    """The rows of each partition, as `messages` reads them for a job without a predicate."""
    options = ReadOptions(
        job.paths, Storage(), job.hints, job.selection.requested, job.skip_damaged, slice_bytes
    )
    return [
        pa.Table.from_batches(list(read_partition(one))).combine_chunks().to_batches()[0]
        for one in partitions_of(files, options, columns, frozenset(done))
    ]


def in_order(rows: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows of all partitions in one, as an ordered job has them."""
    if not rows:
        return []
    table = (
        pa.Table.from_batches(rows)
        .sort_by([("timestamp_ns", "ascending"), ("id", "ascending")])
        .combine_chunks()
    )
    return table.to_batches()


def replayed(
    job: Job,
    files: Sequence[FileInfo],
    nsqd: PlayedNsqd,
    checkpoint: Checkpoint | None = None,
    attempt: int = 0,
    slice_bytes: int = 2048,
    sockets: Sequence[int] = (),
    paces: Mapping[int, Pace] = MappingProxyType({}),
) -> list[Outcome]:
    """All tasks, one after the other."""
    earlier = Acknowledged() if checkpoint is None else checkpoint.earlier
    done = earlier.marks
    ledgers = (
        Ledgers(Path("/no/such/place"), 1, "", is_checkpoint=False)
        if checkpoint is None
        else checkpoint.ledgers
    )
    rows = (
        in_order(rows_of(job, files)) if job.is_ordered else rows_of(job, files, earlier.parts, slice_bytes)
    )
    if job.is_ordered and rows:
        topics, times = (rows[0].column(name).to_pylist() for name in ("topic", "timestamp_ns"))
        rows = [
            rows[0].filter(
                pa.array([at >= (done.get(topic) or 0) for topic, at in zip(topics, times, strict=True)])
            )
        ]
    producers = played(nsqd)((), (), job.destination.options, job.give_up_after_s, is_ordered=job.is_ordered)
    sender = Sender(job, ledgers, producers, paces, files, frozenset(earlier.slices), job.selection.limit)
    return [
        sender.send(cut(batch), number, attempt, 1000 * attempt + number, sockets)
        for number, batch in enumerate(rows)
    ]


def cut(rows: pa.RecordBatch, size: int = 30) -> Iterator[pa.RecordBatch]:
    return (rows.slice(low, size) for low in range(0, rows.num_rows, size))
