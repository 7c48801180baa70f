"""Stores of nsqd in Spark: as tables, as streams, and before the log of an nsqd; each message exactly once."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from nsq_spark import nsq_archive
from nsq_spark.archive.listing import list_files
from nsq_spark.archive.splits import ArchiveError, Requested, plan_splits
from nsq_spark.archive.storage import Storage
from nsq_spark.archive.store_logs import DamagedStore
from nsq_spark.source.live import LiveBatchReader, LiveReader
from nsq_spark.source.live_options import live_options, stream_of
from nsq_spark.source.nsqds import LostMessages
from nsqd_py.store.layout import round_name
from tests.support.archived_topic import (
    COLUMNS,
    TOPIC,
    address,
    earliest,
    followed,
    numbers,
    publish,
    wait_until_dropped,
)
from tests.support.nsqd_process import MakeNsqd, NsqdProcess
from tests.support.stored import StoreOfFiles
from tests.support.streams import run_query

# One Spark for all of them.
pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

# A file has about 15 messages of `publish`.
SMALL_FILES = "--max-bytes-per-file=16384"


def ask_for_epochs(nsqd: NsqdProcess) -> None:
    """Let nsqd write the epochs of its logs, as one with a store always does."""
    for topic in (TOPIC, "clicks"):
        assert nsqd.http("GET", f"/topic/read?topic={topic}&seq=0").status == 200
    assert (nsqd.data_path / "nsqd.epochs").exists()


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    nsqd = make_nsqd(SMALL_FILES)
    publish(nsqd, range(100))
    publish(nsqd, range(5000, 5020), "clicks")
    ask_for_epochs(nsqd)
    return nsqd


@pytest.fixture
def store(nsqd: NsqdProcess, tmp_path: Path) -> StoreOfFiles:
    """Sealed files, a stored beginning of a file, and rounds."""
    store = StoreOfFiles((tmp_path / "store").as_uri(), f"127.0.0.1:{nsqd.tcp_port}")
    store.base(nsqd.data_path, stores_prefixes=True)
    for first in (100, 130):
        publish(nsqd, range(first, first + 30))
        store.round(nsqd.data_path, seals=first == 130)
    return store


def bodies(rows: list[Any]) -> list[int]:
    return sorted(int(bytes(row.body)) for row in rows)


def stream(store: StoreOfFiles, **more: str) -> LiveReader:
    return LiveReader(stream_of({"path": store.url, "topic": TOPIC, **more}, 0, needs_nsqds=False), COLUMNS)


def test_a_table(spark: Any, store: StoreOfFiles) -> None:
    """`position` is the sequence number, wherever a message is."""
    frame = spark.read.format("nsq").load(store.url)
    rows = frame.where(f"topic = '{TOPIC}'").orderBy("position").collect()
    assert [int(bytes(row.body)) for row in rows] == [row.position for row in rows] == list(range(160))
    assert rows == sorted(rows, key=lambda row: row.id)
    assert {(row.channel, row.nsqd, row.attempts) for row in rows} == {(None, store.node, 0)}
    assert bodies(frame.where("topic = 'clicks'").collect()) == list(range(5000, 5020))
    assert bodies(nsq_archive(spark, store.url, topic=TOPIC).collect()) == list(range(160))
    middle = rows[80].timestamp_ns
    late = spark.read.format("nsq").options(topic=TOPIC, startTime=str(middle)).load(store.url)
    assert bodies(late.collect()) == [row.position for row in rows if row.timestamp_ns >= middle]


def test_a_plan_has_only_files_of_the_topics_and_times(store: StoreOfFiles) -> None:
    infos = list_files([store.url], Storage())
    of_topic = plan_splits(infos, requested=Requested(frozenset({"clicks"})))
    assert {split.topic for split in of_topic} == {"clicks"}
    first, *_, last = (one for one in store.files() if one.topic == TOPIC)
    early = Requested(frozenset({TOPIC}), end_ns=first.last_ns + 1)
    found = plan_splits(list_files([store.url], Storage(), requested=early), requested=early)
    assert [split.path.partition("/store/")[2] for split in found] == [first.name]
    late = Requested(frozenset({TOPIC}), start_ns=last.last_ns + 1)
    found = plan_splits(list_files([store.url], Storage(), requested=late), requested=late)
    assert found
    assert all("/rounds/" in split.path for split in found)
    with pytest.raises(ArchiveError, match="there is no topic none in .*; there are clicks, orders"):
        list_files([store.url], Storage(), requested=Requested(frozenset({"none"})))


def test_a_stream_without_nsqd(nsqd: NsqdProcess, store: StoreOfFiles) -> None:
    """A batch is read twice, as after a crash, also when rounds have become files by then."""
    one = stream(store)
    start = one.initialOffset()
    found: list[int] = []
    published = 160
    for most in (7, 50, 1000, 20, 1000):
        end = one.latestOffset(start, ReadMaxRows(most))
        once = numbers(one, partial(one.partitions, start, end))
        assert len(once) <= most
        publish(nsqd, range(published, published + 10))
        published += 10
        if most == 1000:
            store.base(nsqd.data_path)
        else:
            store.round(nsqd.data_path, seals=True)
        one = stream(store)
        assert numbers(one, partial(one.partitions, start, end)) == once
        found += once
        start = json.loads(json.dumps(end))
    found += followed(stream(store), start)[0]
    assert found == list(range(published))


def test_a_query_on_a_store(spark: Any, nsqd: NsqdProcess, store: StoreOfFiles, tmp_path: Path) -> None:
    """Spark's own query: it crashes, goes on at its checkpoint, and finds a topic that is new."""
    options = {"topicPattern": "orders|later", "maxMessagesPerTrigger": "60"}
    frame = spark.readStream.format("nsq").options(**options).schema("body BINARY").load(store.url)
    batches: dict[int, list[Any]] = {}
    run_query(frame, tmp_path / "checkpoint", batches, crash_in=1)
    publish(nsqd, range(160, 200))
    publish(nsqd, range(9000, 9005), "later")
    store.base(nsqd.data_path)
    run_query(frame, tmp_path / "checkpoint", batches)
    assert all(0 < len(batch) <= 60 for batch in batches.values())
    found = sorted(int(bytes(body)) for batch in batches.values() for body in batch)
    assert found == [*range(200), *range(9000, 9005)]


def test_a_replay_of_a_store(
    nsqd: NsqdProcess, store: StoreOfFiles, tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    environment = {**spark_environment, "PYTHONPATH": f"{spark_environment['PYTHONPATH']}:apps"}
    flags = [
        f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}",
        "--topic=orders",
        "--to-topic=again",
        "--master=local[2]",
        f"--checkpoint={tmp_path / 'checkpoint'}",
        "--yes",
    ]
    command = [sys.executable, "-m", "nsq_apps.spark_replay", store.url, *flags]
    for _ in range(2):  # the second time there is nothing left
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
    assert "all of it was sent already: 160 messages" in done.stderr
    again = nsqd.topic_stats("again")
    assert again is not None
    assert again["message_count"] == 160


def test_a_store_that_does_not_answer_for_a_moment(
    store: StoreOfFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that has read a store asks again, but not if the store is damaged."""
    directory = tmp_path / "store"
    away = tmp_path / "away"
    is_away_for_good = False

    def wait(seconds: float) -> None:
        if away.exists() and not is_away_for_good:
            away.rename(directory)

    monkeypatch.setattr("time.sleep", wait)
    monkeypatch.setattr("nsq_spark.source.store_history._REFRESH_EVERY_S", 0.0)
    one = stream(store, giveUpAfter="300s")
    start = one.initialOffset()
    directory.rename(away)
    end = one.latestOffset(start, ReadMaxRows(1000))
    directory.rename(away)
    assert numbers(one, partial(one.partitions, start, end)) == list(range(160))
    is_away_for_good = True
    brief = stream(store, giveUpAfter="0.01s")
    brief.initialOffset()
    directory.rename(away)
    with pytest.raises(ArchiveError, match="head.json is missing"):
        brief.latestOffset(start, ReadMaxRows(1000))
    away.rename(directory)
    (directory / "head.json").write_bytes(b"{}")
    with pytest.raises(DamagedStore, match="head.json"):
        one.latestOffset(start, ReadMaxRows(1000))


def test_where_a_stream_of_a_store_begins(store: StoreOfFiles) -> None:
    def first(**options: str) -> int:
        one = stream(store, **options)
        return min(followed(one, one.initialOffset(), 1000)[0], default=-1)

    node = store.node
    assert first(startingOffsets="latest") == -1
    assert first(startingOffsets=json.dumps({node: 42})) == 42
    one = stream(store)
    (end,) = one.latestOffset(one.initialOffset(), ReadMaxRows(37))["topics"][TOPIC].values()
    assert end["count"] == 37
    assert first(startingOffsets=json.dumps({node: end["id"]})) == 37
    with pytest.raises(ArchiveError, match="numbers of topic orders up to 160, not 161"):
        first(startingOffsets=json.dumps({node: 161}))


def test_what_the_store_has_dropped(store: StoreOfFiles) -> None:
    one = stream(store)
    start = one.initialOffset()
    gone = next(one for one in store.files() if one.topic == TOPIC)
    store.drop(gone.local_name)
    one = stream(store)
    with pytest.raises(LostMessages, match=f"{gone.end_seq} messages of topic orders"):
        one.latestOffset(start, ReadMaxRows(1000))
    one = stream(store, failOnDataLoss="false")
    assert followed(one, start, 1000)[0] == list(range(gone.end_seq, 160))


def test_a_store_and_then_its_nsqd(nsqd: NsqdProcess, store: StoreOfFiles) -> None:
    """History that nsqd has dropped comes from the store; the offsets of a stream of the store alone go on with nsqd."""
    alone = stream(store)
    offset = alone.latestOffset(alone.initialOffset(), ReadMaxRows(33))
    nsqd.create(TOPIC, "c")
    nsqd.http("POST", f"/channel/empty?topic={TOPIC}&channel=c")
    publish(nsqd, range(160, 200))
    wait_until_dropped(nsqd, 34)
    assert earliest(nsqd) < 200
    options = {"path": store.url, "topic": TOPIC, "nsqd": address(nsqd), "giveUpAfter": "300ms"}
    table = LiveBatchReader(live_options(options, 0), COLUMNS)
    assert numbers(table, table.partitions) == list(range(200))
    live = LiveReader(stream_of(options, 0), COLUMNS)
    assert followed(live, live.initialOffset(), 70)[0] == list(range(200))
    assert followed(LiveReader(stream_of(options, 0), COLUMNS), offset)[0] == list(range(33, 200))
    store.move("10.0.0.9:4150")  # the log is known by its epoch
    moved = LiveBatchReader(live_options(options, 0), COLUMNS)
    assert numbers(moved, moved.partitions) == list(range(200))
    assert followed(stream(store), offset)[0] == list(range(33, 160))


def test_a_store_of_an_nsqd_that_is_gone(
    make_nsqd: MakeNsqd, nsqd: NsqdProcess, store: StoreOfFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """The store knows how many messages there were, so none may be missing."""
    nsqd.stop()
    other = make_nsqd()
    publish(other, range(7000, 7010))
    options = {"path": store.url, "topic": TOPIC, "nsqd": address(other), "giveUpAfter": "300ms"}
    table = LiveBatchReader(live_options({**options, "goneNsqds": store.node}, 0), COLUMNS)
    assert numbers(table, table.partitions) == [*range(160), *range(7000, 7010)]
    assert "it is not known" not in caplog.text
    with pytest.raises(
        ArchiveError, match=f"messages of topic orders of nsqd {store.node}, which is not there"
    ):
        LiveBatchReader(live_options(options, 0), COLUMNS).partitions()


def test_damage(spark: Any, store: StoreOfFiles, tmp_path: Path) -> None:
    path = tmp_path / "store" / round_name(2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArchiveError, match=f"{round_name(2)} is damaged: its checksum is wrong"):
        list_files([store.url], Storage())
    some = spark.read.format("nsq").options(topic=TOPIC, skipDamaged="true").load(store.url).collect()
    assert bodies(some) == [
        *range(160)
    ]  # the round after it names the stored files, which have its messages too
