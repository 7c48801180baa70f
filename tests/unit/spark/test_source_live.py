"""A task that reads a log, whatever nsqd drops in the meantime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source import live
from nsq_spark.source.live_options import LogKey, Position, live_options
from nsq_spark.source.nsqds import Retained
from nsq_spark.source.planner import TopicPartition
from tests.support.archives import Published, TopicLogFile

TOPIC, EPOCH, FIRST_ID = "orders", 7, 0x1000
END = Position(FIRST_ID + 29, 30, EPOCH)


def before(seq: int) -> Position:
    return Position(FIRST_ID + seq - 1, seq, EPOCH)


def answer(*starts: int, earliest_seq: int) -> Retained:
    """Ten messages from each of these numbers on."""
    data = b""
    for seq in starts:
        log = TopicLogFile(TOPIC, seq, salt=0)
        head = len(log.data)
        log.add(Published([b"%d" % number for number in range(seq, seq + 10)]))
        data += bytes(log.data[head:] if data else log.data)
    return Retained(data, before(starts[0]), END, 30, earliest_seq)


def numbers(monkeypatch: pytest.MonkeyPatch, *answers: Retained) -> list[int]:
    """Read all 30 messages; what comes from the archive is negative."""
    left = iter(answers)

    def archived(part: TopicPartition, low: Position, high: Position) -> Iterator[Any]:
        found.extend(-number for number in range(low.seq, high.seq))
        return iter(())

    monkeypatch.setattr(live, "read", lambda *_, **__: next(left))
    monkeypatch.setattr(live, "_not_retained", archived)
    found: list[int] = []
    options = live_options({"nsqd": "127.0.0.1:4151", "topic": TOPIC}, 0)
    part = TopicPartition(LogKey(TOPIC, "127.0.0.1:4151"), before(0), END, ("position",), options)
    for batch in live.read_range(part):
        found.extend(batch.column(0).to_pylist())
    return found


def test_a_hole_in_the_middle_is_read_from_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer ends before it, and the next one begins behind it, whatever is there before."""
    found = numbers(
        monkeypatch, answer(0, earliest_seq=0), answer(20, earliest_seq=0), answer(20, earliest_seq=0)
    )
    assert found == [*range(10), *(-number for number in range(10, 20)), *range(20, 30)]


def test_nsqds_of_earlier_versions_pass_over_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    some = answer(0, 20, earliest_seq=0)
    found = numbers(monkeypatch, some, answer(20, earliest_seq=20), answer(20, earliest_seq=20))
    assert found == [*range(10), *(-number for number in range(10, 20)), *range(20, 30)]


def test_an_answer_without_messages_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = answer(0, earliest_seq=0)._replace(data=answer(20, earliest_seq=0).data)
    with pytest.raises(
        ArchiveError, match="127.0.0.1:4151 hands out nothing from number 0 of topic orders on"
    ):
        numbers(monkeypatch, nothing)
