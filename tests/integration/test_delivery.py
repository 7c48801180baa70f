"""What consumers get, when, and how often: over real sockets, against a real nsqd."""

from __future__ import annotations

import contextlib
import itertools
import resource
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.support import wire
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import CLOSE_WAIT, CLS, ERROR, HEARTBEAT, OK, Client, Frame, bodies

# Go looks for time-outs in a new channel only after up to 5 s.
TIMED_OUT_S = 40.0
KIB = 1024
MIB = 1024 * KIB


@pytest.fixture
def nsqd(nsqd_without_topics) -> NsqdProcess:
    """One for all tests that leave it as it is, as starting it takes longer than most of them."""
    return nsqd_without_topics


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def failed(verb: str, message_id: bytes, reason: str) -> Frame:
    return Frame(ERROR, f"E_{verb}_FAILED {verb} {message_id.decode()} failed {reason}".encode())


# --- RDY, FIN, REQ, TOUCH, CLS


def test_rdy_is_the_number_in_flight(nsqd):
    with nsqd.consumer("t", "c") as client:
        client.mpub("t", numbered(10))
        client.expect_silence()
        client.send(wire.rdy(3))
        held = client.messages(3)
        client.expect_silence()
        stats = nsqd.wait_for_channel("t", "c", depth=7, in_flight_count=3, message_count=10)
        (consumer,) = stats["clients"]
        counts = ("ready_count", "in_flight_count", "message_count", "finish_count")
        assert [consumer[name] for name in counts] == [3, 3, 3, 0]

        client.fin(held.pop())
        held.append(client.message())
        client.expect_silence()

        client.send(wire.rdy(5))
        held += client.messages(2)
        client.expect_silence()

        client.send(wire.rdy(2))  # a lower one waits for what is in flight
        client.fin(*held[:3])
        client.expect_silence()
        client.fin(held[3])
        client.fin(held[4], client.message())
        held = client.messages(2)

        client.send(wire.rdy(0))
        client.fin(*held)
        client.expect_silence()
        nsqd.wait_for_channel("t", "c", depth=1, in_flight_count=0)


def test_only_the_owner_answers_for_a_message(nsqd):
    with nsqd.consumer("t", "c", 1) as owner, nsqd.connect() as other:
        owner.pub("t", b"mine")
        message = owner.message()
        other.sub("t", "c", 1)
        for verb, command in (
            ("FIN", wire.fin(message.id)),
            ("REQ", wire.req(message.id, 0)),
            ("TOUCH", wire.touch(message.id)),
        ):
            assert other.ask(command) == failed(verb, message.id, "client does not own message")
        owner.fin(message)
        owner.round_trip()
        nsqd.wait_for_channel("t", "c", depth=0, in_flight_count=0)


def test_requeue_without_delay_comes_at_once_with_more_attempts(nsqd):
    with nsqd.consumer("t", "c", 1) as client:
        client.pub("t", b"again")
        message = client.message()
        for attempts in range(2, 7):
            client.send(wire.req(message.id, 0))
            assert client.message() == message.tried(attempts)
        client.fin(message)
        client.round_trip()
        stats = nsqd.wait_for_channel("t", "c", depth=0, in_flight_count=0, requeue_count=5, timeout_count=0)
        assert stats["clients"][0]["requeue_count"] == 5


@pytest.mark.parametrize("delay_ms", [1000, 3_600_000], ids=["", "beyond the limit"])
def test_requeue_with_a_delay(make_nsqd, delay_ms):
    nsqd = make_nsqd("--max-req-timeout=1500ms")
    with nsqd.consumer("t", "c", 1) as client:
        client.pub("t", b"later")
        message = client.message()
        requeued = time.monotonic()
        client.send(wire.req(message.id, delay_ms))
        client.round_trip()
        nsqd.wait_for_channel("t", "c", deferred_count=1, in_flight_count=0, depth=0)
        assert client.message(TIMED_OUT_S) == message.tried(2)
        assert time.monotonic() - requeued >= min(delay_ms, 1500) / 1000
        assert client.ask(wire.req(message.id, 1500), wire.fin(message.id)) == failed(
            "FIN", message.id, "ID not in flight"
        )


def test_timed_out_message_goes_to_another_consumer(make_nsqd):
    nsqd = make_nsqd("--msg-timeout=1s")
    with nsqd.consumer("t", "c", 1) as sleepy, nsqd.connect() as awake:
        sleepy.pub("t", b"slow")
        message = sleepy.message()
        sleepy.send(wire.rdy(0))
        awake.sub("t", "c", 1)
        assert awake.message(TIMED_OUT_S) == message.tried(2)
        assert sleepy.ask(wire.fin(message.id)) == failed("FIN", message.id, "client does not own message")
        awake.fin(message)
        awake.round_trip()
        nsqd.wait_for_channel("t", "c", in_flight_count=0, depth=0, timeout_count=1)


def test_messages_of_a_consumer_that_left_come_again(make_nsqd):
    nsqd = make_nsqd("--msg-timeout=1s")
    with nsqd.consumer("t", "c", 5) as leaver:
        leaver.mpub("t", numbered(5))
        held = leaver.messages(5)
    with nsqd.consumer("t", "c", 5) as client:
        again = client.consume(5, TIMED_OUT_S)
        assert sorted(again) == sorted(message.tried(2) for message in held)


def test_client_sets_its_own_msg_timeout(nsqd):
    with nsqd.consumer("t", "c", 1, msg_timeout=1000) as client:
        client.pub("t", b"slow")
        client.message()
        delivered = time.monotonic()
        assert client.message(TIMED_OUT_S).attempts == 2
        assert time.monotonic() - delivered >= 0.9


def test_touch_keeps_a_message_up_to_the_limit(make_nsqd):
    nsqd = make_nsqd("--msg-timeout=1s", "--max-msg-timeout=3s")
    with nsqd.consumer("t", "c", 1) as client:
        client.pub("t", b"busy")
        message = client.message()
        delivered = time.monotonic()

        def touched_in_vain():
            client.send(wire.touch(message.id))
            with contextlib.suppress(TimeoutError):
                return client.message(0.2)

        assert wait_until(touched_in_vain) == message.tried(2)
        assert time.monotonic() - delivered >= 2.9


def test_cls_stops_delivery_and_lets_finish(nsqd):
    with nsqd.consumer("t", "c", 2) as client:
        client.mpub("t", numbered(5))
        first, second = client.messages(2)
        assert client.ask(CLS) == CLOSE_WAIT
        client.send(wire.rdy(100))
        client.fin(first)
        client.send(wire.req(second.id, 0))
        client.expect_silence()
        stats = nsqd.wait_for_channel("t", "c", depth=4, in_flight_count=0)
        assert stats["clients"][0]["finish_count"] == 1


def test_sampled_consumer_gets_about_its_share(nsqd):
    count = 2000
    with nsqd.consumer("t", "c", 2500, sample_rate=20) as client:
        client.mpub("t", numbered(count))
        nsqd.wait_for_channel("t", "c", depth=0, message_count=count)
        sampled = len(client.drain(lambda: nsqd.is_empty("t", "c")))
        assert 0.15 * count < sampled < 0.27 * count
        client.round_trip()
        nsqd.wait_for_channel("t", "c", depth=0, in_flight_count=0)


# --- deferred publishing


@pytest.mark.parametrize("over", ["tcp", "http"])
def test_deferred_message_comes_when_it_is_due(nsqd, over):
    nsqd.create("t", "a", "b")
    with nsqd.consumer("t", "a", 1) as a, nsqd.consumer("t", "b", 1) as b:
        published = time.monotonic()
        if over == "tcp":
            a.dpub("t", 1500, b"later")
        else:
            nsqd.post("/pub?topic=t&defer=1500", b"later")
        nsqd.wait_for_channel("t", "a", deferred_count=1, depth=0, message_count=1)
        messages = [a.message(TIMED_OUT_S), b.message(TIMED_OUT_S)]
        assert time.monotonic() - published >= 1.5
        assert messages[0] == messages[1]
        assert (messages[0].attempts, messages[0].body) == (1, b"later")


# --- channels and consumers


def test_every_channel_gets_every_message(nsqd):
    channels = ["a", "b", "c"]
    nsqd.create("t", *channels)
    nsqd.pub("t", *numbered(50))
    nsqd.mpub("t", numbered(200, "batch"))
    received = [sorted(nsqd.consume("t", channel, 250)) for channel in channels]
    assert received[0] == received[1] == received[2]
    assert sorted(bodies(received[0])) == sorted(numbered(50) + numbered(200, "batch"))


def test_topic_without_channels_keeps_its_messages_for_the_first(nsqd):
    with nsqd.connect() as client:
        client.mpub("t", numbered(10))
        wait_until(lambda: nsqd.topic_stats("t")["depth"] == 10)
        client.sub("t", "first", 10)
        assert len(client.consume(10)) == 10
    with nsqd.consumer("t", "second", 10) as client:
        client.expect_silence()


def test_consumers_share_by_rdy(nsqd):
    with nsqd.consumer("t", "c", 30) as a, nsqd.consumer("t", "c", 70) as b:
        a.mpub("t", numbered(100))
        received = a.messages(30) + b.messages(70)
        assert sorted(bodies(received)) == sorted(numbered(100))


def test_max_channel_consumers(make_nsqd):
    nsqd = make_nsqd("--max-channel-consumers=1")
    with nsqd.consumer("t", "c"), nsqd.consumer("t", "d"), nsqd.connect() as second:
        assert second.ask(wire.sub("t", "c")) == Frame(
            ERROR, b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 1"
        )
        assert second.rest() == []
    nsqd.wait_for_channel("t", "c", client_count=0)
    nsqd.consumer("t", "c").close()


# --- pause, empty, delete


def test_paused_channel_delivers_nothing(nsqd):
    with nsqd.consumer("t", "c", 2) as client:
        client.mpub("t", numbered(3))
        held = client.messages(2)
        nsqd.post("/channel/pause?topic=t&channel=c")
        nsqd.wait_for_channel("t", "c", paused=True)
        client.fin(*held)
        client.pub("t", b"m3")
        client.expect_silence()
        nsqd.wait_for_channel("t", "c", in_flight_count=0, depth=2, message_count=4)
        nsqd.post("/channel/unpause?topic=t&channel=c")
        assert sorted(bodies(client.consume(2))) == [b"m2", b"m3"]
        assert nsqd.wait_for_channel("t", "c", depth=0)["paused"] is False


def test_paused_topic_keeps_messages_from_its_channels(nsqd):
    nsqd.create("t", "a", "b")
    nsqd.post("/topic/pause?topic=t")
    with nsqd.consumer("t", "a", 10) as a, nsqd.consumer("t", "b", 10) as b:
        a.mpub("t", numbered(3))
        a.expect_silence()
        topic = nsqd.topic_stats("t")
        assert (topic["depth"], topic["paused"]) == (3, True)
        nsqd.wait_for_channel("t", "a", depth=0, message_count=0)
        nsqd.post("/topic/unpause?topic=t")
        for client in (a, b):
            assert sorted(bodies(client.consume(3))) == numbered(3)
        wait_until(lambda: nsqd.topic_stats("t")["depth"] == 0)


def test_emptied_channel_forgets_messages_in_flight(nsqd):
    nsqd.create("t", "c", "other")
    with nsqd.consumer("t", "c", 2) as client:
        client.mpub("t", numbered(10))
        client.dpub("t", 60_000, b"deferred")
        held = client.messages(2)
        nsqd.wait_for_channel("t", "c", depth=8, in_flight_count=2, deferred_count=1)
        client.send(wire.rdy(0))
        client.round_trip()
        nsqd.post("/channel/empty?topic=t&channel=c")
        stats = nsqd.wait_for_channel(
            "t", "c", depth=0, in_flight_count=0, deferred_count=0, message_count=11
        )
        assert stats["clients"][0]["in_flight_count"] == 0
        for message in held:
            assert client.ask(wire.fin(message.id)) == failed("FIN", message.id, "ID not in flight")
        client.send(wire.rdy(2))
        client.mpub("t", [b"new1", b"new2", b"new3"])
        fresh = client.messages(2)
        client.expect_silence()
        client.fin(*fresh)
        assert sorted(bodies([*fresh, client.message()])) == [b"new1", b"new2", b"new3"]
    nsqd.wait_for_channel("t", "other", depth=13, deferred_count=1)


def test_emptied_topic_drops_what_no_channel_has_yet(nsqd):
    nsqd.create("t")
    with nsqd.connect() as client:
        client.mpub("t", numbered(10))
        wait_until(lambda: nsqd.topic_stats("t")["depth"] == 10)
        nsqd.post("/topic/empty?topic=t")
        wait_until(lambda: nsqd.topic_stats("t")["depth"] == 0)
        client.sub("t", "c", 5)
        client.expect_silence()
        client.pub("t", b"in flight", b"waiting")
        nsqd.wait_for_channel("t", "c", in_flight_count=2)
        nsqd.post("/topic/empty?topic=t")
        assert sorted(bodies(client.consume(2))) == [b"in flight", b"waiting"]


def test_deleted_channel_closes_its_consumers(nsqd):
    nsqd.create("t", "kept")
    with (
        nsqd.consumer("t", "c", 1) as busy,
        nsqd.consumer("t", "c") as idle,
        nsqd.consumer("t", "kept", 5) as kept,
    ):
        nsqd.mpub("t", numbered(3))
        busy.message()
        nsqd.post("/channel/delete?topic=t&channel=c")
        assert busy.rest() == idle.rest() == []
        assert nsqd.channel_stats("t", "c") is None
        assert len(kept.consume(3)) == 3
        nsqd.pub("t", b"after")
        assert kept.message().body == b"after"
    with nsqd.consumer("t", "c", 5) as client:
        client.expect_silence()


def test_deleted_topic_closes_its_consumers(nsqd):
    with nsqd.connect() as publisher, nsqd.consumer("t", "a", 1) as a, nsqd.consumer("t", "b") as b:
        publisher.mpub("t", numbered(3))
        a.message()
        nsqd.post("/topic/delete?topic=t")
        assert a.rest() == b.rest() == []
        assert nsqd.topic_stats("t") is None
        publisher.pub("t", b"again")
        publisher.sub("t", "a", 5)
        assert bodies(publisher.consume(1)) == [b"again"]
        publisher.expect_silence()


# --- ephemeral topics and channels


def test_ephemeral_channel_goes_with_its_last_consumer_and_its_topic_with_it(nsqd):
    for topic in ("t", "t#ephemeral"):
        with nsqd.consumer(topic, "c#ephemeral"):
            with nsqd.consumer(topic, "c#ephemeral", 1) as second:
                second.pub(topic, b"held")
                second.message()
            nsqd.wait_for_channel(topic, "c#ephemeral", client_count=1)
        wait_until(lambda topic=topic: nsqd.channel_stats(topic, "c#ephemeral") is None)
    assert nsqd.topic_stats("t")
    wait_until(lambda: nsqd.topic_stats("t#ephemeral") is None)


def test_ephemeral_channel_holds_no_more_than_the_memory_queue(make_nsqd):
    nsqd = make_nsqd("--mem-queue-size=10")
    with nsqd.consumer("t#ephemeral", "c#ephemeral") as client:
        client.mpub("t#ephemeral", numbered(500))
        client.round_trip()
        # Go's topic and channel each have a queue of this length.
        wait_until(lambda: nsqd.topic_stats("t#ephemeral")["depth"] == 0)
        nsqd.wait_for_channel("t#ephemeral", "c#ephemeral", depth=10, dropped_count=490)
        client.send(wire.rdy(100))
        assert len(client.drain(lambda: nsqd.is_empty("t#ephemeral", "c#ephemeral"))) == 10
        client.pub("t#ephemeral", b"after")
        assert client.message().body == b"after"


def test_restart_forgets_what_is_ephemeral(make_nsqd):
    nsqd = make_nsqd()
    nsqd.create("t", "c#ephemeral", "lasting")
    nsqd.create("t#ephemeral", "lasting")
    nsqd.restart()
    (topic,) = nsqd.stats()["topics"]
    assert [channel["channel_name"] for channel in topic["channels"]] == ["lasting"]


# --- heartbeats


def test_heartbeats_come_in_the_negotiated_interval(nsqd):
    began_s = time.monotonic()
    with nsqd.connect(heartbeat_interval=1000) as client:
        for beat in range(1, 4):
            assert client.frame() == HEARTBEAT
            assert time.monotonic() - began_s >= beat - 0.05
            client.send(wire.NOP)
        assert time.monotonic() - began_s < 60, "not in the 30 s of those who negotiate nothing"
        client.pub("t", b"still here")


def test_silent_client_is_closed(nsqd):
    with nsqd.consumer("t", "c", 1, heartbeat_interval=1000) as client:
        client.pub("t", b"held")
        client.message()
        began = time.monotonic()
        frames = client.rest()
        assert time.monotonic() - began >= 1.5
        assert set(frames) == {HEARTBEAT}
    nsqd.wait_for_channel("t", "c", client_count=0)


def test_any_command_keeps_a_client_alive(nsqd):
    with nsqd.connect(heartbeat_interval=1000) as client:
        client.sub("t", "c")
        deadline = time.monotonic() + 3.5
        for count in itertools.count(1):
            assert client.frame() == HEARTBEAT
            client.send(wire.rdy(count))
            if time.monotonic() > deadline:
                break
        client.pub("t", b"still here")


# --- message ids


def test_ids_carry_the_node_and_the_time_and_increase(make_nsqd):
    nsqd = make_nsqd("--node-id=777", "--mem-queue-size=0")
    with nsqd.connect() as client:
        before_ns = time.time_ns()
        client.pub("t", *numbered(10))
        client.mpub("t", numbered(6000, "batch"))
        client.pub("t", *numbered(10, "after"))
        after_ns = time.time_ns()
        messages = sorted(nsqd.consume("t", "c", 6020), key=lambda message: message.id)

    sent = numbered(10) + numbered(6000, "batch") + numbered(10, "after")
    assert bodies(messages) == sent, "ids do not increase in the order of publishing"
    assert all(message.id == b"%016x" % int(message.id, 16) for message in messages)
    ids = [int(message.id, 16) for message in messages]
    assert len(set(ids)) == len(ids)
    assert {id_ >> 12 & 0x3FF for id_ in ids} == {777}
    # The upper bits count units of 2 ** 20 ns since an epoch of Twitter's.
    times_ns = [((id_ >> 22) + 1288834974288) << 20 for id_ in ids]
    assert before_ns - 2**20 <= times_ns[0]
    assert times_ns[-1] <= after_ns + 100_000_000
    assert all(before_ns <= message.timestamp_ns <= after_ns for message in messages)
    nsqd.restart()
    nsqd.pub("t", b"later")
    (later,) = nsqd.consume("t", "c", 1)
    assert later.id > messages[-1].id


# --- many, slow, and idle clients


def test_consumer_that_does_not_read_harms_nobody(make_nsqd):
    nsqd = make_nsqd("--mem-queue-size=100")
    process = psutil.Process(nsqd.pid)
    batches, body = 150, b"x" * (64 * KIB)
    with (
        Client(nsqd.tcp_port, receive_buffer_bytes=4096) as stuck,
        nsqd.consumer("small", "c", 10, output_buffer_size=-1) as other,
    ):
        stuck.sub("big", "c", 2500)
        with nsqd.connect() as publisher:
            publisher.mpub("big", [body] * 10)
            before = process.memory_info().rss
            for number in range(batches):
                publisher.mpub("big", [body] * 20)
                publisher.pub("small", str(number).encode())
                assert bodies(other.consume(1)) == [str(number).encode()]
                assert process.memory_info().rss - before < 96 * MIB, f"after {number} of {batches} batches"
        assert len(nsqd.consume("big", "c", 500)) == 500
        assert nsqd.is_healthy()


def test_publisher_that_does_not_read_its_answers_harms_nobody(nsqd):
    process = psutil.Process(nsqd.pid)
    with Client(nsqd.tcp_port, receive_buffer_bytes=4096) as deaf, nsqd.connect() as other:
        before = process.memory_info().rss
        deaf.sub("t", "deaf")
        # 60 MB of answers: nsqd has to stop reading, or to close the connection.
        deaf.send_until_it_blocks(wire.touch(wire.UNKNOWN_ID) * 10_000, times=100)
        other.sub("t", "c", 1)
        other.pub("t", b"1")
        assert bodies(other.consume(1)) == [b"1"]
        assert process.memory_info().rss - before < 40 * MIB


@pytest.mark.parametrize("count", [400, pytest.param(5000, marks=pytest.mark.slow)])
def test_idle_connections(make_nsqd, count):
    with open_files_limit(2 * count):
        nsqd = make_nsqd()
        with contextlib.ExitStack() as stack:
            idle = [stack.enter_context(nsqd.connect()) for _ in range(count)]
            for client in idle:
                client.send(wire.sub("t", "idle"))
            assert all(client.next_frame(60.0) == OK for client in idle)
            nsqd.wait_for_channel("t", "idle", client_count=count)
            nsqd.create("t", "busy")
            nsqd.mpub("t", numbered(1000))
            assert len(nsqd.consume("t", "busy", 1000)) == 1000
            for client in idle[:: count // 100]:
                client.send(wire.rdy(1))
                assert client.message().attempts == 1
            assert nsqd.is_healthy()
        nsqd.wait_for_channel("t", "idle", client_count=0)


@contextlib.contextmanager
def open_files_limit(count: int) -> Iterator[None]:
    """Raises the soft limit, for this process and for those that it starts in the meantime."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, count)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        pytest.skip(f"needs {count} open files, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.ours  # Go looks through its channels ten times a second
def test_idle_nsqd_with_1000_channels_uses_no_cpu(make_nsqd):
    nsqd = make_nsqd()
    for topic in range(50):
        nsqd.create(f"t{topic}", *(f"c{channel}" for channel in range(20)))
    with nsqd.consumer("t0", "c0", 10) as client:
        client.mpub("t0", numbered(100))
        client.consume(100)
    # What creating left behind (metadata, first syncs) ends some time; looking through the channels would not.
    process = psutil.Process(nsqd.pid)
    wait_until(lambda: process.cpu_percent(2.0) < 2, 60.0, "nsqd to settle")


def test_a_publisher_that_waits_for_each_answer(nsqd):
    """nsqd awaits its next PUB without sleeping; it reads other commands, parts of them and the end all the same."""
    with nsqd.connect() as other:
        for size in (10, 100, 500):
            with nsqd.connect() as client:
                client.pub("t", *[b"x" * size] * 60)
                whole = wire.pub("t", b"in parts")
                client.send(whole[:9])
                other.pub("t", b"of another")
                assert client.ask(whole[9:]) == OK
                client.pub("t", *[b"y"] * 60)
                assert client.ask(b"NOP\n" + wire.pub("t", b"z")) == OK
                client.pub("t", *[b"y"] * 60)
                client.send(wire.pub("t", b"unanswered"))
        client = nsqd.connect()
        client.pub("t", *[b"x"] * 60)
        assert client.ask(b"FIN 0123456789abcdef\n").data.startswith(b"E_INVALID")
    wait_until(lambda: nsqd.topic_stats("t")["message_count"] == 3 * 184 + 60, what="all messages")
