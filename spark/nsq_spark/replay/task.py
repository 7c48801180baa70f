"""The work of one task that stays in Python: read, select, and hand on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from nsq_spark.archive.damage import Damage
from nsq_spark.archive.errors import ArchiveError
from nsq_spark.replay.errors import ReplayError, Stopped
from nsq_spark.replay.marks import BY_FILE, merged
from nsq_spark.replay.order import Merge, Run
from nsq_spark.replay.planning import Source, Task
from nsq_spark.replay.progress import TaskLine
from nsq_spark.replay.reading import Reader
from nsq_spark.replay.results import TaskResult
from nsq_spark.replay.rows import rows_of
from nsq_spark.replay.sinks import MakeSink, Sink
from nsq_spark.replay.spill import Spill
from nsq_spark.replay.work import Attempt, Setup
from nsqd_py.client.errors import NsqClientError


def run_task(setup: Setup, task: Task, attempt: Attempt, make_sink: MakeSink) -> TaskResult:
    """Does all of it; an error comes back in the result. Only what is no fault of job or archive is raised."""
    line = TaskLine(setup.line, "send", task.number, attempt.number)
    reader = Reader(setup, line.counts, line.look)

    def work(sink: Sink) -> None:
        if task.sources:
            hand_on(ordered_rows(reader, task, setup, make_sink.columns), sink)
        else:
            _by_file(reader, task, sink)

    return ended(line, reader.damage, partial(make_sink, setup, task, attempt, line), work)


def ended(line: TaskLine, damage: Damage, open_sink: Callable[[], Sink], work: Callable[[Sink], None]) -> TaskResult:
    """What came of it, however it ended."""
    result = TaskResult(line.task, line.counts, damage=damage.counts)
    sink: Sink | None = None
    try:
        sink = open_sink()
        work(sink)
        sink.finish()
    except Stopped:
        result.is_stopped = True
    except (ReplayError, ArchiveError, NsqClientError) as error:
        result.error = error
    except BaseException:
        if sink is not None:
            sink.abandon()
        raise
    if sink is not None:
        if result.is_stopped or result.error is not None:
            sink.end_early()
        sink.report(result)
    line.end(str(result.error or ""))
    return result


def _by_file(reader: Reader, task: Task, sink: Sink) -> None:
    for part in task.parts:
        sink.begin(part)
        for block in reader.by_file(part):
            sink.idle()
            sink.take(block, BY_FILE)
            if sink.is_full:
                break
        sink.end(part)


def hand_on(batches: Iterator[pa.RecordBatch], sink: Sink) -> None:
    """Rows in order of time."""
    for rows in batches:
        sink.idle()
        sink.take_rows(rows)
        if sink.is_full:
            return


def ordered_rows(reader: Reader, task: Task, setup: Setup, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """All messages of an ordered task in their order, within the limit, without what is known to be done."""
    spill = Spill()
    try:
        runs = [
            Run(source.first_ns, partial(_rows, reader, source, setup, names), source.is_sorted)
            for source in task.sources
        ]
        yield from Merge(runs, spill).rows()
    finally:
        spill.close()


def _rows(reader: Reader, source: Source, setup: Setup, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    done = merged(setup.done.get(source.topic, ()))
    for block in reader.by_time(source.part, source.topic):
        is_left = None
        if done:
            is_left = ~block.marks.among(done)
        if setup.cut is not None:
            is_within = block.marks.up_to(setup.cut)
            is_left = is_within if is_left is None else is_left & is_within
        left = block if is_left is None else block.filter(is_left)
        if left.count:
            yield rows_of(left, names)
        elif source.is_sorted and setup.cut is not None and block.marks.at(0) > setup.cut:
            return
