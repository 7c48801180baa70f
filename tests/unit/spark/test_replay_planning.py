"""Which task does what: nothing twice, nothing left out."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from nsq_spark.archive.formats import Compression, Format
from nsq_spark.archive.splits import FileInfo
from nsq_spark.replay.job import Destination, Job, Pacing, Selection
from nsq_spark.replay.planning import Part, Plan, Source, ordered_tasks, plan
from nsq_spark.replay.positions import BEFORE_ALL, BY_FILE, LAST_POSITION, Range
from tests.support.nsqd_process import REPOSITORY

MIB = 1 << 20


def files(*sizes: int, form: Format = Format.FRAMED, compression: Compression = Compression.NONE) -> list[FileInfo]:
    return [FileInfo(f"/archive/{n}", size, 0, form, compression, f"topic{n}") for n, size in enumerate(sizes)]


def job(**given: object) -> Job:
    return Job(("/archive",), destination=Destination(("127.0.0.1:1",)), **given)  # type: ignore[arg-type]


class Before:
    """What an earlier run left."""

    parts: int | None = None

    def __init__(self, acknowledged: int = 0, **lanes: list[Range]) -> None:
        self.acknowledged = acknowledged
        self.done = {lane.removeprefix("_"): ranges for lane, ranges in lanes.items()}


def covered(made: Plan) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for task in made.tasks:
        for part in task.parts:
            found.setdefault(part.split.path, []).append((part.split.start, part.split.end))
    return {path: sorted(ranges) for path, ranges in found.items()}


@pytest.mark.parametrize("slots", [1, 2, 7])
def test_every_byte_is_in_one_task(slots: int) -> None:
    made = plan(job(split_bytes=10 * MIB), files(100 * MIB, 3 * MIB, 17), slots)
    for info in made.files:
        ranges = covered(made)[info.path]
        assert ranges[0][0] == 0 and ranges[-1][1] == info.size_bytes
        assert all(one[1] == other[0] for one, other in zip(ranges, ranges[1:], strict=False))
    assert slots <= len(made.tasks) <= 4 * slots


def test_thousands_of_small_files_are_few_tasks() -> None:
    assert len(plan(job(), files(*[20_000] * 3000), 4).tasks) <= 16


def test_all_tasks_with_a_rate_run_at_the_same_time_and_keep_it_together() -> None:
    made = plan(job(pacing=Pacing(rate=1000.0)), files(*[50 * MIB] * 9), 4)
    assert len(made.tasks) == 4
    assert sum(task.pace.rate or 0 for task in made.tasks) == pytest.approx(1000)


def test_parallelism_is_the_users() -> None:
    assert plan(job(parallelism=3, pacing=Pacing(rate=1.0)), files(*[50 * MIB] * 9), 16).slots == 3


def test_what_is_done_is_not_read_again() -> None:
    info = files(40 * MIB, 10 * MIB)
    of_first = Range((0, 0, -1), (0, 0, ((25 * MIB) << 20) - 1))
    made = plan(job(split_bytes=10 * MIB), info, 2, Before(_=[of_first]))
    parts = {(part.split.path, part.split.start // MIB): part.split.after for part in made.parts}
    assert parts == {("/archive/0", 20): of_first.high[2], ("/archive/0", 30): -1, ("/archive/1", 0): -1}
    assert made.size_bytes == 30 * MIB


def test_other_splits_do_not_matter_for_what_is_done() -> None:
    done = Before(_=[Range((0, 0, -1), (0, 0, LAST_POSITION))])
    for size in 1, 7, 100:
        assert plan(job(split_bytes=size * MIB), files(40 * MIB), 2, done).parts == ()


@pytest.mark.parametrize(
    ("form", "compression"), [(Format.PARQUET, Compression.NONE), (Format.FRAMED, Compression.GZIP)], ids=str
)
def test_where_positions_tell_no_split_only_a_whole_file_is_done(form: Format, compression: Compression) -> None:
    info = files(40 * MIB, form=form, compression=compression)
    some = Before(_=[Range((0, 0, -1), (0, 0, 10**12))])
    everything = Before(_=[Range((0, 0, -1), (0, 0, LAST_POSITION))])
    assert sum(part.split.size_bytes for part in plan(job(), info, 2, some).parts) == 40 * MIB
    assert plan(job(), info, 2, everything).parts == ()


# ---- ordered


def source(topic: str, first_ns: int, count: int, number: int = 0) -> Source:
    split = plan(job(), files(100), 1).parts[0].split
    return Source(Part(replace(split, index=number), number), topic, first_ns, first_ns + count, count, is_sorted=True)


def ordered(**given: object) -> Plan:
    pacing = Pacing(speed=1.0, rate=100.0)
    return plan(job(pacing=pacing), files(100, 100), 2, **given)  # type: ignore[arg-type]


def test_a_topic_is_in_one_stream() -> None:
    sources = [source("a", 10, 60), source("b", 5, 20), source("a", 100, 10, 1), source("c", 7, 30)]
    made = ordered_tasks(ordered(), sources, start_s=1.0)
    topics = [{one.topic for one in task.sources} for task in made]
    assert topics == [{"a"}, {"b", "c"}]
    assert sum(task.pace.rate or 0 for task in made) == pytest.approx(100)
    assert {task.pace.origin_ns for task in made} == {5}


def test_a_stream_goes_on_at_its_mark() -> None:
    sources = [source("a", 10, 60), source("a", 100, 10, 1), source("b", 50, 10)]
    made = ordered_tasks(ordered(earlier=Before(a=[Range(BEFORE_ALL, (80, 0, 3))])), sources, start_s=1.0)
    assert sorted((one.topic, one.first_ns) for task in made for one in task.sources) == [("a", 100), ("b", 50)]
    assert {task.pace.origin_ns for task in made} == {50}


@pytest.mark.parametrize(("acknowledged", "left"), [(0, 100), (60, 40), (100, 0)])
def test_a_limit_is_one_task_for_what_is_left(acknowledged: int, left: int) -> None:
    selection, before = Selection(limit=100), Before(acknowledged)
    (task,) = plan(job(selection=selection), files(*[50 * MIB] * 9), 4, before).tasks
    assert (len(task.parts), task.limit) == (len(plan(job(), files(*[50 * MIB] * 9), 4).parts), left)
    by_time = plan(job(selection=selection, pacing=Pacing(by_time=True)), files(100, 100), 2, before)
    (task,) = ordered_tasks(by_time, [source("a", 10, 60), source("b", 100, 10, 1)], start_s=1.0)
    assert ({one.topic for one in task.sources}, task.limit) == ({"a", "b"}, left)


def test_tasks_can_be_sent_to_executors() -> None:
    made = plan(job(selection=Selection(grep="x", limit=3)), files(100 * MIB), 2)
    assert pickle.loads(pickle.dumps(made.tasks)) == made.tasks
    assert pickle.loads(pickle.dumps(made.job)) == made.job
    assert made.parts[0].is_done is False
    assert BY_FILE not in made.done


def test_executors_import_no_gevent() -> None:
    lines = [f"import nsq_spark.replay.{name}" for name in ("task", "dry_run")]
    lines += ["import sys", "print({name.split('.')[0] for name in sys.modules} & {'gevent', 'greenlet', 'pyspark'})"]
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.strip() == "set()"
