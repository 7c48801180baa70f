"""`spark.readStream.format("nsq")` of a live topic: the reader as Spark asks it, and Spark itself."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import bcrypt
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.schema import COLUMNS
from nsq_spark.source.live import LiveBatchReader, LiveReader
from nsq_spark.source.live_options import live_options, stream_of
from nsq_spark.source.nsqds import LostMessages
from nsq_spark.source.options import BadOption
from tests.support.archived_topic import wait_until_dropped
from tests.support.certificates import make_certificates
from tests.support.hostile_answers import answering
from tests.support.ledger import compare
from tests.support.network import free_ports
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.nsqlookupd_process import MakeNsqlookupd
from tests.support.streams import run_query
from tests.support.wire import mpub_body

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

TOPIC = "orders"
ALL = ReadAllAvailable()
PRODUCER = b'{"producers":[{"broadcast_address":"%s","tcp_port":1,"http_port":%s}]}'


def address(nsqd: NsqdProcess) -> str:
    return f"127.0.0.1:{nsqd.http_port}"


def reader(*nsqds: NsqdProcess, **options: str) -> LiveReader:
    given = {"nsqd": ",".join(map(address, nsqds)), "topic": TOPIC, **options}
    return LiveReader(live_options(given, 0), tuple(column.name for column in COLUMNS))


def publish(nsqd: NsqdProcess, numbers: range, batch: int = 10) -> None:
    for first in range(numbers.start, numbers.stop, batch):
        some = [b"%d" % number for number in range(first, min(first + batch, numbers.stop))]
        assert nsqd.post(f"/mpub?topic={TOPIC}&binary=true", mpub_body(some)).body == b"OK"


def rows(one: LiveReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    parts = one.partitions(start, end)
    return [row for part in parts for batch in one.read(part) for row in batch.to_pylist()]


def numbers(one: LiveReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return sorted(int(row["body"]) for row in rows(one, start, end))


def followed(one: LiveReader, start: dict[str, Any], limit: ReadLimit = ALL) -> list[list[int]]:
    """The batches until there is nothing new."""
    found = []
    while (end := one.latestOffset(start, limit)) != start:
        found.append(numbers(one, start, end))
        start = end
    return found


def test_what_a_message_looks_like(nsqd: NsqdProcess) -> None:
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(25))
    one = reader(nsqd)
    start = one.initialOffset()
    found = rows(one, start, one.latestOffset(start, ALL))
    assert [row["position"] for row in found] == list(range(25))
    assert len({row["id"] for row in found}) == 25
    assert {row["nsqd"] for row in found} == {f"127.0.0.1:{nsqd.tcp_port}"}
    with nsqd.connect() as client:
        client.sub(TOPIC, "c", rdy_count=25)
        delivered = client.consume(25)
    assert {(row["id"].encode(), row["timestamp_ns"], row["body"]) for row in found} == {
        (message.id, message.timestamp_ns, message.body) for message in delivered
    }


def test_batches_within_a_limit_go_on_where_the_last_ended(make_nsqd: MakeNsqd) -> None:
    first, second = make_nsqd(), make_nsqd()
    for number, nsqd in enumerate((first, second)):
        nsqd.create(TOPIC, "c")
        publish(nsqd, range(1000 * number, 1000 * number + 35))
    one = reader(first, second)
    batches = followed(one, one.initialOffset(), ReadMaxRows(16))
    assert [len(batch) for batch in batches] == [16, 16, 16, 16, 6]
    assert sorted(sum(batches, [])) == [*range(35), *range(1000, 1035)]
    assert {number // 1000 for number in batches[0]} == {0, 1}


def test_an_interrupted_batch_is_read_again_as_it_was(nsqd: NsqdProcess) -> None:
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(20))
    one = reader(nsqd)
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)
    publish(nsqd, range(20, 40))
    again = reader(nsqd)  # which knows nothing
    assert numbers(again, start, end) == list(range(20))
    assert followed(again, end) == [list(range(20, 40))]


def test_a_start_behind_a_message_that_was_dropped(
    make_nsqd: MakeNsqd, caplog: pytest.LogCaptureFixture
) -> None:
    """It is lost as by number, but nsqd does not know how many messages were behind an id."""
    nsqd = make_nsqd("--max-bytes-per-file=2000")
    nsqd.create(TOPIC, "c")
    since = str(time.time_ns() - 10**9)
    publish(nsqd, range(100))
    one = reader(nsqd)
    middle = one.latestOffset(one.initialOffset(), ReadMaxRows(50))["topics"][TOPIC][address(nsqd)]["id"]
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=c")
    wait_until_dropped(nsqd, 100)
    publish(nsqd, range(100, 120))
    behind_middle = {"startingOffsets": json.dumps({address(nsqd): middle})}
    text = f"up to 100 messages of topic orders on {address(nsqd)}, behind message {middle}"
    with pytest.raises(LostMessages, match=text):
        reader(nsqd, **behind_middle).initialOffset()
    lax = reader(nsqd, **behind_middle, failOnDataLoss="false")
    assert followed(lax, lax.initialOffset()) == [list(range(100, 120))]
    with caplog.at_level(logging.WARNING):
        by_time = reader(nsqd, startingOffsets=since)
        assert followed(by_time, by_time.initialOffset()) == [list(range(100, 120))]
    assert "begins later than the topic: it does not have the first 100 messages" in caplog.text
    last = lax.latestOffset(lax.initialOffset(), ALL)["topics"][TOPIC][address(nsqd)]["id"]
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=c")
    wait_until_dropped(nsqd, 120)
    behind_all = reader(nsqd, startingOffsets=json.dumps({address(nsqd): last}))
    assert followed(behind_all, behind_all.initialOffset()) == []


def test_messages_that_were_dropped_between_two_files_that_are_there(make_nsqd: MakeNsqd) -> None:
    """Deferred messages keep the first file, and nothing keeps those behind it."""
    nsqd = make_nsqd("--max-bytes-per-file=2000")
    nsqd.create(TOPIC, "c")
    nsqd.post(f"/pub?topic={TOPIC}&defer=3600000", b"0".ljust(1900))
    publish(nsqd, range(1, 1001))
    one = reader(nsqd)
    start = one.initialOffset()
    deferred = one.latestOffset(start, ReadMaxRows(1))
    everything = one.latestOffset(start, ALL)
    nsqd.consume(TOPIC, "c", 1000)

    def files() -> list[dict[str, Any]]:
        return list(nsqd.http("GET", f"/topic/log?topic={TOPIC}").json()["files"])

    wait_until(lambda: len(files()) == 2, what="nsqd to drop what is finished")
    left = files()[1]["first_seq"]
    text = rf"{left - 1} messages of topic orders on {address(nsqd)}, "
    with pytest.raises(LostMessages, match=f"{text}from number 1 on, were dropped"):
        rows(one, start, everything)
    lax = reader(nsqd, failOnDataLoss="false")
    assert numbers(lax, start, everything) == [0, *range(left, 1001)]
    message_id = deferred["topics"][TOPIC][address(nsqd)]["id"]
    with pytest.raises(LostMessages, match=f"nsq: {text}behind message {message_id}, were dropped"):
        reader(nsqd, startingOffsets=json.dumps({address(nsqd): message_id})).initialOffset()


def test_a_checkpoint_of_a_query_that_had_an_archive(make_nsqd: MakeNsqd) -> None:
    """There, the number of messages up to a position may not be known."""
    nsqd = make_nsqd("--max-bytes-per-file=2000")
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(100))
    one = reader(nsqd)
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(50))
    end["topics"][TOPIC][address(nsqd)]["count"] = None
    assert followed(reader(nsqd), end, ReadMaxRows(20)) == [
        list(range(first, min(100, first + 20))) for first in (50, 70, 90)
    ]
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=c")
    wait_until_dropped(nsqd, 100)
    with pytest.raises(LostMessages, match="up to 100 messages of topic orders"):
        reader(nsqd).latestOffset(end, ALL)


def test_an_nsqd_that_has_another_name_later(nsqd: NsqdProcess) -> None:
    """And the first one again. The epoch in the checkpoint says that it is the same log."""
    names = address(nsqd), f"localhost:{nsqd.http_port}"
    publish(nsqd, range(30))
    one = reader(nsqd)
    start = one.initialOffset()
    for turn in range(4):
        one = reader(nsqd, nsqd=names[turn % 2])
        if turn == 3:
            one.prepareForTriggerAvailableNow()
        end = one.latestOffset(start, ALL)
        assert numbers(one, start, end) == list(range(30 * turn, 30 * turn + 30))
        start = json.loads(json.dumps(end))
        publish(nsqd, range(30 * turn + 30, 30 * turn + 60))
    both = reader(nsqd, nsqd=",".join(names))
    assert followed(both, start) == [list(range(120, 150))]


def test_an_nsqd_that_left_its_old_address(make_nsqd: MakeNsqd) -> None:
    """The position is there in the checkpoint, so a query up to now does not wait for that address."""
    nsqd = make_nsqd()
    publish(nsqd, range(10))
    one = reader(nsqd)
    end = one.latestOffset(one.initialOffset(), ALL)
    document = json.dumps(end).replace(address(nsqd), f"127.0.0.1:{free_ports(1)[0]}")
    publish(nsqd, range(10, 20))
    again = reader(nsqd, giveUpAfter="300ms")
    again.prepareForTriggerAvailableNow()
    assert followed(again, json.loads(document)) == [list(range(10, 20))]


def test_an_nsqd_with_two_names(
    make_nsqd: MakeNsqd, make_nsqlookupd: MakeNsqlookupd, caplog: pytest.LogCaptureFixture
) -> None:
    """Of its own addresses, and one that nsqlookupd has."""
    lookupd = make_nsqlookupd()
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}", "--broadcast-address=localhost")
    publish(nsqd, range(30))
    wait_until(lambda: len(lookupd.lookup(TOPIC)) == 1)
    for names in (
        {"nsqd": f"{address(nsqd)},localhost:{nsqd.http_port}"},
        {"nsqlookupd": lookupd.http_address},
    ):
        one = reader(nsqd, **names)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = followed(one, one.initialOffset())
        assert found == [list(range(30))]
        assert caplog.text.count("are the same nsqd: it is read once") == 1


def test_a_copy_of_an_nsqd_is_refused(make_nsqd: MakeNsqd, tmp_path: Path) -> None:
    """Both have the same log, and then each its own messages."""
    publish(first := make_nsqd(), range(10))
    reader(first).initialOffset()  # now a restart keeps the epoch
    first.stop()
    shutil.copytree(first.data_path, tmp_path / "copy", ignore=shutil.ignore_patterns("*.lock", "*.sock"))
    first.start()
    with NsqdProcess(tmp_path / "copy", ports=tuple(free_ports(2))).start() as second:
        one = reader(first, second, giveUpAfter="300ms")
        with pytest.raises(ArchiveError, match="one of these nsqds has a copy of the other one's data path"):
            one.initialOffset()


def test_an_nsqd_that_has_the_topic_later_joins(make_nsqd: MakeNsqd) -> None:
    first, second = make_nsqd(), make_nsqd()
    first.create(TOPIC, "c")
    one = reader(first, second, startingOffsets="latest")
    publish(first, range(10))
    start = one.initialOffset()
    second.create(TOPIC, "c")
    publish(second, range(100, 110))
    publish(first, range(10, 20))
    assert followed(one, start) == [[*range(10, 20), *range(100, 110)]]


def test_all_that_is_there_now(nsqd: NsqdProcess) -> None:
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(10))
    one = reader(nsqd)
    start = one.initialOffset()
    one.prepareForTriggerAvailableNow()
    publish(nsqd, range(10, 20))
    assert followed(one, start, ReadMaxRows(7)) == [list(range(7)), list(range(7, 10))]


def test_from_a_time_on(nsqd: NsqdProcess) -> None:
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(300), batch=7)
    whole = reader(nsqd)
    found = rows(whole, whole.initialOffset(), whole.latestOffset(whole.initialOffset(), ALL))
    for row in found[::50]:
        since_us = row["timestamp_ns"] // 1000
        text = datetime.fromtimestamp(since_us / 1e6, UTC).isoformat()
        one = reader(nsqd, startingOffsets=text)
        expected = next(other["position"] for other in found if other["timestamp_ns"] >= since_us * 1000)
        assert one.initialOffset()["topics"][TOPIC][address(nsqd)]["count"] == expected


def test_what_was_dropped_before_it_was_read(nsqd: NsqdProcess) -> None:
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(30))
    strict, lax = reader(nsqd), reader(nsqd, failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    with pytest.raises(
        LostMessages, match=r"30 messages of topic orders on .*, from number 0 on, were dropped"
    ):
        rows(strict, start, end)
    assert rows(lax, start, end) == []
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(40, 50))
    with pytest.raises(LostMessages):
        strict.latestOffset(end, ALL)
    assert followed(lax, end) == [list(range(40, 50))]


def test_a_topic_that_was_created_again_is_another_one(nsqd: NsqdProcess) -> None:
    """Also if it has more messages than were read of the earlier one."""
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(10))
    strict, lax = reader(nsqd), reader(nsqd, failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    nsqd.post(f"/topic/delete?topic={TOPIC}")
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(100, 125))
    for read_on in (lambda: strict.latestOffset(end, ALL), lambda: rows(strict, start, end)):
        with pytest.raises(
            LostMessages, match=rf"topic {TOPIC} on {address(nsqd)} was deleted and created again"
        ):
            read_on()
    assert rows(lax, start, end) == []
    assert followed(lax, end) == [list(range(100, 125))]


def test_an_end_and_a_beginning_need_every_nsqd(make_nsqd: MakeNsqd) -> None:
    """What an nsqd that is down has would else be left out, or read later although it is old."""
    first, second = make_nsqd(), make_nsqd()
    for nsqd in (first, second):
        nsqd.create(TOPIC, "c")
        publish(nsqd, range(10))
    one = reader(first, second, giveUpAfter="200ms")
    start = one.initialOffset()
    second.kill()
    with pytest.raises(ArchiveError, match=address(second)):
        one.prepareForTriggerAvailableNow()
    for where in "earliest", "latest":
        with pytest.raises(ArchiveError, match=address(second)):
            reader(first, second, startingOffsets=where, giveUpAfter="200ms").initialOffset()
    assert followed(one, start) == [list(range(10))]  # a stream without an end leaves it to the next batch
    again = reader(first, giveUpAfter="200ms")
    again.prepareForTriggerAvailableNow()
    with pytest.raises(ArchiveError, match=address(second)):  # which the checkpoint knows
        again.latestOffset(start, ALL)


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_that_do_not_fit_the_logs_are_an_error(nsqd: NsqdProcess, option: str) -> None:
    nsqd.create(TOPIC, "c")
    no_nsqd = f"nowhere:1 is no nsqd of topic {TOPIC}; there are {address(nsqd)}"
    cases = [({address(nsqd): 0, "nowhere:1": 3}, no_nsqd), ({address(nsqd): 7}, "up to 0, not 7")]
    for offsets, text in [*cases, ({}, f"no number for topic {TOPIC}")][: 2 + (option == "endingOffsets")]:
        given = {"nsqd": address(nsqd), "topic": TOPIC, option: json.dumps({TOPIC: offsets})}
        with pytest.raises(ArchiveError, match=f"option {option}: .*{text}"):
            LiveBatchReader(live_options(given, 0), ("body",)).partitions()
        if option == "startingOffsets":
            with pytest.raises(ArchiveError, match=text):
                reader(nsqd, **given).initialOffset()


def test_an_nsqd_that_comes_back_is_waited_for(tmp_path: Path) -> None:
    """The driver asks again too: a query ended when its only nsqd was started again."""
    tcp_port, http_port = free_ports(2)
    with NsqdProcess(tmp_path / "returns", ports=(tcp_port, http_port)).start() as nsqd:
        nsqd.create(TOPIC, "c")
        publish(nsqd, range(10))
        one = reader(nsqd, giveUpAfter="60s")
        start = one.initialOffset()
        nsqd.stop()
        back = threading.Timer(0.5, nsqd.start)
        back.start()
        end = one.latestOffset(start, ALL)
        back.join()
        assert numbers(one, start, end) == list(range(10))


def test_how_far_behind_a_query_is(nsqd: NsqdProcess) -> None:
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(30))
    one = reader(nsqd)
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(10))
    (place,) = end["topics"][TOPIC].values()
    headers = nsqd.http("GET", f"/topic/read?topic={TOPIC}&seq=10").headers
    assert place == {"id": headers["X-Nsq-Before-Id"], "count": 10, "epoch": int(headers["X-Nsq-Epoch"])}
    latest = {TOPIC: {address(nsqd): {"id": headers["X-Nsq-End-Id"], "count": 30, "epoch": place["epoch"]}}}
    assert one.reportLatestOffset() == {"version": 4, "topics": latest, "lag": {TOPIC: {address(nsqd): 20}}}


def test_a_topic_of_dead_letters(nsqd: NsqdProcess) -> None:
    """Its ids do not rise, so it is read by the numbers of its log, and not together with an archive."""
    nsqd.create(f"{TOPIC}.dead", "c")
    for number in range(10):
        nsqd.post(f"/pub?topic={TOPIC}.dead", b"%d" % number)
    one = reader(nsqd, topic=f"{TOPIC}.dead")
    start = one.initialOffset()
    assert start["topics"][f"{TOPIC}.dead"][address(nsqd)]["id"] is None
    assert followed(one, start, ReadMaxRows(4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with pytest.raises(ArchiveError, match="takes dead letters"):
        reader(nsqd, topic=f"{TOPIC}.dead", path="/tmp", giveUpAfter="100ms").initialOffset()


@pytest.mark.parametrize("place", ["nsqd", "lookupd"])
@pytest.mark.parametrize("required", ["true", "tcp-https"])
def test_a_secured_nsqd(
    make_nsqd: MakeNsqd, make_nsqlookupd: MakeNsqlookupd, tmp_path: Path, place: str, required: str
) -> None:
    """By the names that the sink has for its connections, also if nsqlookupd, which has TLS too, names it by its HTTP port."""
    certificates = make_certificates(tmp_path / "certificates")
    logins = tmp_path / "logins"
    tokens = [
        f"token:reader:{hashlib.sha256(b'secret').hexdigest()}",
        "reader:" + bcrypt.hashpw(b"pass:word", bcrypt.gensalt(4)).decode(),
    ]
    logins.write_text("".join(f"{line}\n" for line in tokens))
    logins.chmod(0o600)
    lookupd = make_nsqlookupd(*certificates.server_flags)
    nsqd = make_nsqd(
        *certificates.nsqd_flags,
        f"--tls-required={required}",
        f"--tls-root-ca-file={certificates.authority}",
        "--tls-client-auth-policy=require-verify",
        f"--http-auth-file={logins}",
        f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}",
        "--lookupd-tls",
        f"--lookupd-tls-root-ca-file={certificates.authority}",
        "--broadcast-address=127.0.0.1",
    )
    (port,) = re.findall(r"HTTPS: listening on 127\.0\.0\.1:(\d+)", nsqd.log_text())
    context = certificates.client_context(with_certificate=True)
    with urlopen(f"https://127.0.0.1:{port}/pub?topic={TOPIC}", b"1", context=context) as answer:
        assert answer.read() == b"OK"
    given = {
        "topic": TOPIC,
        "giveUpAfter": "100ms",
        place: f"https://127.0.0.1:{port if place == 'nsqd' else lookupd.http_port}",
    }
    trusted = {
        "nsq.tls_root_ca_file": str(certificates.authority),
        "nsq.tls_cert": str(certificates.client_certificate),
        "nsq.tls_key": str(certificates.client_key),
    }
    wrong = {**trusted, "nsq.auth_secret": "wrong"}
    for options, text in (({}, "certificate verify failed"), (wrong, "answers 401")):
        with pytest.raises(ArchiveError, match=text):
            LiveBatchReader(live_options({**given, **options}, 0), ("body",)).partitions()
    login = {place: given[place].replace("https://", "https://reader:pass%3Aword@")}
    for credentials in ({"nsq.auth_secret": "secret"}, login):
        one = LiveBatchReader(live_options({**given, **trusted, **credentials}, 0), ("body", "nsqd", "file"))
        (row,) = [row for part in one.partitions() for batch in one.read(part) for row in batch.to_pylist()]
        assert row["body"] == b"1"
        assert row["nsqd"] == f"127.0.0.1:{nsqd.tcp_port}"
        asked = f"https://127.0.0.1:{port}" if place == "nsqd" else f"http://{address(nsqd)}"
        assert row["file"] == f"{asked}/topic/read?topic={TOPIC}"


# ---- as a table


def table(*nsqds: NsqdProcess, **options: str) -> list[int]:
    given = {"nsqd": ",".join(map(address, nsqds)), "topic": TOPIC, **options}
    one = LiveBatchReader(live_options(given, 0), ("body",))
    parts = one.partitions()
    assert len(parts) >= int(options.get("minPartitions", 0))
    return sorted(
        int(body) for part in parts for batch in one.read(part) for body in batch.column(0).to_pylist()
    )


def test_a_table_of_what_is_kept(make_nsqd: MakeNsqd, tmp_path: Path) -> None:
    first, second = make_nsqd(), make_nsqd()
    for number, nsqd in enumerate((first, second)):
        nsqd.create(TOPIC, "c")
        publish(nsqd, range(100 * number, 100 * number + 30))
    everything = [*range(30), *range(100, 130)]
    assert table(first, second) == everything
    assert (
        table(first, second, startingOffsets="earliest", endingOffsets="latest", minPartitions="7")
        == everything
    )
    assert table(first, second, startingOffsets="latest") == []
    offsets = {address(first): 10, address(second): -1}
    assert table(first, second, startingOffsets=json.dumps(offsets)) == list(range(10, 30))
    assert table(first, second, endingOffsets=json.dumps(offsets)) == [*range(10), *range(100, 130)]
    assert table(first, startingOffsets="latest") == []
    archive = tmp_path / "empty"
    archive.mkdir()
    assert table(first, path=str(archive)) == list(range(30))
    for more in {}, {"path": str(archive)}:
        with pytest.raises(
            ArchiveError,
            match=f"there is no topic typo in {address(first)}{''.join(f', {one}' for one in more.values())}$",
        ):
            table(first, topic="typo", **more)


def test_a_table_of_what_is_not_kept_any_more(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd("--max-bytes-per-file=2000")
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(200))
    nsqd.post(f"/channel/empty?topic={TOPIC}&channel=c")

    def earliest() -> int:
        return int(nsqd.http("GET", f"/topic/log?topic={TOPIC}").json()["earliest_seq"])

    wait_until(lambda: earliest() > 100, what="nsqd to drop what is finished")
    publish(nsqd, range(200, 220))
    first = earliest()
    assert table(nsqd) == list(range(first, 220))
    wanted = json.dumps({address(nsqd): 5})
    with pytest.raises(
        LostMessages, match=f"{first - 5} messages of topic orders on .*, from number 5 on, were dropped"
    ):
        table(nsqd, startingOffsets=wanted)
    assert table(nsqd, startingOffsets=wanted, failOnDataLoss="false") == list(range(first, 220))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "{"}, "option startingOffsets .*: expected JSON"),
        ({"endingOffsets": '{"a:1":-3}'}, "option endingOffsets .*: expected sequence numbers, -2"),
        ({"startingPosition": "latest"}, "there is no option startingposition; is it startingOffsets"),
    ],
)
def test_options_that_are_none(options: dict[str, str], text: str) -> None:
    with pytest.raises(BadOption, match=text):
        live_options({"nsqd": "127.0.0.1:4151", "topic": TOPIC, **options}, 0)
    with pytest.raises(BadOption, match="a stream has no end"):
        stream_of({"nsqd": "127.0.0.1:4151", "topic": TOPIC, "endingOffsets": "latest"}, 0)


def test_nsqds_that_nsqlookupd_names(make_nsqd: MakeNsqd, make_nsqlookupd: MakeNsqlookupd) -> None:
    lookupd = make_nsqlookupd()
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}", "--broadcast-address=127.0.0.1")
    nsqd.create(TOPIC, "c")
    wait_until(lambda: lookupd.lookup(TOPIC))
    publish(nsqd, range(10))
    options = {"lookupd": lookupd.http_address, "topic": TOPIC}
    one = LiveReader(live_options(options, 0), ("body",))
    assert followed(one, one.initialOffset()) == [list(range(10))]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"[" * 100_000, "gives no JSON"),
        (PRODUCER % (b"h", b'"x"'), "Port could not be cast"),
        (PRODUCER % (b"h" * 64, b"1"), "label"),
        (b'{"producers":[%s]}' % b",".join([b"0"] * 2001), "2001 nsqds"),
        (b" " * 1000, "no answer within 2s"),
    ],
    ids=["deep", "port", "host", "many", "slow"],
)
def test_an_nsqlookupd_that_names_no_nsqds(answer: bytes, text: str) -> None:
    is_slow = "2s" in text
    with answering(answer, pause_s=0.1 if is_slow else 0) as lookupd:
        options = live_options({"lookupd": lookupd, "topic": TOPIC, "giveUpAfter": "1s"}, 0)
        one = LiveReader(
            replace(options, access=replace(options.access, answer_s=2 if is_slow else 60)), ("body",)
        )
        with pytest.raises(ArchiveError, match=text):
            one.initialOffset()


def test_a_query_goes_on_from_its_checkpoint(spark: Any, nsqd: NsqdProcess, tmp_path: Path) -> None:
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(50))
    batches: dict[int, list[int]] = {}

    def run(crash_in: int | None = None) -> None:
        options = {"nsqd": address(nsqd), "topic": TOPIC, "maxMessagesPerTrigger": "20"}
        stream = spark.readStream.format("nsq").options(**options).load()
        run_query(
            stream.selectExpr("CAST(CAST(body AS STRING) AS INT)"), tmp_path / "checkpoint", batches, crash_in
        )

    run(crash_in=1)
    publish(nsqd, range(50, 60))
    run()
    assert sorted(batches[1]) == list(range(20, 40))
    compare(map(b"%d".__mod__, range(60)), map(b"%d".__mod__, sum(batches.values(), []))).require_sound()


def test_a_topic_is_a_table_in_sql_without_registration(spark: Any, nsqd: NsqdProcess) -> None:
    nsqd.create(TOPIC, "c")
    publish(nsqd, range(25))
    session = spark.newSession()
    session.sql(f"CREATE TEMPORARY VIEW orders USING nsq OPTIONS (nsqd '{address(nsqd)}', topic '{TOPIC}')")
    rows = session.sql(
        "SELECT CAST(CAST(body AS STRING) AS INT) AS n FROM orders WHERE position >= 5"
    ).collect()
    assert sorted(row.n for row in rows) == list(range(5, 25))
    frame = (
        session.read.format("nsq")
        .options(nsqd=address(nsqd), subscribe=TOPIC, endingOffsets="earliest")
        .load()
    )
    assert frame.count() == 0
    some = (
        session.read.format("nsq")
        .options(nsqd=address(nsqd), topic=TOPIC)
        .schema("position BIGINT, topic STRING")
        .load()
    )
    assert some.columns == ["position", "topic"]
    assert sorted(some.collect()) == [(number, TOPIC) for number in range(25)]
