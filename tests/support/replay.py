"""A replay without Spark, and nsqds that are played: what a task sends, and what becomes of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.splits import FileInfo
from nsq_spark.archive.storage import Storage
from nsq_spark.publisher import Producers
from nsq_spark.replay.checkpoint import Checkpoint
from nsq_spark.replay.job import Job
from nsq_spark.replay.planning import Source, Task, ordered_tasks, plan
from nsq_spark.replay.task import Attempt, SendSink, Sink, TaskContext, TaskResult, index_times, run_task
from nsqd_py.client.errors import NsqClientError
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

    def send_mpub_pieces(self, topic: str, pieces: Sequence[bytes], on_done: OnDone) -> None:
        self._unanswered.append((topic, parsed_mpub(b"".join(pieces)), on_done))

    def publish_soon(self, topic: str, body: bytes, on_done: OnDone, *, defer_s: float) -> None:
        self._unanswered.append((topic, [body], on_done))

    def step(self, timeout_s: float) -> None:
        if self._unanswered:
            topic, bodies, on_done = self._unanswered.popleft()
            on_done(self._nsqd.publish(topic, bodies))

    def close(self, timeout_s: float) -> None:
        self._unanswered.clear()


def played(nsqd: PlayedNsqd) -> type[Sink]:
    """A sink that sends to a played nsqd."""

    class Played(Producers):
        def open(self) -> PlayedProducer:  # type: ignore[override]
            return PlayedProducer(nsqd)

    return type("PlayedSink", (SendSink,), {"producers": Played})


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


def tasks_of(
    job: Job, files: Sequence[FileInfo], slots: int = 2, checkpoint: Checkpoint | None = None
) -> tuple[TaskContext, Sequence[Task]]:
    """As the driver makes them."""
    made = plan(job, files, slots, checkpoint)
    context = TaskContext(job, done=made.done)
    if checkpoint is not None:
        context = replace(context, checkpoint=checkpoint.place, is_unsure=not checkpoint.is_settled)
    if not made.is_ordered:
        return context, made.tasks
    result = index_times(context, made.parts, Attempt(0))
    if result.error is not None:
        raise result.error
    sources: list[Source] = result.payload
    return context, ordered_tasks(made, sources, start_s=0.0)


def replayed(
    job: Job, files: Sequence[FileInfo], nsqd: PlayedNsqd, slots: int = 2, checkpoint: Checkpoint | None = None, attempt: int = 0
) -> list[TaskResult]:
    """All tasks, one after the other."""
    context, tasks = tasks_of(job, files, slots, checkpoint)
    attempts = (Attempt(task.number, 1000 * attempt + task.number, attempt) for task in tasks)
    return [run_task(context, played(nsqd), task, one) for task, one in zip(tasks, attempts, strict=True)]
