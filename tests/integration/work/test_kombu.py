"""The transport of kombu against real nsqds, without Celery's worker."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from celery.exceptions import ImproperlyConfigured
from kombu import Connection, Consumer, Exchange, Queue
from kombu.exceptions import ChannelError, OperationalError

import nsqd_py
import nsqd_py.celery as transport
from nsqd_py.client.errors import NoNsqd
from nsqd_py.testing.embedded import EmbeddedCluster, Nsqd
from tests.support.module_servers import module_embedded
from tests.support.nsqd_process import wait_until

pytestmark = pytest.mark.ours

DEADLINE_S = 40.0
EMPTY_S = 0.3  # within which no message comes that must not come


nsqd = module_embedded()


Connect = Callable[..., Any]


@pytest.fixture
def connect(nsqd: Nsqd) -> Iterator[Connect]:
    """Opens connections of kombu to the nsqd, or to other addresses."""
    opened = []

    def make(url: str = "", **options: object) -> Any:
        opened.append(Connection(url or f"nsq://{nsqd.tcp_address}", transport_options=options))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


class Inbox:
    """A consumer that keeps its messages."""

    def __init__(self, connection: Any, *queues: Any, prefetch: int = 0, no_ack: bool = False) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.consumer = Consumer(connection.channel(), queues, callbacks=[self._add], no_ack=no_ack)
        if prefetch:
            self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def _add(self, body: object, message: Any) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[object]:
        return [message.payload for message in self.messages]

    def wait_for(self, count: int) -> list[Any]:
        """Return the messages once there are so many."""
        deadline_s = time.monotonic() + DEADLINE_S
        while len(self.messages) < count:
            assert time.monotonic() < deadline_s, f"{self.bodies} in place of {count} messages"
            self._drain(0.1)
        return self.messages

    def gets_no_more(self) -> bool:
        before = len(self.messages)
        self._drain(EMPTY_S)
        return len(self.messages) == before

    def _drain(self, timeout_s: float) -> None:
        try:
            self.connection.drain_events(timeout=timeout_s)
        except TimeoutError:
            return


def publish(connection: Any, body: object, queue: Any, **settings: Any) -> None:
    producer = connection.Producer()
    producer.publish(
        body,
        exchange=queue.exchange,
        routing_key=queue.routing_key or queue.name,
        declare=[queue],
        **settings,
    )


def eta(seconds: float) -> dict[str, str]:
    return {"eta": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}


# ---- to a queue and back


def test_a_message_is_stored_when_publish_returns_and_finished_when_it_is_acknowledged(nsqd, connect):
    queue = Queue("there-and-back", Exchange("there-and-back"), "there-and-back")
    publish(connect(), {"n": 1}, queue)
    assert nsqd.depth("there-and-back") == 1
    inbox = Inbox(connect(), queue)
    (message,) = inbox.wait_for(1)
    assert message.payload == {"n": 1}
    assert not message.delivery_info["redelivered"]
    message.ack()
    inbox.connection.close()
    nsqd.wait_for_depth("there-and-back", 0, "celery")
    assert Inbox(connect(), queue).gets_no_more()


def test_what_is_not_acknowledged_comes_again_when_the_connection_closes(connect):
    queue = Queue("closed")
    publish(connect(), "a task", queue)
    first = Inbox(connect(), queue)
    first.wait_for(1)
    first.connection.close()
    (message,) = Inbox(connect(), queue).wait_for(1)
    assert message.delivery_info["redelivered"]


def test_a_rejected_message_comes_again_only_with_requeue(connect):
    queue = Queue("rejected")
    publish(connect(), "a task", queue)
    inbox = Inbox(connect(), queue)
    inbox.wait_for(1)[0].requeue()
    again = inbox.wait_for(2)[1]
    assert again.delivery_info["redelivered"]
    again.reject()
    assert inbox.gets_no_more()


def test_the_prefetch_count_limits_what_is_not_acknowledged_and_holds_over_all_queues(nsqd, connect):
    queues = [Queue("prefetched-1"), Queue("prefetched-2")]
    for number in range(6):
        publish(connect(), number, queues[number % 2])
    inbox = Inbox(connect(), *queues, prefetch=2)
    inbox.wait_for(2)
    assert inbox.gets_no_more()
    for count in range(3, 7):
        inbox.messages[count - 3].ack()
        inbox.wait_for(count)
    assert sorted(inbox.bodies) == list(range(6))


def test_a_queue_gets_the_whole_prefetch_count_while_another_one_is_empty(connect):
    busy = Queue("busy")
    for number in range(6):
        publish(connect(), number, busy)
    inbox = Inbox(connect(), Queue("idle"), busy, prefetch=4)
    inbox.wait_for(4)
    assert inbox.gets_no_more()


def test_drain_events_ends_at_its_time_out_and_does_not_spin(connect):
    inbox = Inbox(connect(), Queue("silent"))
    began_cpu_s = time.process_time()
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        inbox.connection.drain_events(timeout=1.0)
    assert time.monotonic() - began_s >= 1.0
    assert time.process_time() - began_cpu_s < 0.5


def test_a_message_is_taken_alone(connect):
    queue = Queue("alone")
    publish(connect(), "first", queue)
    publish(connect(), "second", queue)
    connection = connect()
    bound = queue.bind(connection.channel())
    message = bound.get()
    assert message.payload == "first"
    message.ack()
    assert bound.get(no_ack=True).payload == "second"
    assert bound.get() is None


def test_what_other_programs_publish_arrives_as_bytes(nsqd, connect):
    nsqd.publish("foreign", b"not of kombu \xff")
    channel = connect().channel()
    message = Queue("foreign").bind(channel).get(accept=["application/octet-stream"])
    assert message.content_type == "application/octet-stream"
    assert message.body == b"not of kombu \xff"


# ---- times


def test_an_eta_is_deferred_on_the_server(nsqd, connect):
    queue = Queue("deferred")
    inbox = Inbox(connect(), queue)
    due_s = time.time() + 2.5
    publish(connect(), "later", queue, headers=eta(2.5))
    wait_until(lambda: nsqd.stats("deferred")["topics"][0]["channels"], what="the consumer's channel")
    nsqd.wait_for_depth("deferred", 0, "celery")
    (channel,) = nsqd.stats("deferred")["topics"][0]["channels"]
    assert channel["deferred_count"] == 1
    assert inbox.gets_no_more()
    inbox.wait_for(1)
    assert due_s - 0.05 < time.time() < due_s + 5


def test_a_delay_that_nsqd_does_not_accept_at_once_is_chained(connect):
    queue = Queue("chained")
    inbox = Inbox(connect(longest_defer_s=0.4), queue)
    due_s = time.time() + 3.0
    publish(connect(longest_defer_s=0.4), "later", queue, headers=eta(3.0))
    (message,) = inbox.wait_for(1)
    assert time.time() > due_s - 1.1  # not earlier than the worker's timer takes over
    assert not message.delivery_info["redelivered"]  # although nsqd has delivered it before


def test_a_delay_beyond_the_limit_of_the_server_names_the_limit():
    with (
        nsqd_py.embedded("--max-defer-timeout=2s") as nsqd,
        Connection(f"nsq://{nsqd.tcp_address}") as connection,
        pytest.raises(ImproperlyConfigured, match=r"0-2000; set longest_defer_s in"),
    ):
        publish(connection, "later", Queue("too-late"), headers=eta(60))


def test_messages_that_are_too_old_are_dropped(connect):
    queue = Queue("aged", message_ttl=0.05)
    publish(connect(), "of the queue", queue)
    plain = Queue("aged-2")
    publish(connect(), "of the message", plain, expiration=0.05)
    publish(connect(), "fresh", plain)
    time.sleep(0.1)  # the age of the messages
    inbox = Inbox(connect(), queue, plain)
    assert [message.payload for message in inbox.wait_for(1)] == ["fresh"]
    assert inbox.gets_no_more()


# ---- exchanges


def test_direct_and_topic_exchanges_route_to_the_queues_that_are_declared(connect):
    direct, topics = Exchange("by-name"), Exchange("by-pattern", type="topic")
    red, blue = Queue("red", direct, "red"), Queue("blue", direct, "blue")
    media, video = Queue("media", topics, "media.#"), Queue("video", topics, "media.video.*")
    connection = connect()
    for queue in (red, blue, media, video):
        queue(connection.channel()).declare()
    producer = connection.Producer()
    for queue in (red, blue, media, video):
        queue(producer.channel).declare()
    producer.publish("r", exchange=direct, routing_key="red")
    producer.publish("a", exchange=topics, routing_key="media.audio")
    producer.publish("v", exchange=topics, routing_key="media.video.hd")
    inboxes = [Inbox(connect(), queue) for queue in (red, media, video, blue)]
    assert inboxes[0].wait_for(1)[0].payload == "r"
    inboxes[1].wait_for(2)
    assert sorted(inboxes[1].bodies) == ["a", "v"]
    assert inboxes[2].wait_for(1)[0].payload == "v"
    assert inboxes[3].gets_no_more()


def test_two_queues_of_one_consumer_each_get_their_copy(connect):
    both = Exchange("to-both", type="topic")
    queues = [Queue("copy-1", both, "#"), Queue("copy-2", both, "#")]
    connection = connect()
    for queue in queues:
        queue(connection.default_channel).declare()
    connection.Producer(connection.default_channel).publish("once", exchange=both, routing_key="a.b")
    inbox = Inbox(connect(), *queues)
    inbox.wait_for(2)
    assert inbox.bodies == ["once", "once"]


def test_a_persistent_message_without_a_queue_is_refused(connect):
    with pytest.raises(ImproperlyConfigured, match="exchange nobody, routing key x: no queue is bound"):
        connect().Producer().publish("lost", exchange=Exchange("nobody"), routing_key="x", declare=[])


def broadcast_queue(exchange: Exchange) -> Queue:
    return Queue(exchange=exchange, auto_delete=True, durable=False)


def test_a_broadcast_reaches_every_queue_and_none_that_comes_later(nsqd, connect):
    exchange = Exchange("to-all", type="fanout", durable=False, delivery_mode=1)
    producer = connect().Producer()
    producer.publish("nobody hears this", exchange=exchange, declare=[exchange])
    nsqd.wait_for_depth("to-all#ephemeral", 1)
    inboxes = [Inbox(connect(), broadcast_queue(exchange), no_ack=True) for _ in range(2)]
    for inbox in inboxes:
        assert inbox.gets_no_more()
    producer.publish("all hear this", exchange=exchange, declare=[exchange])
    for inbox in inboxes:
        assert inbox.wait_for(1)[0].payload == "all hear this"
        inbox.connection.close()


def test_transient_queues_of_a_topic_exchange_filter_by_routing_key(connect):
    exchange = Exchange("events", type="topic", delivery_mode=1)
    inbox = Inbox(
        connect(), Queue("watcher", exchange, "task.#", auto_delete=True, durable=False), no_ack=True
    )
    assert inbox.gets_no_more()
    producer = connect().Producer()
    for key in ("worker.online", "task.sent"):
        producer.publish(key, exchange=exchange, routing_key=key, declare=[exchange])
    assert inbox.wait_for(1)[0].payload == "task.sent"
    assert inbox.gets_no_more()


# ---- queues


def test_a_purge_drops_what_waits_and_what_is_deferred(nsqd, connect):
    queue = Queue("purged")
    connection = connect()
    for _ in range(3):
        publish(connection, "task", queue)
    bound = queue(connection.default_channel)
    assert bound.queue_declare(passive=True).message_count == 3
    assert bound.purge() == 3
    inbox = Inbox(connect(), queue)
    publish(connection, "later", queue, headers=eta(30))
    nsqd.wait_for_depth("purged", 0, "celery")
    assert bound.purge() == 1
    assert bound.queue_declare(passive=True).message_count == 0
    assert inbox.gets_no_more()


def test_a_deleted_queue_is_unknown(connect):
    queue = Queue("deleted")
    connection = connect()
    publish(connection, "task", queue)
    bound = queue(connection.default_channel)
    bound.delete()
    with pytest.raises(ChannelError, match="no queue 'deleted'"):
        bound.queue_declare(passive=True)


def test_names_that_nsq_refuses_are_mapped(nsqd, connect):
    queue = Queue("priority/high: now!")
    publish(connect(), "task", queue)
    assert nsqd.depth(transport.nsq_name("priority/high: now!")) == 1
    assert Inbox(connect(), queue).wait_for(1)[0].payload == "task"


# ---- what is refused


@pytest.mark.parametrize(
    ("queue", "settings", "sentence"),
    [
        (Queue("refused"), {"priority": 3}, "priority 3 of a message: NSQ cannot do this; use a queue for"),
        (Queue("refused", max_priority=9), {}, "x-max-priority.* of queue refused: NSQ cannot"),
        (Queue("refused", max_length=9), {}, "limits of a topic are settings of nsqd"),
        (Queue("refused", expires=9), {}, "x-expires"),
        (Queue("refused", queue_arguments={"x-queue-type": "quorum"}), {}, "quorum"),
        (Queue("refused", Exchange("h", type="headers")), {}, "exchange h of type headers: NSQ cannot"),
    ],
)
def test_what_nsq_cannot_do_is_refused(connect, queue, settings, sentence):
    with pytest.raises(ImproperlyConfigured, match=sentence):
        publish(connect(), "task", queue, **settings)


@pytest.mark.parametrize(
    ("url", "options", "sentence"),
    [
        ("nsq://user:secret@a:4150", {}, "set auth_secret in broker_transport_options"),
        ("nsq://a:4150/vhost", {}, "only addresses of nsqds"),
        ("nsq://a:4150?visibility_timeout=3", {}, "only addresses of nsqds"),
        ("nsq://a:4150", {"visibility_timeout": 3600}, 'there is no client option "visibility_timeout"'),
        ("nsq://a:4150;nsq://b:4150", {}, "separated by commas"),
    ],
)
def test_a_wrong_url_or_option_is_refused(url, options, sentence):
    with pytest.raises(ImproperlyConfigured, match=sentence):
        Connection(url, transport_options=options).connect()


# ---- servers


def test_several_nsqds_are_used_at_the_same_time():
    with nsqd_py.embedded(nsqds=2) as cluster:
        url = "nsq://" + ",".join(cluster.nsqd_tcp_addresses)
        check_both(cluster, url)


def test_nsqds_are_found_by_an_nsqlookupd_before_they_have_the_topic():
    with nsqd_py.embedded(nsqds=2, lookupd=True) as cluster:
        check_both(cluster, f"nsq://?lookupd_http_address={cluster.lookupd_http_address}")


def check_both(cluster: EmbeddedCluster, url: str) -> None:
    queue = Queue("on-both")
    with Connection(url) as publisher, Connection(url) as connection:
        inbox = Inbox(connection, queue)
        count = 0
        deadline_s = time.monotonic() + DEADLINE_S
        # The producer uses the nsqds in turn, as soon as it has connected to both.
        while count < 10 or not all(map(has_message, cluster.nsqds)):
            assert time.monotonic() < deadline_s
            publish(publisher, count, queue)
            count += 1
        inbox.wait_for(count)
        assert sorted(inbox.bodies) == list(range(count))
        for message in inbox.messages:
            message.ack()


def has_message(nsqd: Nsqd) -> bool:
    topics = nsqd.stats("on-both")["topics"]
    return bool(topics and topics[0]["message_count"])


def test_a_connection_without_an_nsqd_fails_at_once_and_says_why(nsqd):
    with pytest.raises(NoNsqd, match=r"127\.0\.0\.1:1: cannot connect"):
        Connection("nsq://127.0.0.1:1")._establish_connection()
    with pytest.raises(OperationalError, match="cannot connect"):
        Connection("nsq://127.0.0.1:1").ensure_connection(max_retries=1, interval_start=0)


def test_a_lost_nsqd_costs_neither_the_message_nor_the_consumer():
    with nsqd_py.embedded() as nsqd, Connection(f"nsq://{nsqd.tcp_address}") as connection:
        queue = Queue("killed")
        inbox = Inbox(connection, queue, prefetch=10)
        for number in range(2):
            publish(connection, number, queue)
        held, finished = inbox.wait_for(2)
        finished.ack()
        nsqd.kill()
        nsqd.restart()
        publish(connection, 2, queue)
        inbox.wait_for(3)
        assert inbox.bodies == [0, 1, 2]
        assert (
            inbox.gets_no_more()
        )  # neither the one that is held, nor the one whose FIN may be lost, comes again
        held.ack()  # answers the second delivery
        inbox.messages[2].ack()
        connection.close()
        nsqd.wait_for_depth("killed", 0, "celery")
        assert nsqd.stats("killed")["topics"][0]["channels"][0]["in_flight_count"] == 0


def test_a_fork_leaves_the_connection_of_its_parent_alone(connect):
    queue = Queue("forked")
    publish(connect(), "task", queue)
    inbox = Inbox(connect(), queue)
    (message,) = inbox.wait_for(1)
    child = os.fork()
    if child == 0:
        try:
            message.ack()
            inbox.connection.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert inbox.gets_no_more()
    message.requeue()
    assert inbox.wait_for(2)[1].payload == "task"


def drop(inboxes: list[Inbox]) -> None:
    """Drop the connection of the one inbox in this list, without closing it."""
    transport_ref = weakref.ref(inboxes.pop().connection.transport)

    def is_gone() -> bool:
        gc.collect()  # kombu's objects refer to each other; it does nothing while another thread collects
        return transport_ref() is None

    wait_until(is_gone, what="the connection to be collected")


def test_a_dropped_connection_gives_its_messages_back(nsqd, connect):
    queue = Queue("dropped")
    publish(connect(), "task", queue)
    inboxes = [Inbox(Connection(f"nsq://{nsqd.tcp_address}"), queue)]
    inboxes[0].wait_for(1)
    drop(inboxes)
    assert Inbox(connect(), queue).wait_for(1)[0].payload == "task"


def test_a_dropped_connection_gives_back_what_nothing_has_drained(nsqd, connect):
    """As a message that it has given back, and that nsqd delivers to it once more."""
    queue = Queue("dropped-undrained")
    publish(connect(), "task", queue)
    inboxes = [Inbox(Connection(f"nsq://{nsqd.tcp_address}"), queue)]
    servers = connect().transport.servers
    wait_until(lambda: servers.topics("dropped-undrained", "celery") == [0], what="the message in flight")
    drop(inboxes)
    assert Inbox(connect(), queue).wait_for(1)[0].payload == "task"


def test_the_query_of_statistics_is_for_one_topic(nsqd, connect):
    servers = connect().transport.servers
    nsqd.publish("other", b"1", b"2")
    assert servers.topics("other", "celery") == [2]
    assert servers.topics("no-such-topic", "celery") == []


def test_a_secret_is_not_sent_without_tls() -> None:
    """By no part that asks nsqds over HTTP: docs/security.md."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write no line."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        settings = transport.Settings.of("nsq://127.0.0.1:1", None, {"auth_secret": "s3cret"})
        transport.Servers(settings)._ask(
            f"127.0.0.1:{server.server_port}", "POST", "/topic/delete", {"topic": "orders"}
        )
        serving.join()
    assert seen == [None]
