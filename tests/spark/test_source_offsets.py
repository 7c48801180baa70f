"""What must hold for a query from an archive to the logs of nsqds, whatever happens to either."""

from __future__ import annotations

import json
import logging
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from nsq_spark.archive import read as archive_read
from nsq_spark.source import archived_files
from nsq_spark.source.live import LiveReader
from nsq_spark.source.live_options import BadOffset, TopicOffset
from nsq_spark.source.nsqds import LostMessages
from tests.support.archived_topic import (
    ALL,
    CHANNEL,
    SMALL_FILES,
    TOPIC,
    Place,
    address,
    drain,
    earliest,
    followed,
    is_finished,
    numbers,
    publish,
    two_that_share,
    wait_until_dropped,
)
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.tool_process import ToolProcess

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]


def kill_in_the_middle_of_a_file(nsqd: NsqdProcess, place: Place, message_numbers: range) -> None:
    """nsq-to-file has finished these messages and nsqd has dropped some of them, but the file is not finished.

    They are the numbers of the log, too.
    """
    source = (
        f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}",
        f"--topic={TOPIC}",
        "--channel=archive",
        "--sync-interval=50ms",
    )
    flags = (f"--output-dir={place.directory}", "--format=framed", "--rotate-size=100000000")
    with ToolProcess(
        "nsq_apps", "nsq_to_file", *source, *flags, log_path=place.directory.parent / "killed.log"
    ):
        publish(nsqd, message_numbers)
        wait_until(lambda: is_finished(nsqd), what="everything to be archived")
        wait_until_dropped(nsqd, message_numbers.start + 50)


# ---- 1


@pytest.mark.parametrize("begins", ["before", "behind"])
def test_a_hole_of_a_moment(make_nsqd: MakeNsqd, place: Place, begins: str) -> None:
    """The query that is started again has not missed anything."""
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(200))
    place.archive(nsqd, "--format=framed")
    one = place.reader(nsqd)
    found, start = followed(one, one.initialOffset()) if begins == "before" else ([], None)
    kill_in_the_middle_of_a_file(nsqd, place, range(200, 400))
    for _ in range(2):
        again = place.reader(nsqd)
        with pytest.raises(
            LostMessages, match=r"\d+ messages of topic orders .* start again when nsq-to-file has finished"
        ):
            again.initialOffset() if start is None else again.latestOffset(start, ALL)
    lax = place.reader(nsqd, failOnDataLoss="false")
    rest, _ = followed(lax, lax.initialOffset() if start is None else start, 30)
    assert len(rest) == len(set(rest)) and set(rest) <= set(range(400))
    publish(nsqd, range(400, 410))
    place.archive(nsqd, "--format=framed")  # the next start finishes the file
    again = place.reader(nsqd)
    more, _ = followed(again, again.initialOffset() if start is None else start, 30)
    assert sorted(found + more) == list(range(410))


@pytest.mark.parametrize("is_planned", [True, False])
def test_a_batch_whose_messages_are_in_two_files_of_which_one_is_not_finished(
    make_nsqd: MakeNsqd, place: Place, is_planned: bool
) -> None:
    """It was planned when the log had its messages. Its tasks, or a query that is started again, wait for the other file."""
    nsqd = make_nsqd(*SMALL_FILES)
    nsqd.create(TOPIC, CHANNEL)
    publish(nsqd, range(400))
    one = place.reader(nsqd)
    start = one.initialOffset()
    middle = one.latestOffset(start, ReadMaxRows(10))
    end = one.latestOffset(middle, ReadMaxRows(380))
    found = numbers(one, partial(one.partitions, start, middle))
    planned = one.partitions(middle, end) if is_planned else []

    def read() -> list[int]:
        again = place.reader(nsqd)
        return numbers(again, lambda: planned if is_planned else again.partitions(middle, end))

    with two_that_share(nsqd, place) as (first, second):
        drain(nsqd)
        assert first.stop() == 0
        publish(nsqd, range(400, 500))
        drain(nsqd)
        wait_until_dropped(nsqd, 400)
        with pytest.raises(LostMessages, match=r"nsq: \d+ messages of topic orders .*, from number 10 on"):
            read()
        assert second.stop() == 0
    found += read()
    assert found == list(range(390))
    assert found + followed(place.reader(nsqd), end, 70)[0] == list(range(500))


@pytest.mark.parametrize("most", [None, 30])
def test_what_the_archive_lacks_of_messages_that_the_query_has_read(
    make_nsqd: MakeNsqd, place: Place, most: int | None
) -> None:
    """The file of one of two nsq-to-files is lost. The other one has all that follows, and a part of what was before."""
    nsqd = make_nsqd(*SMALL_FILES)
    nsqd.create(TOPIC, CHANNEL)
    publish(nsqd, range(200))
    one = place.reader(nsqd)
    found, start = followed(one, one.initialOffset())
    with two_that_share(nsqd, place) as (first, second):
        drain(nsqd)
        assert second.stop() == 0
        nsqd.post(f"/channel/pause?topic={TOPIC}&channel={CHANNEL}")
        publish(nsqd, range(200, 300))
        more, start = followed(one, start)
        nsqd.post(f"/channel/unpause?topic={TOPIC}&channel={CHANNEL}")
        publish(nsqd, range(300, 400))
        drain(nsqd)
        assert first.stop() == 0
    (lost,) = (path for path in place.files() if ".second." in path.name)
    lost.unlink()
    with place.archiving(nsqd):
        publish(nsqd, range(400, 520))
    wait_until_dropped(nsqd, 410)
    rest, end = [], start
    while batch := one_batch(place.reader(nsqd), end, most):
        rest += batch[0]
        end = batch[1]
    assert found + more + rest == list(range(520))


def one_batch(
    one: LiveReader, start: dict[str, Any], most: int | None
) -> tuple[list[int], dict[str, Any]] | None:
    end = one.latestOffset(start, ALL if most is None else ReadMaxRows(most))
    return None if end == start else (numbers(one, partial(one.partitions, start, end)), end)


# ---- 2


def test_a_topic_that_is_created_again_while_it_is_archived(make_nsqd: MakeNsqd, place: Place) -> None:
    """One nsq-to-file and one stream go on all the time; the archive has both in one file."""
    nsqd = make_nsqd(*SMALL_FILES)
    with place.archiving(nsqd, "--format=framed"):
        publish(nsqd, range(40))
        wait_until(lambda: is_finished(nsqd), what="everything to be archived")
        one = place.reader(nsqd)
        start = one.initialOffset()
        found, start = followed(one, start)
        publish(nsqd, range(40, 200))
        wait_until(lambda: is_finished(nsqd), what="everything to be archived")
        nsqd.post(f"/topic/delete?topic={TOPIC}")
        nsqd.create(TOPIC, "archive")
        publish(nsqd, range(200, 400))
        wait_until(lambda: is_finished(nsqd), what="everything to be archived")
    publish(nsqd, range(400, 420))
    more, _ = followed(place.reader(nsqd), start, 33)
    assert sorted(found + more) == list(range(420))
    assert place.table(nsqd) == list(range(420))


def test_what_was_lost_with_a_topic_is_said_and_only_that_is_lost(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(360))
    place.archive(nsqd, "--format=framed")
    publish(nsqd, range(360, 400))
    one = place.reader(nsqd)
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)  # in the checkpoint, and not read before
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    nsqd.create(TOPIC, "archive")
    publish(nsqd, range(400, 500))
    for nsqds in (place.reader(nsqd), one):
        with pytest.raises(LostMessages, match=rf"nsq: 40 messages of topic orders on {address(nsqd)}"):
            nsqds.partitions(start, end)
    lax = place.reader(nsqd, failOnDataLoss="false")
    assert numbers(lax, partial(lax.partitions, start, end)) == list(range(360))
    assert followed(lax, end, 33)[0] == list(range(400, 500))


def test_a_topic_that_is_deleted_while_nsq_to_file_has_its_end(make_nsqd: MakeNsqd, place: Place) -> None:
    """The stream has not seen that end, and goes on with the new topic only when nsq-to-file has finished its file."""
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(100))
    place.archive(nsqd, "--format=framed")
    one = place.reader(nsqd)
    found, start = followed(one, one.initialOffset())
    with place.archiving(nsqd, "--format=framed"):
        publish(nsqd, range(100, 180))
        wait_until(lambda: is_finished(nsqd), what="everything to be archived")
        nsqd.post(f"/topic/delete?topic={TOPIC}")
        nsqd.create(TOPIC, "archive")
        publish(nsqd, range(180, 200))
        for again in (place.reader(nsqd), one):
            with pytest.raises(
                LostMessages, match=r"nsq: 80 messages of topic orders .* start again when nsq-to-file has"
            ):
                again.latestOffset(start, ALL)
    more, _ = followed(place.reader(nsqd), start, 33)
    assert sorted(found + more) == list(range(200))


def test_what_was_neither_read_nor_archived_of_a_deleted_topic(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(360))
    place.archive(nsqd, "--format=framed")
    one = place.reader(nsqd)
    start = one.initialOffset()
    publish(nsqd, range(360, 400))
    for first in 400, 410:
        nsqd.post(f"/topic/delete?topic={TOPIC}")
        nsqd.create(TOPIC, "archive")
        publish(nsqd, range(first, first + 10))
    for again in (place.reader(nsqd), one):
        with pytest.raises(LostMessages, match=rf"nsq: 50 messages of topic orders on {address(nsqd)}"):
            again.latestOffset(start, ALL)
    lax = place.reader(nsqd, failOnDataLoss="false")
    assert sorted(followed(lax, start, 33)[0]) == [*range(360), *range(410, 420)]


# ---- 3


def test_an_archive_that_began_later_than_its_topic(
    make_nsqd: MakeNsqd, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    nsqd.create(TOPIC, "other")
    publish(nsqd, range(200))
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=other")
    nsqd.post(f"/channel/delete?topic={TOPIC}&channel=other")
    nsqd.create(TOPIC, "archive")
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=archive")
    publish(nsqd, range(200, 400))
    place.archive(nsqd, "--format=framed")
    wait_until_dropped(nsqd, 300)
    with caplog.at_level(logging.WARNING):
        assert place.table(nsqd) == list(range(200, 400))
    assert "it does not have the first 200 messages" in caplog.text
    one = place.reader(nsqd)
    assert sorted(followed(one, one.initialOffset(), 70)[0]) == list(range(200, 400))
    time_ns = {int(body): timestamp for body, timestamp in times(place, nsqd)}
    for number in 200, 250, 390:
        since = time_ns[number] + 2**21
        later = place.table(nsqd, startingOffsets=str(since))
        # An id tells its time to two milliseconds: what came just before may be there.
        assert {other for other, time in time_ns.items() if time >= since} <= set(later)
        assert {time_ns[other] for other in later} <= {
            time for time in time_ns.values() if time >= since - 2**21
        }
    assert place.table(nsqd, startingOffsets=str(time_ns[200] - 10**9)) == list(range(200, 400))


def times(place: Place, nsqd: NsqdProcess) -> list[tuple[bytes, int]]:
    from nsq_spark.source.live import LiveBatchReader
    from nsq_spark.source.live_options import live_options

    one = LiveBatchReader(live_options(place.options(nsqd), 0), ("body", "timestamp_ns"))
    batches = [batch for part in one.partitions() for batch in one.read(part)]
    return [
        row
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def test_a_start_before_the_beginning_of_the_archive(
    make_nsqd: MakeNsqd, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not there is a WARNING for a time, as for the earliest message, and an error behind a message."""
    nsqd = make_nsqd(*SMALL_FILES)
    nsqd.create(TOPIC, CHANNEL)
    since = str(time.time_ns() - 10**9)
    publish(nsqd, range(200))
    one = place.reader(nsqd)
    position = one.latestOffset(one.initialOffset(), ReadMaxRows(100))["topics"][TOPIC][address(nsqd)]
    assert position["count"] == 100
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel={CHANNEL}")
    publish(nsqd, range(200, 400))
    place.archive(nsqd, "--format=framed")
    wait_until_dropped(nsqd, 300)
    with caplog.at_level(logging.WARNING):
        assert place.table(nsqd, startingOffsets=since) == list(range(200, 400))
    assert "it does not have the first 200 messages" in caplog.text
    by_id = {"startingOffsets": json.dumps({TOPIC: {address(nsqd): position["id"]}})}
    text = f"up to 200 messages of topic orders on {address(nsqd)}, behind message {position['id']}"
    for begin in place.reader(nsqd, **by_id).initialOffset, lambda: place.table(nsqd, **by_id):
        with pytest.raises(LostMessages, match=text):
            begin()
    assert place.table(nsqd, **by_id, failOnDataLoss="false") == list(range(200, 400))


def test_a_start_at_the_end_of_a_log_without_messages(make_nsqd: MakeNsqd, place: Place) -> None:
    """Nothing is missing behind its last message, and the archive has nothing."""
    nsqd = make_nsqd("--max-bytes-per-file=1000")
    nsqd.create(TOPIC, CHANNEL)
    publish(nsqd, range(20))
    one = place.reader(nsqd)
    last = one.latestOffset(one.initialOffset(), ALL)["topics"][TOPIC][address(nsqd)]
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel={CHANNEL}")
    wait_until_dropped(nsqd, 20)
    by_id = place.reader(nsqd, startingOffsets=json.dumps({TOPIC: {address(nsqd): last["id"]}}))
    start = by_id.initialOffset()
    publish(nsqd, range(20, 30))
    assert followed(by_id, start)[0] == list(range(20, 30))


@pytest.mark.parametrize("has_archive", [True, False])
def test_a_start_behind_the_last_message_that_was_dropped(
    make_nsqd: MakeNsqd, place: Place, has_archive: bool
) -> None:
    """Nothing is missing behind it; behind the message before it, one is."""
    nsqd = make_nsqd("--max-bytes-per-file=5000")
    nsqd.create(TOPIC, CHANNEL)
    publish(nsqd, range(30))
    ids = [message_id for _, message_id in sorted(place.rows(nsqd))]
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel={CHANNEL}")
    wait_until_dropped(nsqd, 20)
    dropped = earliest(nsqd)
    nsqd.create(TOPIC, "holds")
    publish(nsqd, range(30, 40))

    def begin(number: int) -> dict[str, str]:
        more = {} if has_archive else {"path": ""}
        return {"startingOffsets": json.dumps({TOPIC: {address(nsqd): ids[number]}}), **more}

    expected = list(range(dropped, 40))
    assert place.table(nsqd, **begin(dropped - 1)) == expected
    one = place.reader(nsqd, **begin(dropped - 1))
    assert followed(one, one.initialOffset(), 7)[0] == expected
    with pytest.raises(LostMessages, match="were dropped before they were read"):
        place.table(nsqd, **begin(dropped - 2))


# ---- 4


def test_messages_that_are_dropped_between_planning_and_reading(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    nsqd.create(TOPIC, "archive")
    publish(nsqd, range(200))
    one = place.reader(nsqd, giveUpAfter="20s")
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)
    planned = one.partitions(start, end)
    place.archive(nsqd, "--format=framed")
    wait_until_dropped(nsqd, 100)
    assert numbers(one, lambda: planned) == list(range(200))
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    rest = place.reader(nsqd, giveUpAfter="300ms")
    assert numbers(rest, lambda: planned) == list(range(200)), "also of a topic that is gone"


def test_a_path_and_a_topic_that_are_not_there_yet(
    make_nsqd: MakeNsqd, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    later = place.directory
    later.rename(later.with_name("not yet"))
    with caplog.at_level(logging.WARNING):
        one = place.reader(nsqd)
        start = one.initialOffset()
        for _ in range(3):
            assert one.latestOffset(start, ALL) == start
    assert caplog.text.count("there is no topic orders") == 1
    publish(nsqd, range(20))
    found, start = followed(one, start)
    assert found == list(range(20)), "the log has all of it"
    later.with_name("not yet").rename(later)
    publish(nsqd, range(20, 200))
    place.archive(nsqd, "--format=framed")
    wait_until_dropped(nsqd, 100)
    later.rename(later.with_name("not yet"))
    for begin in (start, place.reader(nsqd).initialOffset()):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            again = place.reader(nsqd)
            for _ in range(3):
                assert again.latestOffset(begin, ALL) == begin
        assert caplog.text.count("waiting for it") == 1
        later.with_name("not yet").rename(later)
        assert sorted(followed(again, begin, 33)[0]) == list(range(20 if begin is start else 0, 200))
        later.rename(later.with_name("not yet"))


# ---- plans


def test_a_plan_reads_no_file(make_nsqd: MakeNsqd, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any number, by the manifest; and tasks read only files that have messages of the time."""
    nsqd = make_nsqd(*SMALL_FILES)
    for first in range(0, 400, 100):
        publish(nsqd, range(first, first + 100))
        place.archive(nsqd, "--format=framed")
    wait_until_dropped(nsqd, 300)
    time_ns = {int(body): timestamp for body, timestamp in times(place, nsqd)}
    monkeypatch.setattr(archived_files, "read", lambda *_: pytest.fail("a file was read"))
    one = place.reader(nsqd)
    start = one.initialOffset()
    parts = one.partitions(start, one.latestOffset(start, ALL))
    assert numbers(one, lambda: parts) == list(range(400))
    opened: set[str] = set()
    read = archive_read.read
    monkeypatch.setattr(
        "nsq_spark.source.batch_reader.read",
        lambda split, *more: (opened.add(split.path), read(split, *more))[1],
    )
    recent = place.table(nsqd, startingOffsets=str(time_ns[200] - 2**21))
    assert recent[-1] == 399 and set(range(200, 400)) <= set(recent) and len(opened) <= 2


@pytest.mark.parametrize("has_location", [False, True])
def test_files_without_a_manifest_are_read_once(
    make_nsqd: MakeNsqd,
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    has_location: bool,
) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    for first in range(0, 200, 100):
        publish(nsqd, range(first, first + 100))
        place.archive(nsqd, "--format=framed")
    wait_until_dropped(nsqd, 100)
    manifest = place.directory / "_nsq_manifest"
    first_line, second_line = manifest.read_text().splitlines()
    older = {name: value for name, value in json.loads(second_line).items() if name != "nsqds"}
    manifest.write_text(f"{first_line}\n{json.dumps(older)}\n")
    reads: list[str] = []
    read = archive_read.read
    monkeypatch.setattr(
        archived_files, "read", lambda split, *more: (reads.append(split.path), read(split, *more))[1]
    )
    monkeypatch.setattr(archived_files, "_REPORT_EVERY_S", 0)
    more = {"checkpointLocation": str(tmp_path / "checkpoint")} if has_location else {}
    for _ in range(2):
        one = place.reader(nsqd, **more)
        assert sorted(followed(one, one.initialOffset(), 1000)[0]) == list(range(200))
    assert "reading files that no manifest describes, once: 1 of 1" in caplog.text
    assert {Path(path).name for path in reads} == {older["path"]}
    assert len(reads) == (1 if has_location else 2)


def test_copies_do_not_hide_a_hole(make_nsqd: MakeNsqd, place: Place) -> None:
    """As many messages are missing as others are there twice."""
    nsqd = make_nsqd(*SMALL_FILES)
    for first in range(0, 400, 100):
        publish(nsqd, range(first, first + 100))
        place.archive(nsqd, "--format=framed")
    wait_until_dropped(nsqd, 300)
    paths = place.files()
    (place.directory / "orders.copy.framed").write_bytes(paths[0].read_bytes())
    assert place.table(nsqd) == list(range(400))
    hidden = paths[1].rename(place.directory / "hidden")
    with pytest.raises(LostMessages, match="100 messages of topic orders"):
        place.table(nsqd)
    hidden.rename(paths[1])
    assert place.table(nsqd) == list(range(400))


# ---- checkpoints


def test_the_checkpoint_of_the_last_version_says_what_to_do() -> None:
    document: dict[str, Any] = {"version": 3, "topics": {TOPIC: {"127.0.0.1:4151": [3, 120, 7, 99]}}}
    with pytest.raises(
        BadOffset, match=r'another checkpointLocation and startingOffsets=.*"orders": .*"127.0.0.1:4151": 120'
    ):
        TopicOffset.of_json(document)
