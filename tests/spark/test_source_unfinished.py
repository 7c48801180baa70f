"""Several nsq-to-files share a channel, and the log that says how many messages there were is gone: what the archive lacks."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest

pytest.importorskip("pyspark")

from nsq_spark.source.live import LiveReader
from nsq_spark.source.nsqds import LostMessages
from tests.support.archived_topic import (
    ALL,
    SMALL_FILES,
    TOPIC,
    Place,
    address,
    drain,
    followed,
    numbers,
    publish,
    two_that_share,
)
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.tool_process import ToolProcess

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]


def archived_by(nsqd: NsqdProcess, *tools: ToolProcess) -> None:
    drain(nsqd)
    for tool in tools:
        assert tool.stop() == 0


def check_refused_then_complete(
    place: Place,
    nsqd: NsqdProcess,
    options: dict[str, str],
    last: ToolProcess,
    expected: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The archive has a part of the messages until the last nsq-to-file finishes its file."""
    text = r"nsq: (\d+) messages of topic orders on .*: the archive does not have them: start again when nsq-to-file"
    with pytest.raises(LostMessages, match=text):
        place.table(nsqd, **options)
    one = place.reader(nsqd, **options)
    start = one.initialOffset()
    with pytest.raises(LostMessages, match=text):
        one.latestOffset(start, ALL)
    with caplog.at_level(logging.WARNING):
        some = place.table(nsqd, **options, failOnDataLoss="false")
    assert f"nsq: {len(expected) - len(some)} messages of topic orders" in caplog.text
    lax = place.reader(nsqd, **options, failOnDataLoss="false")
    found, end = followed(lax, start, 40)
    assert sorted(found) == some
    assert last.stop() == 0
    assert place.table(nsqd, **options) == expected
    assert sorted(followed(one, start, 40)[0]) == expected
    again = place.reader(nsqd, **options)
    assert sorted(followed(again, start)[0]) == expected
    rest, _ = followed(place.reader(nsqd, **options, failOnDataLoss="false"), end)
    assert not set(rest) & set(found)


def test_a_deleted_topic_with_a_file_that_is_not_finished(
    make_nsqd: MakeNsqd, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(10))
    place.archive(nsqd)  # the archive does not begin later than the topic
    with two_that_share(nsqd, place) as (first, second):
        publish(nsqd, range(10, 200))
        archived_by(nsqd, first)
        nsqd.post(f"/topic/delete?topic={TOPIC}")
        check_refused_then_complete(place, nsqd, {}, second, list(range(200)), caplog)


def test_an_nsqd_that_is_gone_with_a_file_that_is_not_finished(
    make_nsqd: MakeNsqd, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    nsqd, other = make_nsqd(*SMALL_FILES), make_nsqd(*SMALL_FILES)
    publish(other, range(1000, 1010))
    publish(nsqd, range(10))
    place.archive(nsqd)  # the archive does not begin later than the topic
    with two_that_share(nsqd, place) as (first, second):
        publish(nsqd, range(10, 200))
        archived_by(nsqd, first)
        nsqd.stop()
        gone = {"goneNsqds": f"127.0.0.1:{nsqd.tcp_port}"}
        options = {**gone, "nsqd": address(other)}
        expected = [*range(200), *range(1000, 1010)]
        check_refused_then_complete(place, other, options, second, expected, caplog)


def test_a_stream_on_a_log_that_is_deleted_before_it_is_archived(make_nsqd: MakeNsqd, place: Place) -> None:
    """What the query has read of the log is nowhere else, and what it has not read is in the unfinished file."""
    nsqd = make_nsqd("--retention-time=1h")
    with two_that_share(nsqd, place) as (first, second):
        publish(nsqd, range(50))
        one = place.reader(nsqd)
        found, end = followed(one, one.initialOffset())
        assert found == list(range(50))
        publish(nsqd, range(50, 100))
        archived_by(nsqd, first)
        nsqd.post(f"/topic/delete?topic={TOPIC}")
        for reader in one, place.reader(nsqd):
            with pytest.raises(LostMessages, match="the archive does not have them"):
                reader.latestOffset(end, ALL)
        assert second.stop() == 0
        assert followed(one, end)[0] == list(range(50, 100))


@pytest.mark.parametrize("begins", ["earliest", "latest"])
def test_a_topic_that_an_nsqd_had_while_the_stream_did_not_run(
    make_nsqd: MakeNsqd, place: Place, begins: str
) -> None:
    """It is in the archive only. `latest` does not say whether the stream began before it was there."""
    first, second = make_nsqd("--retention-time=1h"), make_nsqd("--retention-time=1h")
    publish(first, range(10))
    one = place.reader(first, second, startingOffsets=begins)
    found, end = followed(one, one.initialOffset())
    publish(second, range(100, 150))
    place.archive(second)
    second.post(f"/topic/delete?topic={TOPIC}")
    publish(first, range(10, 20))
    again = place.reader(first, second, startingOffsets=begins)
    more, end = followed(again, end, 15)
    expected = {"earliest": [*range(20), *range(100, 150)], "latest": list(range(10, 20))}
    assert sorted(found + more) == expected[begins]


def test_a_batch_that_was_planned_before_its_topic_was_deleted(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd("--retention-time=1h")
    with two_that_share(nsqd, place) as (first, second):
        publish(nsqd, range(100))
        one = place.reader(nsqd)
        start = one.initialOffset()
        end = one.latestOffset(start, ALL)
        archived_by(nsqd, first)
        nsqd.post(f"/topic/delete?topic={TOPIC}")
        for reader in one, place.reader(nsqd):
            with pytest.raises(LostMessages, match="the archive does not have them"):
                numbers(reader, partial(reader.partitions, start, end))
        assert second.stop() == 0
        assert numbers(one, partial(one.partitions, start, end)) == list(range(100))


# ---- nsqds that are gone, of which the archive gets more while a stream runs


def read_until_complete(one: LiveReader, start: dict[str, Any], expected: list[int]) -> dict[str, Any]:
    """Read on until there are these messages, each once; return where that is."""
    found: list[int] = []

    def is_complete() -> bool:
        nonlocal start
        more, start = followed(one, start)
        found.extend(more)
        return sorted(found) == expected

    wait_until(is_complete, what="the messages of an nsqd that is gone")
    return start


def test_a_running_stream_reads_what_is_archived_later_of_an_nsqd_that_is_gone(
    make_nsqd: MakeNsqd, place: Place
) -> None:
    """All that nsq-to-file knew of is there, so no message seems to be missing before its last files are finished."""
    nsqd, other = make_nsqd("--retention-time=1h"), make_nsqd()
    publish(other, range(1000, 1010))
    publish(nsqd, range(50))
    place.archive(nsqd)
    both = place.reader(nsqd, other)
    found, end = followed(both, both.initialOffset())
    assert sorted(found) == [*range(50), *range(1000, 1010)]
    one = place.reader(other, goneNsqds="*")
    with two_that_share(nsqd, place) as tools:
        publish(nsqd, range(50, 100))
        drain(nsqd)
        nsqd.stop()
        assert followed(one, end) == ([], end)
        for tool in tools:
            assert tool.stop() == 0
    read_until_complete(one, end, list(range(50, 100)))


def test_a_running_stream_reads_an_nsqd_that_it_never_saw(make_nsqd: MakeNsqd, place: Place) -> None:
    """It came and went while the stream did not run, or where it is not asked."""
    other, visitor = make_nsqd("--retention-time=1h"), make_nsqd()
    publish(other, range(1000, 1010))
    place.archive(other)
    one = place.reader(other, goneNsqds="*")
    found, end = followed(one, one.initialOffset())
    assert found == list(range(1000, 1010))
    publish(visitor, range(50))
    place.archive(visitor)
    visitor.post(f"/topic/delete?topic={TOPIC}")
    publish(visitor, range(50, 80))
    place.archive(visitor)
    visitor.stop()
    end = read_until_complete(one, end, list(range(80)))
    assert followed(place.reader(other, goneNsqds="*"), end) == ([], end)
