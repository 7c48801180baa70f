"""The data directory of a running nsqd is read as an archive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from tests.support.archives import Message, read_messages, splits_of
from tests.support.nsqd_process import MakeNsqd, NsqdProcess
from tests.support.wire import Client

MAY_READ_BYTES = 100_000


def archived(nsqd: NsqdProcess, target_bytes: int = MAY_READ_BYTES) -> list[Message]:
    return read_messages(splits_of(Path(nsqd.data_path), target_bytes))


def test_what_was_published_is_there_with_its_ids_and_times(make_nsqd: MakeNsqd) -> None:
    """In the log of ours, and in the disk queue of Go's when nothing is kept in memory."""
    nsqd = make_nsqd("--mem-queue-size=0")
    bodies = [b"%d" % number * (number % 50 + 1) for number in range(2000)]
    with nsqd.connect() as client:
        client.pub("orders", *bodies[:5])
        client.mpub("orders", bodies[5:1000])
        client.mpub("orders", bodies[1000:])
        found = archived(nsqd)
        assert [message.body for message in found] == bodies
        assert {message.topic for message in found} == {"orders"}
    with nsqd.connect() as client:
        client.sub("orders", "ch", 2500)
        received = client.consume(len(bodies))
    reported = {(message.known_id, message.body, message.timestamp_ns) for message in found}
    assert reported == {(message.id, message.body, message.timestamp_ns) for message in received}


@pytest.mark.ours
def test_deferred_messages_are_there(nsqd: NsqdProcess) -> None:
    with nsqd.connect() as client:
        client.dpub("orders", 60_000, b"later")
        client.pub("orders", b"now")
    assert [message.body for message in archived(nsqd)] == [b"later", b"now"]
    nsqd.restart(clean=False)
    assert [message.body for message in archived(nsqd)] == [b"later", b"now"]


# Then it publishes more slowly: who reads all of it, again and again, has to come to an end.
MANY, PAUSE_S = 50_000, 0.02


@contextmanager
def published_meanwhile(nsqd: NsqdProcess) -> Iterator[list[bytes]]:
    """Batches of many sizes, as fast as they are taken; the list is of what was acknowledged."""
    acknowledged: list[bytes] = []
    is_over = threading.Event()

    def publish() -> None:
        with Client(nsqd.tcp_port) as client:
            number = 0
            while not is_over.wait(PAUSE_S if number > MANY else 0):
                batch = [b"%08d" % (number + place) + b"x" * (place * 7 % 900) for place in range(number % 90 + 1)]
                client.mpub("orders", batch)
                acknowledged.extend(batch)
                number += len(batch)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()


@pytest.mark.ours
def test_reading_beside_a_writer(make_nsqd: MakeNsqd) -> None:
    """Each time all that was acknowledged before, in order, and nothing that is wrong."""
    nsqd = make_nsqd("--max-bytes-per-file=400000")
    with published_meanwhile(nsqd) as acknowledged:
        for _ in range(12):
            known = len(acknowledged)
            found = [message.body for message in archived(nsqd)]
            assert len(found) >= known
            assert [int(body[:8]) for body in found] == list(range(len(found)))
    assert [message.body for message in archived(nsqd)] == acknowledged


@pytest.mark.ours
def test_reading_files_that_are_dropped_meanwhile(make_nsqd: MakeNsqd) -> None:
    """A consumer is so fast that files go, and are used again, while they are read."""
    nsqd = make_nsqd("--max-bytes-per-file=100000")
    nsqd.create("orders", "ch")
    is_over = threading.Event()

    def consume() -> None:
        with nsqd.connect() as client:
            client.sub("orders", "ch", 2500)
            while not is_over.is_set():
                client.fin(*client.messages(1))
                client.fin(*client.arrived())

    thread = threading.Thread(target=consume)
    with published_meanwhile(nsqd) as acknowledged:
        thread.start()
        for _ in range(12):
            found = [message.body for message in archived(nsqd, 20_000)]
            numbers = [int(body[:8]) for body in found]
            assert numbers == sorted(set(numbers))
            assert all(len(body) == 8 + body.count(b"x", 8) for body in found)
        is_over.set()
        thread.join()
    assert acknowledged
