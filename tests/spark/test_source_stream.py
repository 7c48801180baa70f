"""`spark.readStream.format("nsq")` and `writeStream`, with Spark's own checkpoints.

What a reader gives in every order of things is in tests/property/test_stream_reader.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.archives import framed, messages
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import bodies

# One Spark for all of them.
pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

STREAM_DEADLINE_S = 120


class Crash(Exception):
    pass


class Sink:
    """Collects the rows of each batch; crashes in one, after it has them."""

    def __init__(self, crash_in: int | None = None) -> None:
        self.batches: dict[int, list[tuple[str, int]]] = {}
        self._crash_in = crash_in

    def take(self, frame: Any, number: int) -> None:
        self.batches[number] = [(row.file, row.position) for row in frame.select("file", "position").collect()]
        if number == self._crash_in:
            raise Crash


def run(spark: Any, archive: Path, checkpoint: Path, sink: Sink, **options: str) -> Any:
    """All that is there now. The last batches' progress."""
    stream = spark.readStream.format("nsq").options(**options).load(str(archive))
    writing = stream.writeStream.foreachBatch(sink.take).option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(STREAM_DEADLINE_S)
    finally:
        query.stop()
    return query.recentProgress


def test_each_message_is_in_one_batch_whatever_ends_the_query(spark: Any, tmp_path: Path) -> None:
    archive, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    archive.mkdir()
    some = messages(200)
    for number in range(4):
        part = some[number * 50 : number * 50 + 50]
        (archive / f"{number}.framed").write_bytes(framed([part[:20], part[20:]]))

    first = Sink(crash_in=2)
    with pytest.raises(Exception, match="Crash"):
        run(spark, archive, checkpoint, first, maxRowsPerTrigger="30")
    assert {number: len(rows) for number, rows in first.batches.items()} == {0: 30, 1: 30, 2: 30}

    (archive / "late.framed").write_bytes(framed([messages(10)]))
    again = Sink()
    progress = run(spark, archive, checkpoint, again, maxRowsPerTrigger="30")
    assert sorted(again.batches[2]) == sorted(first.batches[2])
    rows = Counter(row for batch in {**first.batches, **again.batches}.values() for row in batch)
    assert len(rows) == 210 and set(rows.values()) == {1}
    assert max(map(len, again.batches.values())) == 30
    assert sum(one["numInputRows"] for one in progress) == 150

    nothing = Sink()
    run(spark, archive, checkpoint, nothing)
    assert nothing.batches == {}


def test_a_stream_is_published(spark: Any, tmp_path: Path, nsqd: NsqdProcess) -> None:
    nsqd.create("copies", "c")
    (tmp_path / "orders.framed").write_bytes(framed([messages(100), messages(50, topic="others")]))
    stream = spark.readStream.format("nsq").option("topic", "orders").load(str(tmp_path / "*.framed"))
    address = f"127.0.0.1:{nsqd.tcp_port}"
    options = {"checkpointLocation": str(tmp_path / "checkpoint"), "nsqdTcpAddress": address, "topic": "copies"}
    for _ in range(2):
        query = stream.writeStream.format("nsq").options(**options).trigger(availableNow=True).start()
        assert query.awaitTermination(STREAM_DEADLINE_S)
    nsqd.wait_for_channel("copies", "c", depth=100)
    with nsqd.connect() as client:
        client.sub("copies", "c", rdy_count=100)
        assert sorted(bodies(client.consume(100))) == [message.body for message in messages(100)]


def test_a_table_is_published(spark: Any, nsqd: NsqdProcess) -> None:
    frame = spark.range(1000).selectExpr("concat('t', id % 2) AS topic", "cast(id AS STRING) AS body", "id AS other")
    frame.write.format("nsq").mode("append").option("nsqdTcpAddress", f"127.0.0.1:{nsqd.tcp_port}").save()
    counts = {topic: (nsqd.topic_stats(topic) or {}).get("message_count") for topic in ("t0", "t1")}
    assert counts == {"t0": 500, "t1": 500}


@pytest.mark.parametrize(
    ("mode", "options", "text"),
    [
        ("overwrite", {"topic": "t", "nsqdTcpAddress": "127.0.0.1:1"}, "a topic cannot be overwritten"),
        ("append", {"topic": "t", "nsqdTcpAddress": "127.0.0.1:1", "giveUpAfter": "100ms"}, "127.0.0.1:1"),
        ("append", {"topic": "t"}, "option nsqdTcpAddress or lookupdHttpAddress is needed"),
    ],
)
def test_errors_of_writing_reach_the_user(spark: Any, mode: str, options: dict[str, str], text: str) -> None:
    frame = spark.createDataFrame([(b"x",)], "body BINARY")
    with pytest.raises(Exception) as raised:
        frame.write.format("nsq").mode(mode).options(**options).save()
    assert text in str(raised.value)


def test_a_stream_needs_fixed_times(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="option startTime: a stream needs a fixed time"):
        run(spark, tmp_path, tmp_path / "checkpoint", Sink(), startTime="-1h")
