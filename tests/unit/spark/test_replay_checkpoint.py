"""What a checkpoint keeps, whose it is, and what a torn one is worth."""

from __future__ import annotations

import fcntl
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_spark.archive.read import read
from nsq_spark.archive.splits import plan_splits
from nsq_spark.archive.storage import Storage
from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay import checkpoint as module
from nsq_spark.replay.checkpoint import Checkpoint, Entry, Ledger, encoded, entries_in, open_checkpoint
from nsq_spark.replay.dry_run import LookSink
from nsq_spark.replay.errors import CheckpointError
from nsq_spark.replay.job import Destination, Job, Pacing, Safety, Selection
from nsq_spark.replay.planning import Task
from nsq_spark.replay.positions import BEFORE_ALL, Block, Marks, Range, merged, overlapping
from nsq_spark.replay.progress import ReplayCounts, TaskLine
from nsq_spark.replay.task import Attempt, TaskContext, TaskResult
from tests.support.archives import messages
from tests.support.replay import Killed, PlayedNsqd, files_of, replayed, write_framed

ARCHIVE = "orders.framed"


def job_of(directory: Path, **selection: object) -> Job:
    return Job(
        (str(directory / ARCHIVE),),
        Selection(**selection),  # type: ignore[arg-type]
        Destination(("played:1",), batch_bytes=100),
        safety=Safety(str(directory / "checkpoint")),
    )


def opened(job: Job, directory: Path) -> Checkpoint:
    found = open_checkpoint(job, files_of(directory / ARCHIVE))
    assert found is not None
    return found


# ---- whose it is


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("where", lambda job: replace(job, selection=Selection(where="attempts > 1"))),
        ("limit", lambda job: replace(job, selection=Selection(limit=3))),
        ("topics", lambda job: replace(job, selection=Selection(Wanted(frozenset(("orders",)))))),
        ("nsqd addresses", lambda job: replace(job, destination=Destination(("other:1",)))),
        ("order", lambda job: replace(job, pacing=Pacing(by_time=True))),
    ],
)
def test_another_jobs_checkpoint_is_refused(tmp_path: Path, name: str, other: object) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    job = job_of(tmp_path)
    opened(job, tmp_path).close()
    changed = other(job)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=f"is of another job: its {name} is"):
        opened(replace(changed, safety=job.safety), tmp_path)


def test_how_fast_it_goes_is_not_what_it_is(tmp_path: Path) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    job = job_of(tmp_path)
    opened(job, tmp_path).close()
    opened(replace(job, pacing=Pacing(rate=5.0), parallelism=7, split_bytes=99), tmp_path).close()


def test_one_path_is_one_job_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    (tmp_path / "link").symlink_to(ARCHIVE)
    monkeypatch.chdir(tmp_path)
    for path in ARCHIVE, f"./{ARCHIVE}", str(tmp_path / ARCHIVE), (tmp_path / ARCHIVE).as_uri(), "link":
        opened(replace(job_of(tmp_path), paths=(path,)), tmp_path).close()
    with pytest.raises(CheckpointError, match="its paths is"):
        opened(replace(job_of(tmp_path), paths=("other",)), tmp_path)


def test_a_job_without_messages_leaves_the_directory_to_others(tmp_path: Path) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    checkpoint = opened(job_of(tmp_path), tmp_path)
    checkpoint.forget()
    checkpoint.close()
    opened(job_of(tmp_path, wanted=Wanted(frozenset(("orders",)))), tmp_path).close()


def test_relative_times_are_those_of_the_first_run(tmp_path: Path) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    opened(job_of(tmp_path, wanted=Wanted(start_ns=1000), start_text="-2h"), tmp_path).close()
    again = opened(job_of(tmp_path, wanted=Wanted(start_ns=5000), start_text="-2h"), tmp_path)
    assert again.job.selection.wanted.start_ns == 1000
    again.close()


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    first = opened(job_of(tmp_path), tmp_path)
    with pytest.raises(CheckpointError, match="in use"):
        opened(job_of(tmp_path), tmp_path)
    first.close()
    opened(job_of(tmp_path), tmp_path).close()


def test_a_file_that_is_another_one_is_refused(tmp_path: Path) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    opened(job_of(tmp_path), tmp_path).close()
    write_framed(tmp_path / ARCHIVE, messages(29))
    with pytest.raises(CheckpointError, match="another file"):
        opened(job_of(tmp_path), tmp_path)


def test_a_file_that_has_grown_is_read_as_far_as_it_was(tmp_path: Path) -> None:
    some = messages(30)
    write_framed(tmp_path / ARCHIVE, some[:20])
    opened(job_of(tmp_path), tmp_path).close()
    write_framed(tmp_path / ARCHIVE, some)
    checkpoint = opened(job_of(tmp_path), tmp_path)
    nsqd = PlayedNsqd()
    replayed(checkpoint.job, checkpoint.files, nsqd, checkpoint=checkpoint)
    assert sorted(nsqd.bodies) == [message.body for message in some[:20]]
    checkpoint.close()


def test_it_is_not_taken_while_an_executor_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    opened(job_of(tmp_path), tmp_path).close()
    monkeypatch.setattr(module, "_WRITERS_LEAVE_S", 0.05)
    with (tmp_path / "checkpoint" / "acks-000001-00000-0.log").open("wb") as orphan:
        fcntl.flock(orphan, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="still written to"):
            opened(job_of(tmp_path), tmp_path)
    opened(job_of(tmp_path), tmp_path).close()


def test_executors_that_do_not_see_the_directory_say_so(tmp_path: Path) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    checkpoint = opened(job_of(tmp_path), tmp_path)
    place = replace(checkpoint.place, directory=str(tmp_path / "elsewhere"))
    with pytest.raises(CheckpointError, match="share"):
        place.ledger(0, 0)
    checkpoint.close()


def test_a_second_try_of_a_task_knows_what_the_first_did(tmp_path: Path) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    checkpoint = opened(job_of(tmp_path), tmp_path)
    first = checkpoint.place.ledger(3, 11)
    first.add("", (0, 0, -1), (0, 0, 5), 2, 20, "orders")
    first.add("", (0, 0, 5), (0, 0, 7), 3, 30, "clicks")
    first.close(is_settled=False)
    found = checkpoint.place.done(3, 12)
    assert found.done == {"": [Range((0, 0, -1), (0, 0, 7))]}
    assert (found.counts.messages, found.counts.size_bytes, found.counts.topics) == (5, 50, {"orders": 2, "clicks": 3})
    assert checkpoint.place.done(4, 13).done == {}
    checkpoint.close()


def test_what_a_killed_try_has_sent_counts(tmp_path: Path) -> None:
    """The summary of 1,000,000 messages said 850,204 after an executor was killed."""
    write_framed(tmp_path / ARCHIVE, messages(30))
    checkpoint = opened(job_of(tmp_path), tmp_path)
    with pytest.raises(Killed):
        replayed(checkpoint.job, checkpoint.files, PlayedNsqd(dies_at=2), slots=1, checkpoint=checkpoint)
    (result,) = replayed(checkpoint.job, checkpoint.files, PlayedNsqd(), slots=1, checkpoint=checkpoint, attempt=1)
    assert (result.counts.sent, result.counts.matched, result.topics) == (30, 30, {"orders": 30})
    checkpoint.close()


@pytest.mark.parametrize("is_settled", [False, True], ids=["killed", "stopped"])
def test_what_may_be_there_twice_is_what_an_earlier_run_may_have_had_on_the_way(tmp_path: Path, is_settled: bool) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    checkpoint = opened(job_of(tmp_path), tmp_path)
    ledger = checkpoint.place.ledger(0, 0)
    ledger.add("", (0, 0, -1), (0, 0, (64 << 20) + 9), 10)
    ledger.close(is_settled=is_settled)
    checkpoint.close()
    for unsure in 0 if is_settled else 20, 0:
        checkpoint = opened(job_of(tmp_path), tmp_path)
        results = replayed(checkpoint.job, checkpoint.files, PlayedNsqd(), slots=1, checkpoint=checkpoint)
        assert sum(result.possible_duplicates for result in results) == unsure
        checkpoint.close()


@pytest.mark.parametrize("by_time", [False, True], ids=["by file", "by time"])
def test_a_limit_holds_over_several_runs(tmp_path: Path, by_time: bool) -> None:
    """Also for a checkpoint of the version that wrote down the mark of the limit."""
    some = messages(100)
    write_framed(tmp_path / ARCHIVE, some)
    job = replace(job_of(tmp_path, limit=60), pacing=Pacing(by_time=by_time))
    checkpoint = opened(job, tmp_path)
    path = tmp_path / "checkpoint" / "job.json"
    path.write_bytes(path.read_bytes()[:-1] + b',"cut":[0,0,1]}')
    tenth = (some[9].known_ns if by_time else 0, 0, (64 << 20) + 9)
    ledger = checkpoint.place.ledger(7, 0)
    ledger.add("orders" if by_time else "", BEFORE_ALL if by_time else (0, 0, -1), tenth, 10)
    ledger.close()
    checkpoint.close()
    checkpoint = opened(job, tmp_path)
    nsqd = PlayedNsqd()
    results = replayed(checkpoint.job, checkpoint.files, nsqd, checkpoint=checkpoint)
    assert sorted(nsqd.bodies) == [message.body for message in some[10:60]]
    assert [result.error for result in results] == [None]
    checkpoint.close()
    checkpoint = opened(job, tmp_path)
    assert checkpoint.acknowledged == 60
    again = PlayedNsqd()
    replayed(checkpoint.job, checkpoint.files, again, checkpoint=checkpoint)
    assert again.bodies == []
    checkpoint.close()


def test_a_limit_is_about_all_topics_together(tmp_path: Path) -> None:
    """By time, the first messages are not those of the first topic."""
    some = [message for topic in ("clicks", "orders") for message in messages(50, topic=topic)]
    for topic in ("clicks", "orders"):
        write_framed(tmp_path / f"{topic}.framed", [message for message in some if message.topic == topic])
    job = Job(("x",), Selection(limit=31), Destination(("played:1",)), Pacing(by_time=True))
    nsqd = PlayedNsqd()
    replayed(job, files_of(tmp_path / "clicks.framed", tmp_path / "orders.framed"), nsqd)
    found = Counter(topic for topic, _ in nsqd.stored)
    assert found == {"clicks": 16, "orders": 15}


def test_a_look_begins_no_checkpoint_but_knows_one(tmp_path: Path) -> None:
    write_framed(tmp_path / ARCHIVE, messages(30))
    job, files = job_of(tmp_path), files_of(tmp_path / ARCHIVE)
    assert open_checkpoint(job, files, is_dry=True) is None
    assert not (tmp_path / "checkpoint").exists()
    opened(job, tmp_path).close()
    known = open_checkpoint(job, files, is_dry=True)
    assert known is not None
    known.close()


@pytest.mark.parametrize("lane", ["", "part 0 of 1"])
def test_a_look_sees_what_is_left(tmp_path: Path, lane: str) -> None:
    """By file, what is done is not even read; of what was shuffled it is."""
    write_framed(tmp_path / ARCHIVE, messages(30))
    job = job_of(tmp_path)
    done = {lane: (Range((0, 0, -1), (0, 0, (64 << 20) + 9)),)}
    made = LookSink(TaskContext(job, done=done), Task(0), Attempt(0), TaskLine(None, "send", 0, 0))
    (chunk,) = read(plan_splits(files_of(tmp_path / ARCHIVE))[0], Storage())
    made.offer([(lane, Block(chunk, Marks(0, 0, chunk.positions)))])
    result = TaskResult(0, ReplayCounts())
    made.report(result)
    assert result.payload.topics["orders"].count == (20 if lane else 30)


# ---- the ledger

ENTRIES = [*(Entry("", Range((0, 1, n), (0, 1, n + 1)), 1) for n in range(5)), Entry("a\nb", Range((1, 2, 3), (4, 5, 6)), 7)]


@given(st.integers(0, 1000))
def test_a_torn_ledger_counts_as_far_as_it_is_whole(size: int) -> None:
    data = b"".join(map(encoded, ENTRIES))
    found = list(entries_in(data[:size]))
    assert found == ENTRIES[: len(found)]
    assert len(found) == data[:size].count(b"\n")


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_ledger_says_nothing_wrong(place: int, octet: int) -> None:
    data = bytearray(b"".join(map(encoded, ENTRIES)))
    data[place % len(data)] = octet
    found = list(entries_in(bytes(data)))
    assert found == ENTRIES[: len(found)]


def test_what_adjoins_becomes_one_entry(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "acks")
    for low in range(1000):
        ledger.add("", (0, 0, low), (0, 0, low + 1), 1)
    ledger.write()
    ledger.add("", (0, 0, 2000), (0, 0, 2001), 1)
    ledger.close()
    found = list(entries_in((tmp_path / "acks").read_bytes()))
    assert [(entry.range, entry.messages) for entry in found] == [
        (Range((0, 0, 0), (0, 0, 1000)), 1000),
        (Range((0, 0, 2000), (0, 0, 2001)), 1),
    ]


# ---- ranges, against sets of numbers

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=8)


def ranges_of(given_ranges: list[tuple[int, int]]) -> list[Range]:
    return [Range((0, 0, low), (0, 0, low + size)) for low, size in given_ranges]


@given(RANGES, st.integers(-1, 45), st.integers(-1, 45))
def test_merged_ranges_hold_the_same(given_ranges: list[tuple[int, int]], low: int, high: int) -> None:
    import numpy as np

    positions = np.arange(45)
    inside = {place for start, size in given_ranges for place in range(start + 1, start + size + 1)}
    found = merged(ranges_of(given_ranges))
    marks = Marks(0, 0, positions)
    assert set(positions[marks.among(found)].tolist()) == inside
    assert all(one.high < other.low for one, other in zip(found, found[1:], strict=False))
    some = overlapping(found, (0, 0, low), (0, 0, high))
    wanted = {place for place in inside if low < place <= high}
    assert wanted <= set(positions[marks.among(some)].tolist())
