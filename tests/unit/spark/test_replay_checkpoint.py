"""Checkpoints: whose they are, what they keep, and how far a torn one is read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import resource
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import Requested
from nsq_spark.archive.storage import Storage
from nsq_spark.publisher import PublishCounts
from nsq_spark.replay.checkpoint.directory import Checkpoint, open_checkpoint
from nsq_spark.replay.checkpoint.ledger import Ledger, Ledgers, Totals, Unit, lines_in
from nsq_spark.replay.checkpoint.refused import gather
from nsq_spark.replay.job import CheckpointError, Destination, Job, Selection
from nsqd_py.client.errors import NsqClientError, PublishFailed
from tests.support.archives import BASE_NS, compressed, messages
from tests.support.nsqd_process import wait_until
from tests.support.replay import Killed, PlayedNsqd, files_of, replayed, rows_of, write_framed

ARCHIVE = "orders.framed"
ROW = ("id", "nsqd", "file", "position", "body")


def job_of(directory: Path, **selection: object) -> Job:
    return Job(
        (str(directory / ARCHIVE),),
        Selection(**selection),  # type: ignore[arg-type]
        Destination(("played:1",), batch_bytes=100),
        checkpoint=str(directory / "checkpoint"),
    )


def opened(job: Job, directory: Path) -> Checkpoint:
    return open_checkpoint(str(directory / "checkpoint"), job, files_of(directory / ARCHIVE))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A directory with an archive of 30 messages."""
    write_framed(tmp_path / ARCHIVE, messages(30))
    return tmp_path


# ---- whose it is


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("where", lambda job: replace(job, selection=Selection(where="attempts > 1"))),
        ("limit", lambda job: replace(job, selection=Selection(limit=3))),
        ("topics", lambda job: replace(job, selection=Selection(Requested(frozenset(("orders",)))))),
        ("nsqd addresses", lambda job: replace(job, destination=Destination(("other:1",)))),
        ("order", lambda job: replace(job, by_time=True)),
    ],
)
def test_another_jobs_checkpoint_is_refused(archive: Path, name: str, other: Callable[[Job], Job]) -> None:
    opened(job_of(archive), archive).close()
    with pytest.raises(CheckpointError, match=f"is of another job: its {name} is "):
        opened(other(job_of(archive)), archive)
    opened(replace(job_of(archive), rate=7.0), archive).close()  # how fast it goes is not what it is


def test_the_first_run_decides_times_types_and_sizes(archive: Path) -> None:
    first = opened(job_of(archive, requested=Requested(start_ns=1000), start_text="-2h"), archive)
    first.remember_schema("a INT")
    first.close()
    write_framed(archive / ARCHIVE, messages(50))
    again = opened(job_of(archive, requested=Requested(start_ns=5000), start_text="-2h"), archive)
    assert (again.job.selection.requested.start_ns, again.job.selection.json_schema) == (1000, "a INT")
    nsqd = PlayedNsqd()
    replayed(again.job, again.files, nsqd, again)
    assert sorted(nsqd.bodies) == [message.body for message in messages(30)]
    again.close()


def test_a_slice_whose_rows_end_since_spark_was_killed_is_not_done(archive: Path) -> None:
    for is_killed in True, False:
        near, far = socket.socketpair()
        with near, far, closing(opened(job_of(archive), archive)) as checkpoint:
            assert not checkpoint.earlier.parts
            if is_killed:
                far.close()
            replayed(checkpoint.job, checkpoint.files, PlayedNsqd(), checkpoint, sockets=(near.fileno(),))
    with closing(opened(job_of(archive), archive)) as checkpoint:
        assert checkpoint.earlier.parts


def test_only_one_driver_uses_it(archive: Path) -> None:
    first = opened(job_of(archive), archive)
    with pytest.raises(CheckpointError, match="in use"):
        opened(job_of(archive), archive)
    first.forget()
    first.close()
    opened(job_of(archive, limit=3), archive).close()  # no message matched, so another job may use it


def test_a_file_that_is_another_one_is_refused(archive: Path) -> None:
    opened(job_of(archive), archive).close()
    write_framed(archive / ARCHIVE, messages(29))
    with pytest.raises(CheckpointError, match="another file"):
        opened(job_of(archive), archive)


def test_a_job_without_a_checkpoint_opens_no_file_of_its_archive(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a job that goes on asks whether they are the same files. On S3, each costs a request."""
    job = replace(job_of(archive), checkpoint=None)
    files = files_of(archive / ARCHIVE)
    monkeypatch.setattr(Storage, "open", None)
    with closing(open_checkpoint(str(archive / "scratch"), job, files)) as checkpoint:
        assert checkpoint.files == files


def test_a_checkpoint_of_another_version_is_refused(archive: Path) -> None:
    (archive / "checkpoint").mkdir()
    (archive / "checkpoint" / "job.json").write_text('{"version": 1}')
    with pytest.raises(CheckpointError, match="of another version of spark-replay"):
        opened(job_of(archive), archive)


# ---- between two steps


def test_a_kill_while_it_is_forgotten_leaves_nothing_to_another_job(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(job_of(archive), archive)
    replayed(first.job, first.files, PlayedNsqd(), first)
    unlink = Path.unlink

    def unlink_and_die(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Path, "unlink", unlink_and_die)
        first.forget()
    first.close()
    with pytest.raises(CheckpointError, match="is of another job"):
        opened(job_of(archive, limit=3), archive)


def test_ledgers_without_their_job_are_not_another_jobs(archive: Path) -> None:
    first = opened(job_of(archive), archive)
    replayed(first.job, first.files, PlayedNsqd(), first)
    first.close()
    (archive / "checkpoint" / "job.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no job\.json any more"):
        opened(job_of(archive, limit=3), archive)


def test_tasks_that_a_killed_driver_has_left_behind_are_asked_to_end(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsq_spark.replay.checkpoint.ledger._WRITERS_LEAVE_S", 10.0)
    first = opened(job_of(archive), archive)
    ledger = first.ledgers.ledger(0, 0)  # of a task at work
    first.close()

    def work() -> None:
        wait_until(lambda: first.ledgers.is_stopped, 30)
        ledger.close()

    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(work)
        with closing(opened(job_of(archive), archive)) as second:
            assert not second.ledgers.is_stopped
        task.result()


@pytest.mark.parametrize("file", ["acks", "refused"])
def test_a_full_disk_ends_a_task_and_is_named(archive: Path, file: str) -> None:
    """The same job goes on once there is room."""
    some = [message._replace(body=message.body * 1000) for message in messages(30)]
    write_framed(archive / ARCHIVE, some)
    limit_bytes = {"acks": 200, "refused": 10_000}[file]
    nsqd = refusing(some[17].body)
    with closing(opened(job_of(archive), archive)) as checkpoint, largest_file(limit_bytes):
        results = replayed(checkpoint.job, checkpoint.files, nsqd, checkpoint, slice_bytes=10**6)
    path = (
        archive
        / "checkpoint"
        / {"acks": "acks-000001-00000-0.log", "refused": "refused-000001-00000-0.jsonl"}[file]
    )
    assert [result.errors[-1] for result in results] == [f"{path} cannot be written: File too large"]
    with closing(opened(job_of(archive), archive)) as checkpoint:
        (result,) = replayed(checkpoint.job, checkpoint.files, nsqd, checkpoint, slice_bytes=10**6)
        assert (result.is_failed, result.failed) == (False, 1)
        assert len(nsqd.bodies) - 29 <= checkpoint.earlier.unsure
    assert nsqd.counts().keys() == {message.body for message in some if message != some[17]}


@contextlib.contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """A disk that is full, for files of this process that are larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("step", [Checkpoint.completed, partial(Checkpoint.remember_schema, schema="a INT")])
def test_a_directory_that_cannot_be_written_is_named(
    archive: Path, step: Callable[[Checkpoint], None]
) -> None:
    with closing(opened(job_of(archive), archive)) as checkpoint:
        for name in "complete", "job.json.tmp":
            (checkpoint.directory / name).symlink_to("/nowhere")
        with pytest.raises(
            CheckpointError, match="checkpoint cannot be used: is a symbolic link, which is not followed"
        ):
            step(checkpoint)


def test_a_checkpoint_without_a_task_is_free_for_another_job(archive: Path) -> None:
    with closing(opened(job_of(archive), archive)) as checkpoint:
        checkpoint.forget_unless_begun()
    with closing(opened(job_of(archive, limit=3), archive)) as checkpoint:
        replayed(checkpoint.job, checkpoint.files, PlayedNsqd(), checkpoint)
        checkpoint.forget_unless_begun()
    with pytest.raises(CheckpointError, match="is of another job"):
        opened(job_of(archive), archive)


# ---- executors


def test_it_is_not_read_while_an_executor_still_writes(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsq_spark.replay.checkpoint.ledger._WRITERS_LEAVE_S", 0.1)
    (archive / "checkpoint").mkdir()
    with (archive / "checkpoint" / "acks-000001-00000-0.log").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="still written to by an earlier run"):
            opened(job_of(archive), archive)


def test_executors_that_do_not_see_the_directory_say_so(archive: Path) -> None:
    with pytest.raises(CheckpointError, match="the executors do not see the checkpoint directory"):
        Ledgers(archive, 1, "token", is_checkpoint=True).ledger(0, 0)
    assert Ledgers(archive, 1, "token", is_checkpoint=False).ledger(0, 0).path is None


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_second_try_of_a_task_goes_on_where_the_first_was(archive: Path, is_ordered: bool) -> None:
    spread = [message._replace(timestamp_ns=BASE_NS + number) for number, message in enumerate(messages(300))]
    write_framed(archive / ARCHIVE, spread)
    job = replace(job_of(archive), by_time=is_ordered)
    checkpoint, nsqd = opened(job, archive), PlayedNsqd(dies_at=50)
    with pytest.raises(Killed):
        replayed(job, checkpoint.files, nsqd, checkpoint)
    nsqd.dies_at = None
    results = replayed(job, checkpoint.files, nsqd, checkpoint, attempt=1)
    checkpoint.close()
    assert nsqd.counts().keys() == {message.body for message in spread}
    assert 300 <= sum(result.counts.messages for result in results) <= 301  # the last time is sent once more
    extra = len(nsqd.stored) - 300
    assert 0 < extra <= sum(result.counts.possible_duplicates for result in results)


def test_a_limit_holds_over_several_runs(archive: Path) -> None:
    job = job_of(archive, limit=20)
    checkpoint = opened(job, archive)
    (result, *_) = replayed(job, checkpoint.files, PlayedNsqd(), checkpoint)
    assert (result.counts.messages, result.matched) == (20, 20)
    checkpoint.close()


# ---- messages that nsqd refuses


def refusing(*bodies: bytes) -> PlayedNsqd:
    nsqd = PlayedNsqd()

    def verdict(topic: str, some: list[bytes]) -> NsqClientError | None:
        return PublishFailed("played:1", "E_BAD_MESSAGE", "too big") if set(bodies) & set(some) else None

    nsqd.verdict = verdict
    return nsqd


@pytest.mark.parametrize("is_ordered", [False, True])
def test_what_nsqd_refused_is_kept_and_nothing_is_sent_again(archive: Path, is_ordered: bool) -> None:
    some = [message._replace(timestamp_ns=BASE_NS + number) for number, message in enumerate(messages(30))]
    write_framed(archive / ARCHIVE, some)
    nsqd = refusing(some[17].body, some[29].body)
    job = replace(job_of(archive), by_time=is_ordered)
    for is_again in False, True:
        with closing(opened(job, archive)) as checkpoint:
            results = replayed(job, checkpoint.files, nsqd, checkpoint)
            count = gather(checkpoint.directory, (), checkpoint.directory / "refused.jsonl")
        # An ordered job sends the last time once more.
        assert sum(result.failed for result in results) == (int(is_ordered) if is_again else 2)
        assert count == 2
    assert nsqd.counts() == {message.body: 1 for message in some if message not in (some[17], some[29])}
    lines = (archive / "checkpoint" / "refused.jsonl").read_text().splitlines()
    kept = sorted((json.loads(line) for line in lines), key=lambda line: int(line["timestamp"]))
    rows = {
        row["id"]: row for batch in rows_of(job, checkpoint.files, columns=ROW) for row in batch.to_pylist()
    }
    for line, message in zip(kept, (some[17], some[29]), strict=True):
        row = rows[message.id]
        assert (line["topic"], line["timestamp"], line["body"]) == (
            "orders",
            message.timestamp_ns,
            message.body.decode(),
        )
        assert [line[name] for name in ("id", "nsqd", "file", "position")] == [row[name] for name in ROW[:4]]
        assert "E_BAD_MESSAGE" in line["error"]
    again = PlayedNsqd()
    replayed(
        replace(job, checkpoint=None, by_time=False),
        files_of(archive / "checkpoint" / "refused.jsonl"),
        again,
    )
    assert sorted(again.bodies) == [some[17].body, some[29].body]


def test_a_limit_counts_messages_that_nsqd_refused(archive: Path) -> None:
    nsqd = refusing(messages(30)[3].body)
    job = job_of(archive, limit=20)
    for _ in range(2):
        with closing(opened(job, archive)) as checkpoint:
            left = replace(
                job,
                selection=Selection(
                    limit=20 - checkpoint.earlier.counts.messages - checkpoint.earlier.refused
                ),
            )
            replayed(left, checkpoint.files, nsqd, checkpoint)
    assert len(nsqd.bodies) == 19


def test_executors_that_do_not_see_the_directory_return_what_nsqd_refused(archive: Path) -> None:
    nsqd = refusing(messages(30)[3].body)
    job = replace(job_of(archive), checkpoint=None)
    (result, *_) = replayed(job, files_of(archive / ARCHIVE), nsqd)
    assert gather(archive, result.returned, archive / "refused.jsonl") == 1
    assert json.loads((archive / "refused.jsonl").read_text())["id"] == messages(30)[3].id


def test_refused_messages_of_many_slices_are_found_in_one_reading(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsq_spark.replay.task.SLICE_MESSAGES", 10)
    readings = []

    def counted(*arguments: Any) -> Iterator[Chunk]:
        readings.append(arguments)
        return read(*arguments)

    monkeypatch.setattr("nsq_spark.replay.checkpoint.refused.read", counted)
    some = messages(300)
    some[15:15] = some[5:6]  # two messages are equal, and are refused in two slices
    some[16] = some[16]._replace(id="f" * 16)
    write_framed(archive / ARCHIVE, some)
    nsqd = refusing(*(message.body for message in some[5::10]))
    with closing(opened(job_of(archive), archive)) as checkpoint:
        replayed(checkpoint.job, checkpoint.files, nsqd, checkpoint, slice_bytes=10**6)
        gather(checkpoint.directory, (), checkpoint.directory / "refused.jsonl")
    lines = (archive / "checkpoint" / "refused.jsonl").read_text().splitlines()
    positions = [json.loads(line)["position"] for line in lines]
    refused = [message for message in some if message.body not in nsqd.counts()]
    assert [json.loads(line)["id"] for line in lines] == [message.id for message in refused]
    assert None not in positions and len(set(positions)) == len(refused) >= 30
    assert len(readings) == 1


# ---- slices


def test_a_kill_sends_at_most_a_slice_again(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsq_spark.replay.task.SLICE_MESSAGES", 10)
    write_framed(archive / ARCHIVE, messages(300))
    (archive / ARCHIVE).with_suffix(".framed.gz").write_bytes(
        compressed((archive / ARCHIVE).read_bytes(), "gzip")
    )
    (archive / ARCHIVE).unlink()
    (archive / ARCHIVE).with_suffix(".framed.gz").rename(archive / ARCHIVE)
    found: Counter[bytes] = Counter()
    for dies_at in 7, 7, 7, None:
        nsqd = PlayedNsqd(dies_at)
        with closing(opened(job_of(archive), archive)) as checkpoint, contextlib.suppress(Killed):
            replayed(checkpoint.job, checkpoint.files, nsqd, checkpoint)
        found += nsqd.counts()
    assert found.keys() == {message.body for message in messages(300)}
    assert 0 < found.total() - 300 <= 3 * 10
    with closing(opened(job_of(archive), archive)) as checkpoint:  # and a part that is done is not read
        assert rows_of(checkpoint.job, checkpoint.files, checkpoint.earlier.parts) == []


# ---- ledgers


def ledger_of(path: Path) -> bytes:
    ledger = Ledger(path)
    for number in range(5):
        unit = Unit(f"lane {number}", None, count=3)
        ledger.sending(3)
        ledger.sent(unit, PublishCounts(3, 30, 0, {"t": 3}))
        ledger.done(unit)
    ledger.close()
    return path.read_bytes()


def test_a_torn_or_damaged_ledger_counts_as_far_as_it_is_whole(tmp_path: Path) -> None:
    data = ledger_of(tmp_path / "acks-000001-00000-0.log")
    whole = list(lines_in(data))
    assert [line[0] for line in whole].count("done") == 5
    for place in range(len(data)):
        torn = list(lines_in(data[:place]))
        assert torn == whole[: len(torn)]
        damaged = list(lines_in(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]))
        assert damaged == whole[: len(damaged)]


def test_what_each_run_has_sent_at_its_last_time_may_be_there_twice(archive: Path) -> None:
    """The next run begins with that time, so the numbers of all runs add up."""
    job = replace(job_of(archive), by_time=True)
    for mark, again in (10, 3), (20, 2):
        with closing(opened(job, archive)) as checkpoint, closing(checkpoint.ledgers.ledger(0, 0)) as ledger:
            unit = Unit("orders", mark, again, count=5)
            ledger.sending(5)
            ledger.sent(unit, PublishCounts(5, 50, 0, {"orders": 5}))
            ledger.done(unit)
    with closing(opened(job, archive)) as checkpoint:
        assert (checkpoint.earlier.marks, checkpoint.earlier.unsure) == ({"orders": 20}, 5)


def test_the_driver_reads_how_far_tasks_are(tmp_path: Path) -> None:
    for task in range(2):
        ledger_of(tmp_path / f"acks-000001-{task:05d}-0.log")
    ledger_of(tmp_path / "acks-000002-00000-0.log")
    ledgers = Ledgers(tmp_path, 1, "", is_checkpoint=True)
    assert ledgers.totals() == Totals(30, 30, 300, 0)
    assert not ledgers.is_stopped
    ledgers.stop()
    assert ledgers.is_stopped
