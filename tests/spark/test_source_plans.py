"""Plans of queries on an archive and logs that once were wrong: too few messages, some twice, or an error without a reason."""

from __future__ import annotations

import json
import logging
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadMaxRows

from nsq_spark.archive import read as archive_read
from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source import archived_files
from nsq_spark.source.live import LiveReader
from nsq_spark.source.live_options import live_options
from nsq_spark.source.nsqds import LostMessages
from tests.support.archived_topic import (
    ALL,
    CHANNEL,
    COLUMNS,
    FILE_BYTES,
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
from tests.support.network import free_ports
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.nsqlookupd_process import MakeNsqlookupd
from tests.support.tool_process import ToolProcess

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

DELTA = ("--format=parquet", "--table=delta")


def copy_some(place: Place, count: int) -> None:
    """Put messages of the only file into another one too, as when nsqd delivered them again."""
    (path,) = place.files()
    lines = path.read_bytes().splitlines(keepends=True)
    (place.directory / f"{TOPIC}.again.jsonl").write_bytes(b"".join(lines[50 : 50 + count]))


# ---- messages that are there twice


def test_a_topic_that_is_gone_lacks_nothing_if_some_are_there_twice(
    make_nsqd: MakeNsqd, place: Place
) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(200))
    place.archive(nsqd)
    copy_some(place, 50)
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    assert place.table(nsqd) == list(range(200))
    one = place.reader(nsqd)
    assert followed(one, one.initialOffset(), 70)[0] == list(range(200))


def test_messages_that_are_there_twice_do_not_hide_the_next_ones(make_nsqd: MakeNsqd, place: Place) -> None:
    """A place was the number of messages up to there, so that of 250 in the archive, 50 twice, was behind what the log keeps."""
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(200))
    place.archive(nsqd)
    copy_some(place, 50)
    with place.archiving(nsqd):
        publish(nsqd, range(200, 280))
    assert 200 < earliest(nsqd) < 250
    one = place.reader(nsqd)
    assert followed(one, one.initialOffset(), 250)[0] == list(range(280))


# ---- holes


def test_a_start_in_a_hole_of_a_moment(make_nsqd: MakeNsqd, place: Place) -> None:
    """What is behind that time is in the file that nsq-to-file has not finished."""
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(200))
    place.archive(nsqd, "--format=framed")
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
        publish(nsqd, range(200, 220))
        time.sleep(0.01)  # ids have units of 1 ms
        start = str(time.time_ns())
        publish(nsqd, range(220, 400))
        wait_until(lambda: is_finished(nsqd), what="everything to be archived")
        wait_until_dropped(nsqd, 300)
    for read in (
        lambda: place.table(nsqd, startingOffsets=start),
        place.reader(nsqd, startingOffsets=start).initialOffset,
    ):
        with pytest.raises(LostMessages, match="start again when nsq-to-file has finished its files"):
            read()
    publish(nsqd, range(400, 410))
    place.archive(nsqd, "--format=framed")  # the next start finishes the file
    assert place.table(nsqd, startingOffsets=start) == list(range(220, 410))


# ---- tables that were rewritten


def test_messages_that_were_dropped_between_two_files_that_are_there(
    make_nsqd: MakeNsqd, place: Place
) -> None:
    """A deferred message keeps the first file; those behind it, which nothing keeps, are archived."""
    nsqd = make_nsqd(f"--max-bytes-per-file={FILE_BYTES}")
    nsqd.create(TOPIC, CHANNEL)
    nsqd.post(f"/pub?topic={TOPIC}&defer=3600000", b"0".ljust(FILE_BYTES - 100))
    publish(nsqd, range(1, 101))
    place.archive(nsqd)
    files = nsqd.http("GET", f"/topic/log?topic={TOPIC}").json()["files"]
    assert (files[0]["end_seq"], files[0]["sparse"]) == (1, False)
    assert files[1]["first_seq"] > 1
    one = place.reader(nsqd)
    found, _ = followed(one, one.initialOffset())
    assert found == list(range(101))
    assert place.table(nsqd) == list(range(101))


def test_a_table_whose_files_were_rewritten(make_nsqd: MakeNsqd, place: Place) -> None:
    """OPTIMIZE leaves the old files and their lines in the manifest. A topic had messages before its archive began."""
    nsqd = make_nsqd(*SMALL_FILES)
    nsqd.create(TOPIC, "other")
    publish(nsqd, range(100))
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=other")
    nsqd.post(f"/channel/delete?topic={TOPIC}&channel=other")
    nsqd.create(TOPIC, "archive")
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=archive")
    for first in 100, 200, 300:
        publish(nsqd, range(first, first + 100))
        place.archive(nsqd, *DELTA)
    wait_until_dropped(nsqd, 300)
    one = place.reader(nsqd)
    start = one.initialOffset()
    found, middle = followed_once(one, start, 130)
    assert found == list(range(100, 230))
    table = DeltaTable(place.directory)
    assert table.optimize.compact()["numFilesRemoved"] == 3
    expected = list(range(100, 400))
    assert place.table(nsqd) == expected
    assert found + followed(place.reader(nsqd), middle, 70)[0] == expected
    again = place.reader(nsqd)
    assert followed(again, again.initialOffset(), 130)[0] == expected
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert place.table(nsqd) == expected


def followed_once(one: object, start: dict[str, object], most: int) -> tuple[list[int], dict[str, object]]:
    end = one.latestOffset(start, ReadMaxRows(most))  # type: ignore[attr-defined]
    return numbers(one, partial(one.partitions, start, end)), json.loads(json.dumps(end))  # type: ignore[attr-defined]


def test_a_hole_behind_files_that_were_rewritten(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    for first in 0, 100:
        publish(nsqd, range(first, first + 100))
        place.archive(nsqd, *DELTA)
    DeltaTable(place.directory).optimize.compact()
    publish(nsqd, range(200, 300))
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=archive")
    publish(nsqd, range(300, 400))
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=archive")
    wait_until_dropped(nsqd, 300)
    with pytest.raises(LostMessages, match=rf"{earliest(nsqd) - 200} messages of topic orders"):
        place.table(nsqd)


# ---- nsqds that are down, gone, or have another address


def test_what_an_nsqd_archived_before_it_was_removed(
    make_nsqd: MakeNsqd, make_nsqlookupd: MakeNsqlookupd, place: Place
) -> None:
    """A stream knows an nsqd by its HTTP address, an archive by that for consumers."""
    lookupd = make_nsqlookupd()
    flags = (
        *SMALL_FILES,
        f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}",
        "--broadcast-address=127.0.0.1",
    )
    first, second = make_nsqd(*flags), make_nsqd(*flags)
    for number, nsqd in enumerate((first, second)):
        publish(nsqd, range(1000 * number, 1000 * number + 20))
        place.archive(nsqd)
    wait_until(lambda: len(lookupd.lookup(TOPIC)) == 2)
    one = place.reader(nsqlookupd=lookupd.http_address)
    found, end = followed(one, one.initialOffset())
    assert found == [*range(20), *range(1000, 1020)]
    publish(second, range(1020, 1100))
    place.archive(second)
    second.stop()
    wait_until(lambda: len(lookupd.lookup(TOPIC)) == 1)
    publish(first, range(20, 30))
    for has_end in False, True:
        rest = place.reader(nsqlookupd=lookupd.http_address, goneNsqds=f"127.0.0.1:{second.tcp_port}")
        if has_end:
            rest.prepareForTriggerAvailableNow()
        assert sorted(followed(rest, end, 30)[0]) == [*range(20, 30), *range(1020, 1100)]


@pytest.mark.parametrize("later_format", ["jsonl", "framed"])
def test_two_nsqds_that_exchange_their_addresses(place: Place, tmp_path: Path, later_format: str) -> None:
    """As pods do. Each address is in the archive for messages of both, with one format in the same file; the epoch says which
    log they are of.
    """
    paths, ports = (tmp_path / "a", tmp_path / "b"), (tuple(free_ports(2)), tuple(free_ports(2)))

    def nsqds(*, exchanged: bool) -> tuple[NsqdProcess, NsqdProcess]:
        first, second = ports[::-1] if exchanged else ports
        return (
            NsqdProcess(paths[0], *SMALL_FILES, "--node-id=1", ports=first),
            NsqdProcess(paths[1], *SMALL_FILES, "--node-id=2", ports=second),
        )

    first, second = nsqds(exchanged=False)
    with first.start(), second.start():
        for number, nsqd in enumerate((first, second)):
            publish(nsqd, range(1000 * number, 1000 * number + 200 + 20 * number))
            place.archive(nsqd)
            wait_until_dropped(nsqd)
        old = place.reader(first, second)
        start = old.initialOffset()
        end = old.latestOffset(start, ReadMaxRows(100))
        found = numbers(old, partial(old.partitions, start, end))
        planned = json.loads(json.dumps(old.latestOffset(end, ALL)))
    first, second = nsqds(exchanged=True)
    with first.start(), second.start():
        for number, nsqd in enumerate((first, second)):
            publish(nsqd, range(2000 + 1000 * number, 2200 + 1000 * number))
            place.archive(nsqd, f"--format={later_format}")
            wait_until_dropped(nsqd, 250)
        assert len(place.files()) == (1 if later_format == "jsonl" else 3)
        expected = [*range(200), *range(1000, 1220), *range(2000, 2200), *range(3000, 3200)]
        assert place.table(first, second) == expected
        one = place.reader(first, second)
        again = numbers(one, partial(one.partitions, end, planned))
        assert sorted(found + again) == [*range(200), *range(1000, 1220)]
        assert sorted(found + followed(one, end, 70)[0]) == expected
        lax = place.reader(first, second, failOnDataLoss="false")
        assert sorted(followed(lax, lax.initialOffset(), 70)[0]) == expected


@pytest.mark.parametrize("has_end", [True, False])
def test_an_nsqd_that_left_its_old_address_with_files_that_no_manifest_describes(
    make_nsqd: MakeNsqd, place: Place, has_end: bool
) -> None:
    """A query then knows no epochs, but the last message that it has read; or else it says that it does not know the nsqd."""
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(200))
    place.archive(nsqd)
    wait_until_dropped(nsqd)
    (place.directory / "_nsq_manifest").unlink()
    old_address = f"127.0.0.1:{free_ports(1)[0]}"

    def moved(offset: dict[str, Any]) -> dict[str, Any]:
        return json.loads(json.dumps(offset).replace(address(nsqd), old_address))

    old = place.reader(nsqd)
    start = old.initialOffset()
    end = old.latestOffset(start, ReadMaxRows(60))
    planned = old.latestOffset(end, ReadMaxRows(60))
    one = place.reader(nsqd)
    assert numbers(one, partial(one.partitions, moved(end), moved(planned))) == list(range(60, 120))
    for offset, first in ((start, 0), (end, 60), (planned, 120)):
        one = place.reader(nsqd)
        if has_end:
            one.prepareForTriggerAvailableNow()
        found, last = followed(one, moved(offset), 70)
        assert found == list(range(first, 200))
        assert list(last["topics"][TOPIC]) == [address(nsqd)]
    unknown = moved(end)
    of_other_node = (
        int(end["topics"][TOPIC][address(nsqd)]["id"], 16) ^ 1 << 12
    )  # the next one may be that of a message
    unknown["topics"][TOPIC][old_address]["id"] = f"{of_other_node:016x}"
    text = f"{address(nsqd)} is that nsqd at another address; .* name {old_address} in the option goneNsqds"
    with pytest.raises(ArchiveError, match=text):
        place.reader(nsqd).latestOffset(unknown, ALL)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_two_nsqds_that_exchange_their_addresses_without_an_archive(tmp_path: Path, fails: str) -> None:
    """A batch that was planned before that, and the next ones, are read at the addresses that the logs have now."""
    paths, ports = (tmp_path / "a", tmp_path / "b"), (tuple(free_ports(2)), tuple(free_ports(2)))
    kept = "--retention-time=1h"

    def reader() -> LiveReader:
        nsqds = ",".join(f"127.0.0.1:{http_port}" for _, http_port in ports)
        given = {"nsqd": nsqds, "topic": TOPIC, "giveUpAfter": "300ms", "failOnDataLoss": fails}
        return LiveReader(live_options(given, 0), COLUMNS)

    first, second = (NsqdProcess(path, kept, ports=own) for path, own in zip(paths, ports, strict=True))
    with first.start(), second.start():
        publish(first, range(100))
        publish(second, range(1000, 1060))
        one = reader()
        start = json.loads(json.dumps(one.initialOffset()))
        end = json.loads(json.dumps(one.latestOffset(start, ReadMaxRows(50))))
        found = numbers(one, partial(one.partitions, start, end))
        planned = json.loads(json.dumps(one.latestOffset(end, ReadMaxRows(30))))
    first, second = (NsqdProcess(path, kept, ports=own) for path, own in zip(paths, ports[::-1], strict=True))
    with first.start(), second.start():
        publish(second, range(1060, 1100))
        one = reader()
        found += numbers(one, partial(one.partitions, end, planned))
        found += followed(one, planned, 40)[0]
        assert sorted(found) == [*range(100), *range(1000, 1100)]


def test_an_nsqd_that_is_down_does_not_stop_a_stream_on_the_other(
    make_nsqd: MakeNsqd, place: Place, tmp_path: Path
) -> None:
    first = make_nsqd(*SMALL_FILES)
    with NsqdProcess(tmp_path / "second", *SMALL_FILES, ports=tuple(free_ports(2))).start() as second:
        for number, nsqd in enumerate((first, second)):
            publish(nsqd, range(1000 * number, 1000 * number + 200))
            place.archive(nsqd)
        found, end = followed(place.reader(first, second), place.reader(first, second).initialOffset())
        publish(second, range(1200, 1210))
        second.stop()
        publish(first, range(200, 400))
        place.archive(first)
        wait_until_dropped(first, 300)
        one = place.reader(first, second)
        more, end = followed(one, end, 70)
        assert more == list(range(200, 400)), "also what is only in the archive"
        second.start()
        rest, _ = followed(one, end, 70)
        assert rest == list(range(1200, 1210))
        assert sorted(found) == [*range(200), *range(1000, 1200)]


def test_an_nsqd_that_gets_the_topic_while_another_one_is_down(
    make_nsqd: MakeNsqd, place: Place, tmp_path: Path
) -> None:
    first = make_nsqd()
    with NsqdProcess(tmp_path / "second", ports=tuple(free_ports(2))).start() as second:
        publish(second, range(10))
        one = place.reader(first, second)
        found, end = followed(one, one.initialOffset())
        second.stop()
        publish(first, range(100, 110))
        assert found + followed(one, end)[0] == [*range(10), *range(100, 110)]


def test_a_batch_whose_file_is_gone_is_an_error(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    publish(nsqd, range(100))
    place.archive(nsqd)
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    one = place.reader(nsqd)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadMaxRows(50))
    (path,) = place.files()
    path.rename(path.with_name("hidden"))
    with pytest.raises(ArchiveError, match="the archive has only a part of its messages of topic orders"):
        numbers(place.reader(nsqd), partial(place.reader(nsqd).partitions, start, end))


# ---- files that are read once


def test_what_is_remembered_of_a_file_is_for_all_topics(
    make_nsqd: MakeNsqd, place: Place, tmp_path: Path
) -> None:
    """The next query with this checkpoint may read another topic."""
    nsqd = make_nsqd(*SMALL_FILES)
    lines = []
    for topic, first in (("orders", 0), ("orders_eu", 1000)):
        publish(nsqd, range(first, first + 200), topic)
        place.archive(nsqd, topic=topic)
    for path in place.files():
        lines.append(path.read_bytes())
        path.unlink()
    (place.directory / "both.jsonl").write_bytes(b"".join(lines))
    wait_until_dropped(nsqd, 100)
    more = {"checkpointLocation": str(tmp_path / "checkpoint")}
    assert place.table(nsqd, **more) == list(range(200))
    assert place.table(nsqd, topicPattern="^orders", **more) == [*range(200), *range(1000, 1200)]
    victim = tmp_path / "victim"
    victim.write_text("mine")
    remembered = tmp_path / "checkpoint.nsq_files"
    remembered.unlink()
    remembered.symlink_to(victim)
    assert place.table(nsqd, **more) == list(range(200))
    assert victim.read_text() == "mine"


def test_small_batches_of_two_nsqds_read_the_ids_of_a_file_once(
    make_nsqd: MakeNsqd, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsqds = [make_nsqd(*SMALL_FILES) for _ in range(2)]
    for number, nsqd in enumerate(nsqds):
        publish(nsqd, range(1000 * number, 1000 * number + 200))
        place.archive(nsqd)
        wait_until_dropped(nsqd, 100)
    reads: list[str] = []
    read = archive_read.read
    monkeypatch.setattr(
        archived_files, "read", lambda split, *more: (reads.append(split.path), read(split, *more))[1]
    )
    one = place.reader(*nsqds)
    found, _ = followed(one, one.initialOffset(), 20)
    assert sorted(found) == [*range(200), *range(1000, 1200)]
    assert len(reads) <= 2, "for each nsqd"


# ---- what is said


def test_a_topic_that_is_created_again_is_a_warning(
    make_nsqd: MakeNsqd, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    nsqd = make_nsqd("--retention-time=1h")
    publish(nsqd, range(10))
    place.archive(nsqd)
    one = place.reader(nsqd)
    found, end = followed(one, one.initialOffset())
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    publish(nsqd, range(10, 20))
    with caplog.at_level(logging.WARNING):
        found += followed(one, end)[0]
        assert one.latestOffset(end, ALL) != end
    assert found == list(range(20))
    assert caplog.text.count(f"topic orders on {address(nsqd)} was deleted and created again") == 1


def test_how_far_behind_a_query_in_an_archive_is(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd(*SMALL_FILES)
    for first in range(0, 200, 50):
        publish(nsqd, range(first, first + 50))
        place.archive(nsqd)
    wait_until_dropped(nsqd, 100)
    one = place.reader(nsqd)
    start, lags = one.initialOffset(), []
    for _ in range(6):
        start = one.latestOffset(start, ReadMaxRows(40))
        lags.append(one.reportLatestOffset()["lag"])
    assert lags == [{TOPIC: {address(nsqd): max(0, 200 - 40 * number)}} for number in range(1, 7)]


def test_a_topic_of_dead_letters_is_refused_at_once(make_nsqd: MakeNsqd, place: Place) -> None:
    nsqd = make_nsqd()
    nsqd.create(f"{TOPIC}.dead", "c")
    publish(nsqd, range(10), f"{TOPIC}.dead")
    began_s = time.monotonic()
    with pytest.raises(ArchiveError, match="takes dead letters"):
        place.table(nsqd, topic=f"{TOPIC}.dead", giveUpAfter="60s")
    assert time.monotonic() - began_s < 30
