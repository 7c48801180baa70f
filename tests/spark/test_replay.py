"""Replays on local[2] into a real nsqd, whatever way they take through Spark; counted by message."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from nsq_spark.archive.splits import FileInfo
from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay.checkpoint import open_checkpoint
from nsq_spark.replay.driver import Outcome, ReplayProgress, run
from nsq_spark.replay.errors import BadPredicate
from nsq_spark.replay.job import Destination, Job, Pacing, Safety, Selection
from nsq_spark.replay.planning import plan
from tests.support.archives import BASE_NS, Message
from tests.support.network import free_ports
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.replay import files_of, write_framed

# One Spark for all of them.
pytestmark = pytest.mark.xdist_group("spark")

TOPICS = ("clicks", "orders")
CHANNEL = "count"
EACH = 400
FILES = 2


def body(topic: str, file: int, number: int) -> bytes:
    return b'{"user":{"id":%d},"from":"%s","level":"%s"}' % (
        number,
        b"%s-%d-%d" % (topic.encode(), file, number),
        b"error" if number % 10 == 0 else b"info",
    )


def messages_of(topic: str, file: int) -> list[Message]:
    """In time they lie between those of the other file of the topic; the ids of both are the same."""
    return [
        Message(body(topic, file, number), topic, timestamp_ns=BASE_NS + number * 1000 + file * 500, id=f"{number:016x}")
        for number in range(EACH)
    ]


def everything() -> list[Message]:
    return [message for topic in TOPICS for file in range(FILES) for message in messages_of(topic, file)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> list[FileInfo]:
    directory = tmp_path_factory.mktemp("archive")
    for topic in TOPICS:
        for file in range(FILES):
            write_framed(directory / f"{topic}.{file}.framed", messages_of(topic, file), record=20)
    return files_of(directory)


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    nsqd = make_nsqd()
    for topic in TOPICS:
        nsqd.create(topic, CHANNEL)
    return nsqd


UNPACED = Pacing()
PLAIN = Safety()


def job_for(nsqd: NsqdProcess, selection: Selection, pacing: Pacing = UNPACED, safety: Safety = PLAIN) -> Job:
    destination = Destination((f"127.0.0.1:{nsqd.tcp_port}",))
    return Job(("archive",), selection, destination, pacing, safety, split_bytes=40_000)


def replay(
    spark: Any,
    job: Job,
    files: Sequence[FileInfo],
    stop: threading.Event | None = None,
    on_progress: Callable[[ReplayProgress], None] | None = None,
) -> Outcome:
    """As the command does it."""
    checkpoint = open_checkpoint(job, files)
    try:
        if checkpoint is not None:
            job, files = checkpoint.job, checkpoint.files
        return run(plan(job, files, 2, checkpoint), spark, on_progress, stop, checkpoint)
    finally:
        if checkpoint is not None:
            checkpoint.close()


def arrived(nsqd: NsqdProcess, topic: str) -> list[bytes]:
    depth = nsqd.wait_for_channel(topic, CHANNEL)["depth"]
    with nsqd.connect() as client:
        client.sub(topic, CHANNEL, 2500)
        return [message.body for message in client.consume(depth)]


def all_arrived(nsqd: NsqdProcess) -> Counter[bytes]:
    return Counter(found for topic in TOPICS for found in arrived(nsqd, topic))


def bodies(some: Sequence[Message]) -> Counter[bytes]:
    return Counter(message.body for message in some)


# ---- selection


@pytest.mark.parametrize(
    ("selection", "is_wanted"),
    [
        (Selection(), lambda message: True),
        (Selection(Wanted(frozenset(("orders",)))), lambda message: message.topic == "orders"),
        (Selection(grep='"level":"error"'), lambda message: b"error" in message.body),
        (Selection(where="json.user.id BETWEEN 7 AND 9"), lambda message: message.id[-16:] in (f"{n:016x}" for n in (7, 8, 9))),
        (
            Selection(where="json.level = 'error' AND topic = 'clicks' AND attempts = 1"),
            lambda message: b"error" in message.body and message.topic == "clicks",
        ),
        (Selection(where="json.nothing IS NOT NULL"), lambda message: False),
    ],
    ids=["all", "a topic", "grep", "json", "columns and json", "nothing"],
)
def test_what_is_selected_arrives(
    spark: Any, nsqd: NsqdProcess, archive: list[FileInfo], selection: Selection, is_wanted: Callable[[Message], bool]
) -> None:
    wanted = [message for message in everything() if is_wanted(message)]
    outcome = replay(spark, job_for(nsqd, selection), archive)
    assert (outcome.errors, outcome.exit_code) == ([], 0)
    assert outcome.counts.sent == outcome.counts.matched == len(wanted)
    assert all_arrived(nsqd) == bodies(wanted)


@pytest.mark.parametrize(
    "where", [pytest.param(None, id="as stored", marks=pytest.mark.slow), pytest.param("json.user.id >= 0", id="through SQL")]
)
def test_a_limit_is_exact_and_takes_the_first(spark: Any, nsqd: NsqdProcess, archive: list[FileInfo], where: str | None) -> None:
    outcome = replay(spark, job_for(nsqd, Selection(where=where, limit=EACH + 33)), archive)
    assert outcome.counts.sent == EACH + 33
    assert all_arrived(nsqd) == bodies(everything()[: EACH + 33])


@pytest.mark.parametrize("by_time", [pytest.param(False, id="by file", marks=pytest.mark.slow), pytest.param(True, id="by time")])
def test_duplicates_are_sent_once(spark: Any, nsqd: NsqdProcess, archive: list[FileInfo], by_time: bool) -> None:
    outcome = replay(spark, job_for(nsqd, Selection(dedupe="id"), Pacing(by_time=by_time)), archive)
    assert (outcome.errors, outcome.counts.read) == ([], 2 * EACH * FILES)
    assert all_arrived(nsqd) == bodies([message for topic in TOPICS for message in messages_of(topic, 0)])


def test_a_limit_without_duplicates(spark: Any, nsqd: NsqdProcess, archive: list[FileInfo]) -> None:
    replay(spark, job_for(nsqd, Selection(dedupe="body", limit=EACH + 7)), archive)
    assert all_arrived(nsqd) == bodies(everything()[: EACH + 7])


def test_a_predicate_that_is_none_is_refused_before_anything_is_sent(
    spark: Any, nsqd: NsqdProcess, archive: list[FileInfo]
) -> None:
    for where in "no_such_column = 1", "topic =", "sum(attempts) > 1", "attempts":
        with pytest.raises(BadPredicate) as error:
            replay(spark, job_for(nsqd, Selection(where=where)), archive)
        assert "\n" not in str(error.value) and "file_number" not in str(error.value)
    assert all_arrived(nsqd).total() == 0


# ---- order


@pytest.mark.ours
@pytest.mark.parametrize("where", [None, "json.level = 'info'"], ids=["as stored", "through SQL"])
def test_each_topic_is_in_the_order_of_its_times(
    spark: Any, nsqd: NsqdProcess, archive: list[FileInfo], where: str | None
) -> None:
    outcome = replay(spark, job_for(nsqd, Selection(where=where), Pacing(by_time=True)), archive)
    assert outcome.exit_code == 0
    for topic in TOPICS:
        some = [message for file in range(FILES) for message in messages_of(topic, file)]
        in_order = sorted(some, key=lambda message: message.known_ns)
        wanted = [message.body for message in in_order if where is None or b"info" in message.body]
        assert arrived(nsqd, topic) == wanted


def test_the_earliest_are_within_the_limit(spark: Any, nsqd: NsqdProcess, archive: list[FileInfo]) -> None:
    replay(spark, job_for(nsqd, Selection(limit=101), Pacing(by_time=True)), archive)
    found = all_arrived(nsqd)
    in_order = sorted(everything(), key=lambda message: message.known_ns)
    assert found.total() == 101
    assert bodies(in_order[:100]) <= found
    assert found <= bodies(in_order[:102])


# ---- ends, and goes on


@pytest.mark.parametrize(
    ("selection", "pacing"),
    [
        (Selection(), Pacing()),
        (Selection(), Pacing(by_time=True)),
        (Selection(where="json.user.id >= 0"), Pacing()),
        (Selection(dedupe="body"), Pacing()),
    ],
    ids=["as stored", "by time", "through SQL", "shuffled"],
)
def test_a_stopped_replay_goes_on_where_it_was(
    spark: Any, nsqd: NsqdProcess, archive: list[FileInfo], tmp_path: Path, selection: Selection, pacing: Pacing
) -> None:
    job = job_for(nsqd, selection, replace(pacing, rate=400.0), Safety(str(tmp_path / "checkpoint")))
    stop = threading.Event()

    def look(progress: ReplayProgress) -> None:
        if progress.counts.sent >= 100:
            stop.set()

    first = replay(spark, job, archive, stop, look)
    assert (first.is_stopped, first.exit_code) == (True, 3)
    assert 100 <= first.counts.sent < 4 * EACH
    second = replay(spark, replace(job, pacing=pacing), archive)
    assert (second.exit_code, second.before) == (0, first.counts.sent)
    assert first.counts.sent + second.counts.sent == 4 * EACH
    assert all_arrived(nsqd) == bodies(everything())
    third = replay(spark, job, archive)
    assert (third.exit_code, third.counts.sent) == (0, 0)


def test_nobody_there(spark: Any, nsqd: NsqdProcess, archive: list[FileInfo]) -> None:
    nsqd.destroy()
    outcome = replay(spark, job_for(nsqd, Selection(), safety=Safety(give_up_after_s=0.5)), archive)
    assert outcome.exit_code == 1
    assert any("not published in 0.5s" in error and str(nsqd.tcp_port) in error for error in outcome.errors)


def test_an_nsqd_that_comes_back(spark: Any, make_nsqd: MakeNsqd, archive: list[FileInfo]) -> None:
    """Killed in the middle: nothing is lost, and what may be there twice is counted."""
    tcp_port, http_port = free_ports(2)
    nsqd = make_nsqd(f"--tcp-address=127.0.0.1:{tcp_port}", f"--http-address=127.0.0.1:{http_port}")
    for topic in TOPICS:
        nsqd.create(topic, CHANNEL)
    restarts = iter([True])

    def look(progress: ReplayProgress) -> None:
        if progress.counts.sent >= 100 and next(restarts, False):
            nsqd.restart(clean=False)

    outcome = replay(spark, job_for(nsqd, Selection(), Pacing(rate=800.0)), archive, on_progress=look)
    assert next(restarts, None) is None
    assert (outcome.errors, outcome.exit_code, outcome.counts.sent) == ([], 0, 4 * EACH)
    found = all_arrived(nsqd)
    assert set(found) == set(bodies(everything()))
    assert found.total() - len(found) <= outcome.possible_duplicates


# ---- and is only looked at


def test_a_look_finds_what_would_be_sent(spark: Any, nsqd: NsqdProcess, archive: list[FileInfo]) -> None:
    job = job_for(nsqd, Selection(where="json.level = 'error'"))
    outcome = run(plan(job, archive, 2), spark, is_dry=True)
    look = outcome.look
    assert look is not None
    errors = [message for message in everything() if b"error" in message.body]
    assert {topic: found.count for topic, found in look.topics.items()} == {"clicks": 80, "orders": 80}
    assert sum(look.buckets.values()) == len(errors)
    assert [text.split(" ", 3)[3] for _, text in look.first] == [message.body.decode() for message in errors[:10]]
    assert (outcome.counts.matched, outcome.counts.sent) == (len(errors), 0)
    wait_until(lambda: all_arrived(nsqd).total() == 0)
