"""What is where in time: looked at before messages are put in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.errors import ArchiveError
from nsq_spark.replay.errors import ReplayError
from nsq_spark.replay.planning import Part, Source
from nsq_spark.replay.progress import TaskLine
from nsq_spark.replay.reading import Reader, known_times
from nsq_spark.replay.results import TaskResult
from nsq_spark.replay.work import Attempt, Setup


@dataclass(slots=True)
class _Found:
    """Of one topic in one part."""

    first_ns: int
    last_ns: int
    count: int = 0
    is_sorted: bool = True

    def add(self, chunk: Chunk) -> None:
        times_ns = known_times(chunk)
        in_order = self.count == 0 or int(times_ns[0]) >= self.last_ns
        self.is_sorted = self.is_sorted and in_order and bool((np.diff(times_ns) >= 0).all())
        self.first_ns = min(self.first_ns, int(times_ns.min()))
        self.last_ns = max(self.last_ns, int(times_ns.max()))
        self.count += chunk.count


def survey(setup: Setup, parts: Iterable[Part], attempt: Attempt) -> TaskResult:
    """The sources in some parts, as the payload. Errors come back in the result."""
    line = TaskLine(setup.line, "send", attempt.task, attempt.number)
    reader = Reader(setup, line.counts, line.look)
    result = TaskResult(attempt.task, line.counts, damage=reader.damage.counts)
    try:
        result.payload = [source for part in parts for source in _sources(part, reader)]
    except (ReplayError, ArchiveError) as error:
        result.error = error
    line.end(str(result.error or ""))
    return result


def _sources(part: Part, reader: Reader) -> Iterable[Source]:
    found: dict[str, _Found] = {}
    for chunk in reader.everything(part):
        times_ns = known_times(chunk)
        found.setdefault(chunk.topic, _Found(int(times_ns[0]), int(times_ns[0]))).add(chunk)
    return [Source(part, topic, one.first_ns, one.last_ns, one.count, one.is_sorted) for topic, one in found.items()]
