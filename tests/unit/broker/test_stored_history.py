"""Channels, seeks and readers of a topic go on in the store where the disk ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import orjson
import pytest

from nsqd_py.api import log_handlers
from nsqd_py.broker.disk.stored_reader import _FIRST_RETRY_NS
from nsqd_py.broker.seek import EARLIEST, seek_channel
from nsqd_py.diskqueue.records import batches_in
from nsqd_py.settings.kinds import ByTopic
from tests.support.stored_logs import AWAY, LOST, MemoryStore
from tests.unit.fakes import (
    SECOND,
    FakeConsumer,
    GatedPool,
    World,
    close_descriptors,
    messages_of,
    start_broker,
)

TOPIC = "orders"
COUNT = 60
FILE_BYTES = 1_000
BODIES = [b"%03d" % number * 20 for number in range(COUNT)]


class Node:
    """A broker with a store. The channel `done` of its topic has finished BODIES; only the last file is still on the disk."""

    def __init__(self, directory: Path, store: MemoryStore, **options: Any) -> None:
        self.directory = directory
        self.store = store
        self.options = {"max_bytes_per_file": FILE_BYTES, "mem_queue_size": 1, **options}
        self.start()
        self.broker.get_channel(self.topic, "done")
        consumer = self.consumer("done")
        self.times_ns = []
        for body in BODIES:
            self.world.clock.now_ns += SECOND
            self.times_ns.append(self.world.clock.now_ns)
            self.world.publish(self.topic, body)
            consumer.finish(*consumer.take())
        self.world.pass_time(SECOND)
        consumer.leave()
        assert self.topic.log.first_seq == 0
        store.put_all(directory)
        self.broker.housekeeper.clean_up(self.topic)
        assert len(self.topic.log.files) == 1

    def start(self, store: MemoryStore | None = None) -> None:
        """As after a kill."""
        now_ns = self.world.clock.now_ns if hasattr(self, "world") else None
        self.world = World()
        if now_ns is not None:
            self.world.clock.now_ns = now_ns
        self.broker = start_broker(
            self.world, self.directory, is_same_boot=True, store=store or self.store, **self.options
        )
        self.topic: Any = self.broker.get_topic(TOPIC)

    def consumer(self, channel: str, rdy: int = 1000) -> FakeConsumer:
        return FakeConsumer(self.world, rdy=rdy, msg_timeout_ns=3600 * SECOND).subscribe(
            self.topic.channels[channel]
        )

    def settle(self, ns: int = 10 * SECOND) -> None:
        """Let greenlets, alarms and deliveries do what there is to do."""
        for _ in range(100):
            self.world.pass_time(ns // 100)
            self.world.run()
            gevent.sleep(0)

    def seek(self, channel: str, target: str | int) -> Any:
        return seek_channel(self.broker, self.topic, channel, target)

    def request(self, **params: str) -> Any:
        return SimpleNamespace(app=self.broker, params={"topic": TOPIC, "channel": "c", **params})


@pytest.fixture
def node(directory: Path) -> Iterator[Node]:
    node = Node(directory, MemoryStore())
    yield node
    close_descriptors(directory)


def test_a_channel_reads_the_whole_log_once_and_in_order(node: Node) -> None:
    result = node.seek("c", EARLIEST)
    assert (result.seq, result.timestamp_ns, result.skipped) == (0, node.times_ns[0], 0)
    assert node.topic.channels["c"].depth == COUNT
    consumer = node.consumer("c")
    node.settle()
    node.world.publish(node.topic, b"new")
    node.settle()
    received = consumer.take()
    assert [message.body for message in received] == [*BODIES, b"new"]
    assert {message.attempts for message in received} == {1}
    assert node.topic.channels["c"].lost_count == 0


def test_a_channel_begins_at_a_time(node: Node) -> None:
    result = node.seek("c", node.times_ns[23] - 1)
    assert (result.seq, result.timestamp_ns) == (23, node.times_ns[23])
    consumer = node.consumer("c")
    node.settle()
    assert consumer.bodies() == BODIES[23:]


def test_a_message_of_the_store_comes_again(node: Node) -> None:
    node.seek("c", EARLIEST)
    consumer = node.consumer("c", rdy=7)
    node.settle()
    received = consumer.take()
    assert [message.body for message in received] == BODIES[:7]
    consumer.requeue(received[3])
    consumer.requeue(received[5], 5 * SECOND)
    consumer.set_rdy(1000)
    node.settle()
    later = consumer.take()
    assert sorted(message.body for message in later) == sorted([*BODIES[7:], BODIES[3], BODIES[5]])
    assert [message.body for message in later if message.attempts == 2] == [BODIES[3], BODIES[5]]


def test_a_restart_loses_no_place_in_the_store(node: Node) -> None:
    node.seek("c", EARLIEST)
    consumer = node.consumer("c", rdy=10)
    node.settle()
    consumer.finish(*consumer.take())
    node.world.pass_time(SECOND)
    close_descriptors(node.directory)
    node.start()
    channel = node.topic.channels["c"]
    assert (channel.depth, channel.lost_count, node.topic.log.damage.missing_count) == (COUNT - 10, 0, 0)
    consumer = node.consumer("c")
    node.settle()
    assert consumer.bodies() == BODIES[10:]


def test_without_the_store_these_messages_are_missing(node: Node) -> None:
    node.seek("c", EARLIEST)
    node.world.pass_time(SECOND)
    close_descriptors(node.directory)
    node.start(MemoryStore())
    assert node.topic.log.damage.missing_count == node.topic.log.first_seq


def test_a_channel_waits_for_a_store_that_is_away_and_others_go_on(node: Node) -> None:
    node.seek("c", EARLIEST)
    node.topic.log.history.chunks.forget()
    node.store.set_away(True)
    waiting = node.consumer("c")
    other = node.consumer("done")
    node.settle(3 * SECOND)
    node.world.publish(node.topic, b"new")
    node.settle(60 * SECOND)
    assert other.bodies() == [b"new"]
    assert waiting.bodies() == []
    channel = node.topic.channels["c"]
    assert (channel.depth, channel.deferred_count, channel.lost_count) == (COUNT + 1, 0, 0)
    assert node.topic.log.history.problem == AWAY
    assert [line for line in node.world.log.errors if AWAY in line] == [
        f"TOPIC({TOPIC}): failed to read message 0 from the store; its channels wait for it - {AWAY}"
    ]
    assert len(node.store.logs[TOPIC].reads) < 10  # in a minute
    node.store.set_away(False)
    node.settle(60 * SECOND)
    assert waiting.bodies() == [*BODIES, b"new"]
    assert node.topic.log.history.problem == ""


def test_the_loop_goes_on_while_a_thread_reads(node: Node) -> None:
    node.seek("c", EARLIEST)
    node.topic.log.history.chunks.forget()
    pool = GatedPool()
    node.store.threadpool = pool
    node.broker._read_history(node.topic, node.topic.log.history)
    waiting = node.consumer("c")
    node.settle(SECOND)
    assert waiting.bodies() == []
    pool.gate.set()
    node.settle(_FIRST_RETRY_NS)
    assert waiting.bodies() == BODIES


def test_damage_in_the_store_loses_one_message(node: Node) -> None:
    log = node.store.logs[TOPIC]
    segment = log.segments()[1]
    content = log.contents[segment.name]
    log.flip(segment.name, content.index(BODIES[segment.first_seq]))
    node.seek("c", EARLIEST)
    consumer = node.consumer("c")
    node.settle()
    assert consumer.bodies() == [body for seq, body in enumerate(BODIES) if seq != segment.first_seq]
    assert node.topic.channels["c"].lost_count == 1
    assert node.topic.log.damage.bytes_found


def test_a_file_that_the_store_has_lost_is_passed_over_after_a_minute(node: Node) -> None:
    log = node.store.logs[TOPIC]
    segment = log.segments()[1]
    log.lost.add(segment.name)
    node.seek("c", EARLIEST)
    history = node.topic.log.history
    history.chunks.forget()
    consumer = node.consumer("c")
    node.settle(40 * SECOND)
    assert consumer.bodies() == BODIES[: segment.first_seq]
    assert LOST in history.problem
    assert history.missing == set()
    with pytest.raises(FileNotFoundError):
        history.read_now(history.file_of(segment), segment.first_seq)
    node.settle(60 * SECOND)
    assert consumer.bodies() == BODIES[segment.end_seq :]
    assert node.topic.channels["c"].lost_count == segment.end_seq - segment.first_seq
    assert (history.problem, history.missing) == ("", {segment.name})
    said = [line for line in node.world.log.errors if "it is passed over" in line]
    assert said == [f"TOPIC({TOPIC}): the store has lost {segment.name}; it is passed over"]
    assert history.read_now(history.file_of(segment), segment.first_seq).batches == []


def test_a_file_that_comes_back_in_time_is_not_lost(node: Node) -> None:
    log = node.store.logs[TOPIC]
    segment = log.segments()[0]
    log.lost.add(segment.name)
    node.seek("c", EARLIEST)
    node.topic.log.history.chunks.forget()
    consumer = node.consumer("c")
    node.settle(40 * SECOND)
    log.lost.clear()
    node.settle(40 * SECOND)
    assert consumer.bodies() == BODIES
    assert node.topic.log.history.missing == set()


def test_files_that_are_not_stored_stay(directory: Path) -> None:
    world = World()
    broker = start_broker(world, directory, store=MemoryStore(), max_bytes_per_file=FILE_BYTES)
    topic: Any = broker.get_topic(TOPIC)
    broker.get_channel(topic, "done")
    topic.log.may_drop = lambda file: file.first_seq >= 20
    consumer = FakeConsumer(world, rdy=1000).subscribe(topic.channels["done"])
    for number, body in enumerate(BODIES):
        world.publish(topic, body)
        if number:  # the first message keeps its file
            consumer.finish(*consumer.take()[-1:])
    world.pass_time(SECOND)
    broker.housekeeper.clean_up(topic)
    broker.housekeeper.check_soon(topic)
    broker.housekeeper.run()
    kept = [file.first_seq for file in topic.log.files]
    assert not any(file.header.is_sparse for file in topic.log.files)
    topic.log.may_drop = lambda _file: True
    broker.housekeeper.check_soon(topic)
    broker.housekeeper.run()
    assert [seq for seq in kept if seq < 20] != [
        file.first_seq for file in topic.log.files if file.first_seq < 20
    ]
    assert topic.log.files[0].header.is_sparse
    close_descriptors(directory)


def test_a_reader_without_a_channel_reads_on(node: Node) -> None:
    bodies: list[bytes] = []
    seq = 0
    while seq < COUNT:
        reply = log_handlers.read_topic(node.request(seq=str(seq), max_bytes="700"))
        headers = dict(line.split(": ") for line in reply.headers.splitlines())
        assert (headers["X-Nsq-Earliest-Seq"], headers["X-Nsq-Damaged-Bytes"]) == ("0", "0")
        bodies += [body for _, body in messages_of(list(batches_in(reply.body, 0)))]
        seq = int(headers["X-Nsq-Next-Seq"])
    assert bodies == BODIES


@pytest.mark.parametrize("seq", [0, 1, 30, COUNT - 1])
def test_a_reader_begins_by_time_or_behind_an_id(node: Node, seq: int) -> None:
    batch = node.topic.log.read_retained(seq, 1, lambda work: work())
    time_s = node.times_ns[seq] / SECOND
    by_time = log_handlers.read_topic(node.request(time=f"{time_s:.0f}", max_bytes="1"))
    assert f"X-Nsq-First-Seq: {seq}\r\n" in by_time.headers
    by_id = log_handlers.read_topic(node.request(id=f"{batch.before_id:016x}", max_bytes="1"))
    assert f"X-Nsq-First-Seq: {seq}\r\n" in by_id.headers


def test_messages_of_the_store_are_shown_and_finished(node: Node) -> None:
    node.seek("c", EARLIEST)
    peeked = log_handlers.peek(node.request(n=str(COUNT))).body
    assert [peeked.count(body) for body in BODIES] == [1] * COUNT
    message_id = peeked.partition(b'"id":"')[2][:16].decode()
    log_handlers.finish_message(node.request(seq="0", id=message_id))
    assert node.topic.channels["c"].depth == COUNT - 1
    node.store.set_away(True)
    assert (
        f'"unreadable_count":{node.topic.log.first_seq - 1}'.encode()
        in log_handlers.peek(node.request(n=str(COUNT))).body
    )


def test_the_log_says_what_is_stored(node: Node) -> None:
    document = log_handlers.topic_log(node.request()).body
    stored = node.store.logs[TOPIC]
    size_bytes = sum(map(len, stored.contents.values()))
    count = len(stored.segments())
    assert orjson.loads(document)["stored"] == {
        "files": count,
        "bytes": size_bytes,
        "first_seq": 0,
        "first_timestamp": node.times_ns[0],
        "problem": "",
    }


def test_old_messages_of_the_store_expire(directory: Path) -> None:
    node = Node(directory, MemoryStore(), message_ttl_ns=ByTopic(3600 * SECOND))
    node.seek("c", EARLIEST)
    node.world.clock.now_ns = node.times_ns[0] + 3600 * SECOND + 20 * SECOND
    node.settle(5 * SECOND)
    channel = node.topic.channels["c"]
    consumer = node.consumer("c")
    node.settle(SECOND // 10)
    received = consumer.bodies()
    assert received == BODIES[-len(received) :]
    assert channel.distributor.expired_count == COUNT - len(received)
    assert COUNT - 28 <= len(received) <= COUNT - 20
    close_descriptors(directory)
