"""What each task does: parts of files for tasks, and topics for ordered streams. No I/O in here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from spark.archive.formats import Compression, Format
from spark.archive.splits import FileInfo, Split, pack, plan_splits
from spark.replay.filter import filter_of
from spark.replay.job import Job
from spark.replay.marks import AFTER_ALL, BEFORE_ALL, BY_FILE, LAST_POSITION, Mark, Range, merged, overlapping
from spark.replay.pace import PaceOfTask

# Enough for one that ends early to take over from one that is slow, and few enough that their start is no cost.
_TASKS_A_SLOT = 4
_LEAST_SPLIT_BYTES = 1024 * 1024
_SHUFFLED_BYTES = 64 * 1024 * 1024
_OFFSET_BITS = 20


@dataclass(frozen=True, slots=True)
class Part:
    """A split, with the number of its file in the job, and what is done of that file: merged ranges of lane ""."""

    split: Split
    file: int
    done: tuple[Range, ...] = ()

    @property
    def has_offsets(self) -> bool:
        """Whether positions tell which split they are in."""
        return self.split.format is not Format.PARQUET and self.split.compression is Compression.NONE

    @property
    def low(self) -> Mark | None:
        """Just before its first message; None where only reading tells."""
        if self.split.start == 0:
            return (0, self.file, -1)
        return (0, self.file, (self.split.start << _OFFSET_BITS) - 1) if self.has_offsets else None

    @property
    def high(self) -> Mark | None:
        """Not before its last message, and before the first one of the next; None where only reading tells."""
        if self.split.is_last:
            return (0, self.file, LAST_POSITION)
        return (0, self.file, (self.split.end << _OFFSET_BITS) - 1) if self.has_offsets else None

    @property
    def is_done(self) -> bool:
        whole_file = Range((0, self.file, -1), (0, self.file, LAST_POSITION))
        wanted = Range(self.low, self.high) if self.low is not None and self.high is not None else whole_file
        return any(one.low <= wanted.low and wanted.high <= one.high for one in self.done)

    @property
    def is_begun(self) -> bool:
        """Whether some of it is done."""
        low, high = self.low, self.high
        if low is None or high is None:
            return bool(self.done)
        return self.split.after >= 0 or any(one.low < high and low < one.high for one in self.done)

    def resumed(self) -> Part:
        """Without what is done at its beginning."""
        if self.low is None:
            return self
        for one in self.done:
            if one.low <= self.low < one.high:
                return replace(self, split=self.split.resumed(one.high[2]))
        return self


@dataclass(frozen=True, slots=True)
class Task:
    """What is done one behind the other. An ordered one merges its topics out of its sources."""

    number: int
    parts: tuple[Part, ...] = ()
    sources: tuple[Source, ...] = ()
    pace: PaceOfTask = PaceOfTask()

    @property
    def size_bytes(self) -> int:
        return sum(part.split.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class Source:
    """The messages of one topic in one part, all of a time not before `first_ns`; `is_sorted` by time."""

    part: Part
    topic: str
    first_ns: int
    last_ns: int
    count: int
    is_sorted: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`parts` are what is left to read. `tasks` are known at once where nothing is ordered or shuffled."""

    job: Job
    files: tuple[FileInfo, ...]
    slots: int
    parts: tuple[Part, ...]
    tasks: tuple[Task, ...]
    done: Mapping[str, tuple[Range, ...]]
    shuffle_parts: int = 0

    @property
    def is_ordered(self) -> bool:
        return self.job.pacing.is_ordered

    @property
    def is_shuffled(self) -> bool:
        return bool(self.job.selection.dedupe)

    @property
    def uses_frame(self) -> bool:
        """Whether messages go through Spark SQL; otherwise they never leave Python."""
        selection = self.job.selection
        is_filtered_by_spark = selection.where is not None and not filter_of(selection.where, selection.json_schema)
        return is_filtered_by_spark or self.is_shuffled

    @property
    def route(self) -> str:
        how = "through Spark SQL" if self.uses_frame else "as stored"
        return f"{how}, by time" if self.is_ordered else how

    @property
    def size_bytes(self) -> int:
        return sum(part.split.size_bytes for part in self.parts)

    @property
    def all_bytes(self) -> int:
        return sum(info.size_bytes - info.start for info in self.files)

    @property
    def topics(self) -> list[str]:
        """As far as they are known without a look into the files."""
        wanted = self.job.selection.wanted
        found = {info.topic for info in self.files if info.has_one_topic and wanted.has_topic(info.topic)}
        return sorted(found)

    def describe(self) -> list[tuple[str, str]]:
        """For people, before it begins."""
        formats = Counter(info.format.value for info in self.files)
        rows = [
            ("files", f"{len(self.files)} ({', '.join(f'{count} {name}' for name, count in sorted(formats.items()))})"),
            ("bytes", f"{self.size_bytes:,}" + (f" left of {self.all_bytes:,}" if self.done else "")),
            ("tasks", f"{len(self.tasks)}" if self.tasks else f"up to {self.slots} at a time"),
            ("way", self.route),
        ]
        return rows


class Earlier(Protocol):
    """What earlier runs of the job left: its checkpoint."""

    @property
    def done(self) -> Mapping[str, Iterable[Range]]: ...

    @property
    def parts(self) -> int | None: ...


def plan(job: Job, files: Sequence[FileInfo], slots: int, earlier: Earlier | None = None) -> Plan:
    """For `slots` tasks that run at the same time."""
    slots = max(1, job.parallelism or slots)
    done = {lane: tuple(merged(ranges)) for lane, ranges in earlier.done.items()} if earlier is not None else {}
    parts = _parts(job, files, slots, done.get(BY_FILE, ()))
    is_shuffled = bool(job.selection.dedupe)
    tasks = () if is_shuffled or job.pacing.is_ordered else by_file_tasks(job, parts, slots)
    size_bytes = sum(part.split.size_bytes for part in parts)
    shuffle_parts = (earlier.parts if earlier is not None else None) or max(slots, -(-size_bytes // _SHUFFLED_BYTES))
    return Plan(job, tuple(files), slots, parts, tasks, done, shuffle_parts if is_shuffled else 0)


def _parts(job: Job, files: Sequence[FileInfo], slots: int, done: Sequence[Range]) -> tuple[Part, ...]:
    numbers = {info.path: number for number, info in enumerate(files)}
    size_bytes = sum(info.size_bytes for info in files)
    parts = []
    for split in plan_splits(files, _split_bytes(job, size_bytes, slots), job.selection.wanted):
        file = numbers[split.path]
        of_file = tuple(overlapping(done, (0, file, -2), (0, file, LAST_POSITION)))
        part = Part(split, file, of_file)
        if not part.is_done:
            parts.append(part.resumed())
    return tuple(parts)


def _split_bytes(job: Job, size_bytes: int, slots: int) -> int:
    """What each task of a large archive gets equally many of: one split more is a slot that waits for another."""
    tasks = _task_count(job, size_bytes, slots)
    splits_each = max(1, -(-size_bytes // (tasks * job.split_bytes)))
    return max(_LEAST_SPLIT_BYTES, -(-size_bytes // (tasks * splits_each)))


def _task_count(job: Job, size_bytes: int, slots: int) -> int:
    return min(slots * _TASKS_A_SLOT, max(slots, -(-size_bytes // job.split_bytes)))


def packed(parts: Sequence[Part], count: int) -> tuple[Task, ...]:
    """In at most `count` tasks of about the same work."""
    by_index = {part.split.index: part for part in parts}
    groups = pack([part.split for part in parts], tasks=count)
    groups.sort(key=lambda group: group[0].index)
    return tuple(Task(n, tuple(by_index[split.index] for split in group)) for n, group in enumerate(groups))


def within(parts: Iterable[Part], cut: Mark) -> tuple[Part, ...]:
    """Those that have anything up to a mark."""
    return tuple(part for part in parts if (part.low or (0, part.file, -1)) < cut)


def by_file_tasks(job: Job, parts: Sequence[Part], slots: int) -> tuple[Task, ...]:
    size_bytes = sum(part.split.size_bytes for part in parts)
    if job.pacing.rate is None:
        return packed(parts, _task_count(job, size_bytes, slots))
    # All at once, each with a share of the rate by its size, so that they end together.
    tasks = packed(parts, slots)
    whole = max(1, size_bytes)
    return tuple(replace(task, pace=PaceOfTask(job.pacing.rate * task.size_bytes / whole)) for task in tasks)


def one_task(sources: Iterable[Source]) -> Task:
    """All topics together, in one order."""
    found = tuple(sources)
    return Task(0, tuple({source.part: None for source in found}), found)


def streams(plan: Plan, sources: Sequence[Source], start_s: float, cut: Mark | None = None) -> tuple[Task, ...]:
    """Ordered tasks: whole topics, of about the same number of messages, in as many tasks as run at the same time."""
    end_ns = AFTER_ALL[0] if cut is None else cut[0]
    left = [source for source in sources if source.first_ns <= end_ns and not _is_sent(plan, source)]
    counts: Counter[str] = Counter()
    for source in left:
        counts[source.topic] += source.count
    groups = _balanced(counts, plan.slots)
    pacing = plan.job.pacing
    origin_ns = min((_next_ns(plan, source) for source in left), default=0)
    total = max(1, counts.total())
    tasks = []
    for number, topics in enumerate(groups):
        own = tuple(source for source in left if source.topic in topics)
        share = sum(source.count for source in own) / total
        rate = None if pacing.rate is None else pacing.rate * share
        pace = PaceOfTask(rate, pacing.speed, origin_ns, start_s)
        tasks.append(replace(one_task(own), number=number, pace=pace))
    return tuple(tasks)


def _balanced(counts: Mapping[str, int], most: int) -> list[set[str]]:
    groups: list[set[str]] = [set() for _ in range(min(most, len(counts)))]
    loads = [0] * len(groups)
    for topic in sorted(counts, key=lambda topic: (-counts[topic], topic)):
        number = loads.index(min(loads))
        groups[number].add(topic)
        loads[number] += counts[topic]
    return groups


def sent_up_to(plan: Plan, topic: str) -> Mark | None:
    """The mark of an ordered topic up to which all was acknowledged."""
    ranges = plan.done.get(topic, ())
    return ranges[0].high if ranges and ranges[0].low == BEFORE_ALL else None


def _is_sent(plan: Plan, source: Source) -> bool:
    mark = sent_up_to(plan, source.topic)
    return mark is not None and source.last_ns < mark[0]


def _next_ns(plan: Plan, source: Source) -> int:
    mark = sent_up_to(plan, source.topic)
    return source.first_ns if mark is None else max(source.first_ns, mark[0])
