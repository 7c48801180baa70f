"""What a task of `df.write.format("nsq")` does with its rows, into a real nsqd. No Spark is started for that."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from nsq_spark.source.data_source import NsqDataSource
from nsq_spark.source.writer import BadRow, Published, PublishGaveUp, total
from tests.support.background import Background
from tests.support.ledger import compare
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import bodies

Rows = dict[str, list[Any]]
KINDS = {"body": BinaryType, "topic": StringType, "defer_ms": LongType, "note": StringType}


def write(batches: Iterator[Rows] | list[Rows], columns: str, **options: object) -> Published:
    """As a task does, with the columns of the first batch."""
    schema = StructType()
    for name in columns.split():
        schema = schema.add(name, KINDS[name]())
    given = {name.lower().replace("__", "."): str(value) for name, value in options.items()}
    writer = NsqDataSource(given).writer(schema, False)
    made = (pa.RecordBatch.from_pydict({name: batch[name] for name in columns.split()}) for batch in batches)
    done = writer.write(made)
    assert isinstance(done, Published)
    return done


@pytest.fixture
def nsqd(nsqd_without_topics) -> NsqdProcess:
    return nsqd_without_topics


def address(nsqd: NsqdProcess) -> str:
    return f"127.0.0.1:{nsqd.tcp_port}"


def consumed(nsqd: NsqdProcess, topic: str, count: int) -> list[bytes]:
    return bodies(nsqd.consume(topic, "c", count))


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(start, start + count)]


def test_all_rows_are_published_in_order(nsqd):
    nsqd.create("orders", "c")
    batches = [{"body": numbered(1000)}, {"body": []}, {"body": numbered(500, 1000)}]
    done = write(batches, "body", nsqdTcpAddress=address(nsqd), topic="orders", batchBytes=1000)
    assert (done.messages, done.size_bytes, done.topics) == (1500, 9000, {"orders": 1500})
    assert done.possible_duplicates == 0
    assert consumed(nsqd, "orders", 1500) == numbered(1500)


def test_a_column_says_the_topic(nsqd):
    for topic in ("a", "b"):
        nsqd.create(topic, "c")
    rows = {"note": list("xxxx"), "topic": ["a", "b", "a", "b"], "body": ["1", "2", "3", "4"]}
    assert write([rows], "note topic body", nsqdTcpAddress=address(nsqd)).topics == {"a": 2, "b": 2}
    assert [consumed(nsqd, "a", 2), consumed(nsqd, "b", 2)] == [[b"1", b"3"], [b"2", b"4"]]


def test_the_option_goes_before_the_column(nsqd):
    rows = {"topic": ["a", "b"], "body": [b"1", b"2"]}
    assert write([rows], "topic body", nsqdTcpAddress=address(nsqd), topic="all").topics == {"all": 2}


def test_a_column_defers(nsqd):
    nsqd.create("orders", "c")
    rows = {"body": [b"later", b"now", b"soon", b"too"], "defer_ms": [3_600_000, 0, 1, None]}
    done = write([rows], "body defer_ms", nsqdTcpAddress=address(nsqd), topic="orders")
    assert done.messages == 4
    assert sorted(consumed(nsqd, "orders", 3)) == [b"now", b"soon", b"too"]
    nsqd.wait_for_channel("orders", "c", deferred_count=1)


def test_nsqlookupd_names_the_nsqds(make_nsqlookupd, make_nsqd):
    lookupd = make_nsqlookupd()
    nsqds = [make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}") for _ in range(2)]
    wait_until(lambda: len(lookupd.nodes()) == 2)
    batches = [{"body": numbered(100)} for _ in range(200)]
    options = {"lookupdHttpAddress": lookupd.http_address, "topic": "orders", "batchBytes": 100}
    for rounds in range(1, 11):  # all of one may be with the first nsqd before the second is connected
        assert write(batches, "body", **options).messages == 20_000
        counts = [stats["message_count"] for nsqd in nsqds if (stats := nsqd.topic_stats("orders"))]
        assert sum(counts) == rounds * 20_000
        if len(counts) == 2:
            return
    raise AssertionError("one nsqd got everything, ten times")


def test_tls_snappy_and_auth_by_the_names_of_go_nsq(secured_nsqd, certificates):
    options = {
        "nsq__tls_v1": "true",
        "nsq__tls_root_ca_file": certificates.authority,
        "nsq__snappy": "true",
        "nsqdTcpAddress": address(secured_nsqd),
    }
    rows = [{"body": numbered(10)}]
    assert write(rows, "body", topic="mine", nsq__auth_secret="secret", **options).messages == 10
    with pytest.raises(PublishGaveUp, match=rf"{address(secured_nsqd)}: E_UNAUTHORIZED"):
        write(rows, "body", topic="yours", nsq__auth_secret="secret", **options)
    with pytest.raises(PublishGaveUp, match=rf"not published: .*{address(secured_nsqd)}"):
        write(rows, "body", topic="mine", **options)


# ---- nsqd is away


def test_an_nsqd_that_dies_in_the_handshake_is_waited_for(make_nsqd):
    nsqd = make_nsqd(f"--tcp-address=127.0.0.1:{free_ports(1)[0]}")
    nsqd.create("orders", "c")
    nsqd.stop()
    with socket.create_server(("127.0.0.1", nsqd.tcp_port)) as dying:

        def die():
            dying.accept()[0].close()  # what it has received and not read makes this a reset
            dying.close()
            nsqd.launch()

        with Background(die):
            done = write([{"body": numbered(100)}], "body", nsqdTcpAddress=address(nsqd), topic="orders")
    assert done.messages == 100


def test_an_nsqd_that_is_away_is_waited_for(make_nsqd):
    """Also one that was not there at the beginning."""
    nsqd = make_nsqd(f"--tcp-address=127.0.0.1:{free_ports(1)[0]}")
    nsqd.create("orders", "c")
    nsqd.stop()
    threads = [threading.Timer(0.3, nsqd.launch)]
    threads[0].start()

    def batches():
        for number in range(40):
            if number == 20:
                threads[0].join()
                nsqd.wait_until_it_listens()
                nsqd.kill()
                threads.append(threading.Timer(0.3, nsqd.launch))
                threads[1].start()
            yield {"body": numbered(100, number * 100)}

    done = write(batches(), "body", nsqdTcpAddress=address(nsqd), topic="orders")
    nsqd.wait_until_it_listens()
    assert done.messages == 4000
    stats = nsqd.wait_for_channel("orders", "c")
    assert stats["depth"] <= 4000 + done.possible_duplicates
    compare(numbered(4000), consumed(nsqd, "orders", stats["depth"]), at_least_once=True).require_sound()


def test_one_gives_up_and_says_where():
    with pytest.raises(PublishGaveUp, match=r"not published in 0.5s: .*127\.0\.0\.1:1.*refused"):
        write(
            [{"body": numbered(10)}],
            "body",
            nsqdTcpAddress="127.0.0.1:1",
            topic="orders",
            giveUpAfter="500ms",
        )


# ---- rows and options that nobody can publish


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"topic": ["a", "b"], "body": [b"x", None]}, "column body is null"),
        ({"topic": ["a", "b"], "body": [b"x", b""]}, "column body is empty"),
        ({"topic": ["a", None], "body": [b"x", b"y"]}, "column topic is null"),
        ({"topic": ["a", "b"], "body": [b"x", b"y"], "defer_ms": [0, -1]}, "column defer_ms is less than 0"),
    ],
)
def test_rows_that_are_no_messages(nsqd, rows, text):
    with pytest.raises(BadRow, match=text):
        write([rows], " ".join(rows), nsqdTcpAddress=address(nsqd))
    assert nsqd.topic_stats("a") is None


@pytest.mark.parametrize(
    ("topic", "body", "text"),
    [("no/topic", b"x", "no/topic"), ("orders", b"x" * 2_000_000, "E_BAD_(MESSAGE|BODY)")],
    ids=["topic", "body"],
)
def test_what_no_nsqd_takes_is_not_tried_again(nsqd, topic, body, text):
    with pytest.raises(PublishGaveUp, match=f"not published: .*{text}"):
        write([{"topic": [topic], "body": [body]}], "topic body", nsqdTcpAddress=address(nsqd))


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("body", {"topic": "t"}, "option nsqdTcpAddress or lookupdHttpAddress is needed"),
        ("body", {"topic": "t", "nsqdTcpAddress": "nowhere"}, 'option nsqdTcpAddress: "nowhere"'),
        ("body", {"topic": "t", "lookupdHttpAddress": "nowhere"}, "option lookupdHttpAddress: nowhere"),
        ("body", {"topic": "not/one", "nsqdTcpAddress": "h:1"}, "option topic: 'not/one'"),
        ("body", {"nsqdTcpAddress": "h:1"}, "option topic is needed, or a column topic"),
        ("topic", {"nsqdTcpAddress": "h:1"}, "no column body among topic"),
        (
            "body",
            {"nsqdTcpAddress": "h:1", "nsq__tls": "1"},
            'option nsq.tls: there is no client option "tls"',
        ),
        ("body", {"topic": "t", "nsqdTcpAddres": "h:1"}, "no option nsqdtcpaddres; is it nsqdTcpAddress?"),
    ],
)
def test_options_that_cannot_be(columns, options, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        write([], columns, **options)


def test_counts_of_all_tasks():
    tasks = [Published(3, 30, 1, {"a": 1, "b": 2}), None, Published(1, 10, 0, {"b": 1})]
    assert total(tasks) == Published(4, 40, 1, {"a": 1, "b": 3})
