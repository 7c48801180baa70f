"""Plan a job: parts of files for tasks, and topics for ordered tasks. No I/O in here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nsq_spark.archive.columns import Numbers
from nsq_spark.archive.formats import Compression, Format
from nsq_spark.archive.splits import FileInfo, Split, pack, plan_splits
from nsq_spark.replay.filter import needs_spark
from nsq_spark.replay.job import Job
from nsq_spark.replay.pace import PaceOfTask
from nsq_spark.replay.positions import BEFORE_ALL, BY_FILE, LAST_POSITION, Mark, Range, merged, overlapping

if TYPE_CHECKING:
    from nsq_spark.replay.checkpoint import Checkpoint

# Enough for a task that ends early to take over from a slow one, and few enough that their start costs little.
_TASKS_A_SLOT = 4
_LEAST_SPLIT_BYTES = 1024 * 1024
_SHUFFLED_BYTES = 64 * 1024 * 1024
# A position is that of the record in its file, in bytes, and below it these bits for the message in the record.
OFFSET_BITS = 20


@dataclass(frozen=True, slots=True)
class Part:
    """A split, the number of its file in the job, and the merged ranges of that file that are done."""

    split: Split
    file: int
    done: tuple[Range, ...] = ()

    @property
    def has_offsets(self) -> bool:
        """True if positions tell the split that they are in."""
        return self.split.format is not Format.PARQUET and self.split.compression is Compression.NONE

    @property
    def low(self) -> Mark | None:
        """The mark just before the first message; None if only reading tells it."""
        if self.split.start == 0:
            return (0, self.file, -1)
        return (0, self.file, (self.split.start << OFFSET_BITS) - 1) if self.has_offsets else None

    @property
    def high(self) -> Mark | None:
        """A mark from the last message to before the next part; None if only reading tells it."""
        if self.split.is_last:
            return (0, self.file, LAST_POSITION)
        return (0, self.file, (self.split.end << OFFSET_BITS) - 1) if self.has_offsets else None

    @property
    def _bounds(self) -> Range:
        """What the part may hold: anything in the file, if only reading tells."""
        if self.low is None or self.high is None:
            return Range((0, self.file, -1), (0, self.file, LAST_POSITION))
        return Range(self.low, self.high)

    @property
    def is_done(self) -> bool:
        low, high = self._bounds
        return any(one.low <= low and high <= one.high for one in self.done)

    @property
    def is_begun(self) -> bool:
        """True if some of it is done."""
        low, high = self._bounds
        return self.split.after >= 0 or any(one.low < high and low < one.high for one in self.done)

    def resumed(self) -> Part:
        """Return the part without what is done at its beginning."""
        low = self.low
        ends = (one.high[2] for one in self.done if low is not None and one.low <= low < one.high)
        return replace(self, split=self.split.resumed(next(ends, self.split.after)))


@dataclass(slots=True)
class Source:
    """The messages of one topic in one part; `is_sorted` by time."""

    part: Part
    topic: str
    first_ns: int
    last_ns: int
    count: int = 0
    is_sorted: bool = True

    def add(self, times_ns: Numbers) -> None:
        """Count the next messages."""
        is_behind = self.count == 0 or int(times_ns[0]) >= self.last_ns
        self.is_sorted = self.is_sorted and is_behind and bool((np.diff(times_ns) >= 0).all())
        self.first_ns = min(self.first_ns, int(times_ns.min()))
        self.last_ns = max(self.last_ns, int(times_ns.max()))
        self.count += len(times_ns)


@dataclass(frozen=True, slots=True)
class Task:
    """Parts that are read one after the other; or, in an ordered job, sources that are merged by time.

    limit  the number of messages to take, the first; None: all
    """

    number: int
    parts: tuple[Part, ...] = ()
    sources: tuple[Source, ...] = ()
    pace: PaceOfTask = PaceOfTask()
    limit: int | None = None

    @property
    def size_bytes(self) -> int:
        return size_of(self.parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """A job with its parts that are left to read.

    tasks  those of a job that is neither ordered nor shuffled
    limit  the number of messages that are left to send, if the job has a limit
    """

    job: Job
    files: tuple[FileInfo, ...]
    slots: int
    parts: tuple[Part, ...]
    tasks: tuple[Task, ...]
    done: Mapping[str, tuple[Range, ...]]
    shuffle_parts: int = 0
    limit: int | None = None

    @property
    def is_ordered(self) -> bool:
        return self.job.pacing.is_ordered

    @property
    def is_shuffled(self) -> bool:
        return bool(self.job.selection.dedupe)

    @property
    def uses_sql(self) -> bool:
        """True if messages go through Spark SQL; otherwise they never leave Python."""
        return needs_spark(self.job.selection.where, self.job.selection.json_schema) or self.is_shuffled

    @property
    def size_bytes(self) -> int:
        return size_of(self.parts)

    @property
    def topics(self) -> list[str]:
        """The topics, as far as the names of files tell them."""
        wanted = self.job.selection.wanted
        return sorted({info.topic for info in self.files if info.has_one_topic and wanted.has_topic(info.topic)})

    def describe(self) -> list[tuple[str, str]]:
        """Return rows that tell the user about the plan."""
        formats = Counter(info.format.value for info in self.files)
        all_bytes = sum(info.size_bytes - info.start for info in self.files)
        way = "through Spark SQL" if self.uses_sql else "as stored"
        return [
            ("files", f"{len(self.files)} ({', '.join(f'{count} {name}' for name, count in sorted(formats.items()))})"),
            ("bytes", f"{self.size_bytes:,}" + (f" left of {all_bytes:,}" if self.done else "")),
            ("tasks", f"{len(self.tasks)}" if self.tasks else f"up to {self.slots} at a time"),
            ("way", f"{way}, by time" if self.is_ordered else way),
        ]

    def sent_up_to(self, topic: str) -> Mark | None:
        """Return the mark of an ordered topic up to which all messages are acknowledged."""
        ranges = self.done.get(topic, ())
        return ranges[0].high if ranges and ranges[0].low == BEFORE_ALL else None


def size_of(parts: Iterable[Part]) -> int:
    return sum(part.split.size_bytes for part in parts)


def plan(job: Job, files: Sequence[FileInfo], slots: int, earlier: Checkpoint | None = None) -> Plan:
    """Return the plan of a job for `slots` tasks that run at the same time; `earlier` is what earlier runs left."""
    slots = max(1, job.parallelism or slots)
    done = {lane: tuple(merged(ranges)) for lane, ranges in earlier.done.items()} if earlier is not None else {}
    parts = _parts(job, files, slots, done.get(BY_FILE, ()))
    limit, shuffle_parts = job.selection.limit, None
    if earlier is not None:
        shuffle_parts = earlier.parts
        limit = limit and limit - earlier.acknowledged  # these are among the first, whatever came between them
    if job.selection.dedupe:
        shuffle_parts = shuffle_parts or max(slots, -(-size_of(parts) // _SHUFFLED_BYTES))
        return Plan(job, tuple(files), slots, parts, (), done, shuffle_parts, limit)
    tasks = () if job.pacing.is_ordered else _by_file_tasks(job, parts, slots, limit)
    return Plan(job, tuple(files), slots, parts, tasks, done, 0, limit)


def _parts(job: Job, files: Sequence[FileInfo], slots: int, done: Sequence[Range]) -> tuple[Part, ...]:
    numbers = {info.path: number for number, info in enumerate(files)}
    size_bytes = sum(info.size_bytes for info in files)
    # Each task of a large archive gets the same number of splits: with one split more, a slot waits for another.
    tasks = _task_count(job, size_bytes, slots)
    splits_each = max(1, -(-size_bytes // (tasks * job.split_bytes)))
    split_bytes = max(_LEAST_SPLIT_BYTES, -(-size_bytes // (tasks * splits_each)))
    parts = []
    for split in plan_splits(files, split_bytes, job.selection.wanted):
        file = numbers[split.path]
        part = Part(split, file, tuple(overlapping(done, (0, file, -2), (0, file, LAST_POSITION))))
        if not part.is_done:
            parts.append(part.resumed())
    return tuple(parts)


def _task_count(job: Job, size_bytes: int, slots: int) -> int:
    return min(slots * _TASKS_A_SLOT, max(slots, -(-size_bytes // job.split_bytes)))


def packed(parts: Sequence[Part], count: int) -> tuple[Task, ...]:
    """Return at most `count` tasks of about the same size."""
    by_index = {part.split.index: part for part in parts}
    groups = pack([part.split for part in parts], tasks=count)
    groups.sort(key=lambda group: group[0].index)
    return tuple(Task(n, tuple(by_index[split.index] for split in group)) for n, group in enumerate(groups))


def _by_file_tasks(job: Job, parts: Sequence[Part], slots: int, limit: int | None) -> tuple[Task, ...]:
    rate = job.pacing.rate
    if limit is not None:  # one task takes the first messages, and stops there
        return (Task(0, tuple(parts), pace=PaceOfTask(rate), limit=limit),) if parts else ()
    if rate is None:
        return packed(parts, _task_count(job, size_of(parts), slots))
    # All run at once, each with a share of the rate by its size, so that they end together.
    whole = max(1, size_of(parts))
    return tuple(replace(task, pace=PaceOfTask(rate * task.size_bytes / whole)) for task in packed(parts, slots))


def ordered_tasks(plan: Plan, sources: Sequence[Source], start_s: float) -> tuple[Task, ...]:
    """Return tasks of whole topics, with about the same number of messages, that all run at the same time."""
    left = [source for source in sources if not _is_sent(plan, source)]
    counts: Counter[str] = Counter()
    for source in left:
        counts[source.topic] += source.count
    groups = [set(counts)] if plan.limit is not None else _balanced(counts, plan.slots)
    pacing, total = plan.job.pacing, max(1, counts.total())
    marks = ((source.first_ns, plan.sent_up_to(source.topic)) for source in left)
    origin_ns = min((first_ns if mark is None else max(first_ns, mark[0]) for first_ns, mark in marks), default=0)
    tasks = []
    for number, topics in enumerate(groups):
        own = tuple(source for source in left if source.topic in topics)
        rate = None if pacing.rate is None else pacing.rate * sum(source.count for source in own) / total
        pace = PaceOfTask(rate, pacing.speed, origin_ns, start_s)
        tasks.append(Task(number, tuple({source.part: None for source in own}), own, pace, plan.limit))
    return tuple(task for task in tasks if task.sources)


def _balanced(counts: Mapping[str, int], most: int) -> list[set[str]]:
    groups: list[set[str]] = [set() for _ in range(min(most, len(counts)))]
    loads = [0] * len(groups)
    for topic in sorted(counts, key=lambda topic: (-counts[topic], topic)):
        number = loads.index(min(loads))
        groups[number].add(topic)
        loads[number] += counts[topic]
    return groups


def _is_sent(plan: Plan, source: Source) -> bool:
    mark = plan.sent_up_to(source.topic)
    return mark is not None and source.last_ns < mark[0]
