"""One source from an archive to the log of nsqd and on: real nsqds, nsq-to-file, and each message exactly once."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source.batch_reader import NsqReader
from nsq_spark.source.nsqds import LostMessages
from nsq_spark.source.options import read_options
from tests.support.archived_topic import (
    ALL,
    CHANNEL,
    SMALL_FILES,
    TOPIC,
    Place,
    address,
    earliest,
    followed,
    is_finished,
    numbers,
    publish,
    wait_until_dropped,
)
from tests.support.ledger import compare
from tests.support.network import free_ports
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.nsqlookupd_process import MakeNsqlookupd
from tests.support.streams import run_query

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("form", ["jsonl", "framed", "parquet"])
def test_a_table_of_what_was_dropped_and_of_what_is_kept(
    make_nsqd: MakeNsqd, place: Place, form: str
) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    with place.archiving(nsqd, f"--format={form}", "--rotate-size=30000"):
        publish(nsqd, range(600))
    wait_until_dropped(nsqd)
    publish(nsqd, range(600, 650))
    assert 500 < earliest(nsqd) <= 600
    assert place.table(nsqd) == list(range(650))
    with pytest.raises(ArchiveError, match="does not keep number 5 of topic orders any more, .* give the id"):
        place.table(nsqd, startingOffsets=json.dumps({address(nsqd): 5}))
    ids = dict(place.rows(nsqd))
    some = {
        "startingOffsets": json.dumps({address(nsqd): ids[4]}),
        "endingOffsets": json.dumps({TOPIC: {address(nsqd): 630}}),
    }
    assert place.table(nsqd, **some) == list(range(5, 630))
    assert place.table(nsqd, endingOffsets=json.dumps({address(nsqd): ids[6]})) == list(range(7))
    assert place.table(nsqd, startingOffsets=json.dumps({address(nsqd): ids[629]})) == list(range(630, 650))
    assert place.table(nsqd, endingOffsets="earliest") == []


def test_a_stream_that_starts_again_at_any_point(make_nsqd: MakeNsqd, place: Place) -> None:
    """While nsqds get messages, drop them, and are overtaken; a batch is read twice, as after a crash."""
    chance = random.Random(7)
    nsqds = [make_nsqd(*SMALL_FILES) for _ in range(2)]
    found: list[int] = []
    published, start = 0, None
    for turn in range(8):
        for nsqd in nsqds:
            is_archived = turn % 3 != 2
            with place.archiving(nsqd, "--rotate-size=30000") if is_archived else ExitStack():
                nsqd.create(TOPIC, CHANNEL)
                count = 150 if is_archived else 30
                publish(nsqd, range(published, published + count))
                published += count
        one = place.reader(*nsqds)
        start = one.initialOffset() if start is None else start
        for _ in range(chance.randrange(1, 5)):
            end = one.latestOffset(start, ReadMaxRows(chance.randrange(20, 250)))
            once = numbers(one, partial(one.partitions, start, end))
            one = place.reader(*nsqds) if chance.random() < 0.5 else one
            assert numbers(one, partial(one.partitions, start, end)) == once
            found += once
            start = json.loads(json.dumps(end))
    found += followed(place.reader(*nsqds), start)[0]
    compare(map(b"%d".__mod__, range(published)), map(b"%d".__mod__, found)).require_sound()


def test_a_message_that_is_archived_twice_is_read_once(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(200))
    place.archive(nsqd)
    (path,) = place.files()
    lines = path.read_bytes().splitlines(keepends=True)
    (place.directory / f"{TOPIC}.again.jsonl").write_bytes(b"".join(lines[50:90] + lines[70:80]))
    wait_until_dropped(nsqd)
    assert place.table(nsqd) == list(range(200))
    assert followed(place.reader(nsqd), place.reader(nsqd).initialOffset(), 30)[0] == list(range(200))


def test_what_the_archive_lacks(
    make_nsqd: MakeNsqd, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A hole in it, or what nsq-to-file has not finished, of what nsqd has dropped. A query that goes on without these messages
    says how to get them when they are there.
    """
    nsqd = make_nsqd(*SMALL_FILES)
    with place.archiving(nsqd):
        publish(nsqd, range(200))
        wait_until_dropped(nsqd, 50)
        with pytest.raises(LostMessages, match="the archive does not have them"):
            place.reader(nsqd).initialOffset()
    assert place.table(nsqd) == list(range(200))
    publish(nsqd, range(200, 400))
    place.archive(nsqd, "--format=framed")
    (hole,) = (path for path in place.files() if path.suffix == ".framed")
    publish(nsqd, range(400, 600))
    place.archive(nsqd, "--format=parquet")
    assert earliest(nsqd) > 400
    start = place.reader(nsqd).initialOffset()
    end = place.reader(nsqd).latestOffset(start, ALL)
    elsewhere = hole.rename(tmp_path / hole.name)
    text = rf"nsq: 200 messages of topic orders on {address(nsqd)}, .* the archive does not have them"
    one = place.reader(nsqd)
    for read in (one.initialOffset, lambda: place.table(nsqd), lambda: one.partitions(start, end)):
        with pytest.raises(LostMessages, match=text):
            read()
    rest = [*range(200), *range(400, 600)]
    assert place.table(nsqd, failOnDataLoss="false") == rest
    lax = place.reader(nsqd, failOnDataLoss="false")
    assert sorted(followed(lax, lax.initialOffset(), 40)[0]) == rest
    caplog.clear()
    assert numbers(lax, partial(lax.partitions, start, end)) == rest
    conditions = re.findall(r'\.load\((.*?)\)\.where\("(.*?)"\)', caplog.text)
    elsewhere.rename(hole)
    assert {paths for paths, _ in conditions} == {str([str(place.directory)])}
    found = {number for _, condition in conditions for number in archived(place, condition)}
    assert sorted(found - set(rest)) == list(range(200, 400))


def archived(place: Place, condition: str) -> list[int]:
    """The numbers of archived messages for which a condition is true."""
    columns = ("body", "id", "topic", "nsqd")
    messages = sqlite3.connect(":memory:")
    messages.execute(f"CREATE TABLE messages ({', '.join(columns)})")
    one = NsqReader(read_options({"path": str(place.directory)}, 0), columns)
    for part in one.partitions():
        for batch in one.read(part):
            rows = batch.to_pylist()
            messages.executemany("INSERT INTO messages VALUES (:body, :id, :topic, :nsqd)", rows)
    return [int(body) for (body,) in messages.execute(f"SELECT body FROM messages WHERE {condition}")]


@pytest.mark.parametrize("drops", [True, False])
def test_a_topic_that_was_created_again(make_nsqd: MakeNsqd, place: Place, drops: bool) -> None:
    nsqd = make_nsqd(*(SMALL_FILES if drops else ("--retention-time=1h",)))
    publish(nsqd, range(100))
    place.archive(nsqd)
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    one = place.reader(nsqd)
    assert place.table(nsqd) == list(range(100))  # of a topic that is not there
    before, end = followed(one, one.initialOffset())
    nsqd.create(TOPIC, CHANNEL)
    assert place.table(nsqd) == list(range(100)), "the new topic has no message yet"
    publish(nsqd, range(100, 300))
    place.archive(nsqd)
    if drops:
        wait_until_dropped(nsqd)
    publish(nsqd, range(300, 350))
    assert place.table(nsqd) == list(range(350))
    assert sorted(before + followed(one, end, 33)[0]) == list(range(350))
    again = place.reader(nsqd)
    found, end = followed(again, again.initialOffset(), 33)
    assert found == list(range(350))
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    publish(nsqd, range(400, 800))
    assert followed(again, end, 60)[0] == list(range(400, 800))


def test_an_nsqd_that_is_down_or_gone_and_one_that_comes_later(
    make_nsqd: MakeNsqd, make_nsqlookupd: MakeNsqlookupd, place: Place, tmp_path: Path
) -> None:
    lookupd = make_nsqlookupd()
    flags = (
        *SMALL_FILES,
        f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}",
        "--broadcast-address=127.0.0.1",
    )
    first, third = make_nsqd(*flags), make_nsqd(*flags)
    with NsqdProcess(tmp_path / "second", *flags, ports=tuple(free_ports(2))).start() as second:
        for number, nsqd in enumerate((first, second)):
            publish(nsqd, range(1000 * number, 1000 * number + 200))
            place.archive(nsqd)
        wait_until(lambda: len(lookupd.lookup(TOPIC)) == 2)
        expected = [*range(200), *range(1000, 1200)]
        options = {"nsqlookupd": lookupd.http_address}
        assert place.table(**options) == expected
        second.stop()
        wait_until(lambda: len(lookupd.lookup(TOPIC)) == 1)
        with pytest.raises(ArchiveError, match=rf"nsqd 127.0.0.1:{second.tcp_port}, which is not there"):
            place.reader(**options).initialOffset()
        for gone in "*", f"127.0.0.1:{second.tcp_port}":
            assert place.table(**options, goneNsqds=gone) == expected
        one = place.reader(**options, goneNsqds="*")
        found, end = followed(one, one.initialOffset(), 70)
        assert sorted(found) == expected
        publish(third, range(2000, 2200))
        place.archive(third)
        wait_until_dropped(third)
        wait_until(lambda: len(lookupd.lookup(TOPIC)) == 2)
        one = place.reader(**options, goneNsqds="*")
        found, end = followed(one, end, 70)
        assert found == list(range(2000, 2200))
        second.start()
        wait_until(lambda: len(lookupd.lookup(TOPIC)) == 3)
        assert place.table(**options) == [*expected, *range(2000, 2200)]
        publish(second, range(1200, 1210))
        assert followed(one, end, 70)[0] == list(range(1200, 1210))


def test_an_nsqd_that_the_archive_knows_by_another_name(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd("--retention-time=1h")
    publish(nsqd, range(100))
    place.archive(nsqd, host="localhost")
    publish(nsqd, range(100, 150))
    assert place.table(nsqd) == list(range(150))


def test_between_two_times(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    with place.archiving(nsqd):
        for first in range(0, 300, 50):
            publish(nsqd, range(first, first + 50))
            wait_until(lambda: is_finished(nsqd))
    wait_until_dropped(nsqd, 60)
    publish(nsqd, range(300, 350))
    times: dict[int, int] = {}
    for path in place.files():
        for line in path.read_bytes().splitlines():
            one = json.loads(line)
            times[int(one["body"])] = one["timestamp"]
    for low, high in ((50, 250), (0, 50), (100, 101)):
        # Ids have units of 1 ms, so the bounds are between two publishes.
        since, until = ((times[number] - 10**6 * 2) if number in times else None for number in (low, high))
        found = place.table(nsqd, startingOffsets=str(since), endingOffsets=str(until) if until else "latest")
        assert {times[number] for number in found} <= {
            time for time in times.values() if since - 2**21 <= time < (until or 2**63)
        }
        assert {number for number, time in times.items() if since <= time < (until or 2**63) - 2**21} <= set(
            found
        )


def test_topics_by_a_pattern(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    for number, topic in enumerate(("orders", "orders_eu", "clicks", "orders#ephemeral")):
        publish(nsqd, range(1000 * number, 1000 * number + 100), topic)
    for topic in "orders", "orders_eu", "clicks":
        place.archive(nsqd, topic=topic)
    publish(nsqd, range(100, 120))
    expected = [*range(120), *range(1000, 1100)]
    assert place.table(nsqd, topicPattern="^orders") == expected
    one = place.reader(nsqd, topicPattern="^orders")
    found, end = followed(one, one.initialOffset(), 50)
    assert sorted(found) == expected
    assert one.reportLatestOffset()["lag"] == {topic: {address(nsqd): 0} for topic in ("orders", "orders_eu")}
    publish(nsqd, range(2000, 2010), "orders_us")
    few = place.reader(nsqd, topicPattern="^orders", minMessagesPerTrigger="11")
    assert few.latestOffset(end, ALL) == end
    publish(nsqd, range(2010, 2011), "orders_us")
    assert followed(few, end)[0] == list(range(2000, 2011))


@pytest.mark.parametrize(
    ("flags", "text"),
    [(("--format=lines",), "does not say which message is of which nsqd"), ((), "is damaged at")],
)
def test_archives_that_do_not_do(
    make_nsqd: MakeNsqd, place: Place, flags: tuple[str, ...], text: str
) -> None:
    nsqd = make_nsqd()
    publish(nsqd, range(10))
    place.archive(nsqd, *flags)
    if not flags:
        (path,) = place.files()
        path.write_bytes(b'{"timestamp":1,"id":"' + path.read_bytes()[3:])
    with pytest.raises(ArchiveError, match=text):
        place.table(nsqd)


def test_a_query_of_spark_from_history_to_now(
    spark: Any, make_nsqd: MakeNsqd, place: Place, tmp_path: Path
) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    with place.archiving(nsqd, "--rotate-size=30000"):
        publish(nsqd, range(300))
    wait_until_dropped(nsqd)
    publish(nsqd, range(300, 330))
    batches: dict[int, list[str]] = {}

    def run(crash_in: int | None = None) -> None:
        stream = (
            spark.readStream.format("nsq").options(**place.options(nsqd, maxOffsetsPerTrigger="90")).load()
        )
        run_query(stream.select("id"), tmp_path / "checkpoint", batches, crash_in)

    for crash_in in 1, 3:
        run(crash_in)
        with place.archiving(nsqd):
            publish(nsqd, range(330 + crash_in, 380 + crash_in))
    run()
    ids = Counter(sum(batches.values(), []))
    assert set(ids.values()) == {1} and len(ids) == 430
    table = spark.read.format("nsq").options(**place.options(nsqd)).schema("id STRING, body BINARY").load()
    assert {row.id for row in table.collect()} == set(ids)
