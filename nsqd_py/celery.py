"""A transport of kombu: Celery, and programs on kombu alone, use nsqds as their broker.

    import nsqd_py.celery                                        # makes the scheme nsq:// known to kombu
    app = Celery("shop", broker="nsq://10.0.0.1:4150,10.0.0.2:4150")

Without the import, name the transport: `broker_transport = "nsqd_py.celery:Transport"` next to `broker_url`. kombu accepts no
dotted path as the scheme of a URL. With nsqlookupds, the URL is `nsq://?lookupd_http_address=10.0.0.1:4161`.

A queue is a topic with one channel (`celery`). A queue that is deleted with its consumer (`auto_delete`: remote control,
events, results by `rpc://`) is an ephemeral channel: of the ephemeral topic of its exchange, whose other messages it drops,
or of an ephemeral topic with its own name. Exchanges and bindings are not on the server: publishers know them from the settings.

A task with an ETA is deferred on the server. It comes `_EARLY_S` before its time at the earliest; a worker gets it then.

A delivery is known by the tag that the publisher gave it. When an nsqd crashes, it delivers again what was in flight, and what
was finished in the moment before: the first kind belongs to the delivery that the worker has already, the second kind is
finished again. So a crash of nsqd alone does not run a task twice in the same worker.

Threads
Pump  its thread steps the consumers; others add sources, read `arrived` and `failure`, and wake its pollers. Once it stops, it
    gives back what has arrived: each message is taken from `arrived` in one call of a deque
Source.is_cancelled  set once, by the thread of the transport, and read by the pump
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
import urllib.error
import urllib.request
from base64 import b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from math import ceil
from time import monotonic, time, time_ns
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from weakref import finalize

from amqp.protocol import queue_declare_ok_t
from celery import current_app
from celery.exceptions import ImproperlyConfigured
from kombu.exceptions import ChannelError, OperationalError
from kombu.log import get_logger
from kombu.transport import TRANSPORT_ALIASES, base, virtual
from kombu.utils.json import dumps, loads
from kombu.utils.uuid import uuid

from nsqd_py.client import Connection, Producer
from nsqd_py.client.addresses import parse_address
from nsqd_py.client.blocking.backend import THREADS, Latch
from nsqd_py.client.blocking.connection import tls_context
from nsqd_py.client.blocking.consuming_core import NonBlockingConsumer
from nsqd_py.client.blocking.lookup import Finder, find_nsqds
from nsqd_py.client.errors import AtAddress, BadClientOption, NoNsqd, NsqClientError, PublishFailed
from nsqd_py.client.lookup import LookupFailed, addresses_of
from nsqd_py.client.message import Message
from nsqd_py.client.options import ClientOptions
from nsqd_py.cluster.access import HttpAccess, servers_in
from nsqd_py.cluster.admin_client import shown_address
from nsqd_py.net.addresses import join_address
from nsqd_py.protocol.names import EPHEMERAL_SUFFIX, MAX_NAME_LENGTH, is_valid_name
from nsqd_py.runtime.logs.outages import OutageLog

SCHEME = "nsq"
_PATH = "nsqd_py.celery:Transport"
_DEFAULT_PORT = 4150
_LOCALHOST = "127.0.0.1"

_DIGEST_CHARACTERS = 8
_REFUSED_CHARACTER = re.compile(r"[^.a-zA-Z0-9_-]")

_EARLY_S = 1.0  # a task comes this long before its ETA at most; the worker's timer does the rest
# How long a connection must last after a FIN before the FIN counts as kept: nsqd writes journals 20 times a second, and
# syncs them every 2 s.
_KEPT_S = 5.0
_MOST_DOUBTFUL = 10_000

_UNLIMITED = 2500  # messages in flight where Celery sets no limit; the default of nsqd's --max-rdy-count
_UNACKNOWLEDGED = 200  # messages in flight to a consumer that does not acknowledge: remote control, events
_MOST_SOON = 500  # events and broadcasts that wait for an nsqd; more are dropped
_TRANSIENT = 1  # AMQP's delivery mode of messages that need not survive

_LOOKUPD_POLL_S = 5.0
_REDIAL_S = 1.0
_GET_S = 1.0  # how long `basic_get` waits for a message
_LONGEST_WAIT_S = 10.0
_CLOSE_S = 2.0
_NEVER_S = 1e9
_HTTP_S = 10.0
_NOT_FOUND = 404

_QUEUE_TTL = "x-message-ttl"
_QUEUE_EXPIRES = "x-expires"
_CLASSIC = {"x-queue-type": "classic"}
_OWN_OPTIONS = (
    "nsqd_tcp_addresses",
    "lookupd_http_addresses",
    "nsqd_http_addresses",
    "channel",
    "longest_defer_s",
    "publish_timeout_s",
)
# Options that kombu itself reads.
_OF_KOMBU = (
    "body_encoding",
    "callback",
    "connect_retries_timeout",
    "errback",
    "interval_max",
    "interval_start",
    "interval_step",
    "max_retries",
    "polling_interval",
)

logger = get_logger("nsqd_py.celery")


class PumpFailed(NsqClientError):
    """The thread that receives messages has ended with an error. Celery then connects again."""


# ---- names and settings


def nsq_name(name: str, *, is_ephemeral: bool = False) -> str:
    """Return the topic or channel of a queue or exchange.

    It has the same name if NSQ allows that. Otherwise `-` replaces what NSQ refuses, and a hash of the name ends it.
    """
    suffix = EPHEMERAL_SUFFIX if is_ephemeral else ""
    most = MAX_NAME_LENGTH - len(suffix)
    if len(name) <= most and "#" not in name and is_valid_name(name.encode()):
        return name + suffix
    digest = sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    shortened = _REFUSED_CHARACTER.sub("-", name)[: most - len(digest) - 1]
    return f"{shortened}-{digest}{suffix}"


@dataclass(frozen=True)
class Settings:
    """The addresses and options of a broker URL and `broker_transport_options`.

    channel            the NSQ channel of all queues
    longest_defer_s    the longest delay that nsqd accepts: its --max-defer-timeout and --max-req-timeout
    """

    nsqds: tuple[str, ...]
    lookupds: tuple[str, ...]
    https: tuple[str, ...]
    channel: str
    longest_defer_s: float
    publish_timeout_s: float
    options: ClientOptions

    @classmethod
    def of(cls, url: str, port: int | None, options: Mapping[str, Any]) -> Settings:
        """Read a broker URL, or a host with its port. Raises ImproperlyConfigured."""
        nsqds, lookupds = _addresses_in(url, port)
        own = {name: options[name] for name in _OWN_OPTIONS if name in options}
        client = {name: value for name, value in options.items() if name not in (*own, *_OF_KOMBU)}
        try:
            found = addresses_of(
                "broker_url",
                [*nsqds, *_list_of(own.get("nsqd_tcp_addresses"))],
                [*lookupds, *_list_of(own.get("lookupd_http_addresses"))],
            )
            # nsqd sends each message at once. The interval also limits the time until a lost nsqd is dialled again.
            interval_s = _LOOKUPD_POLL_S if found[1] else _REDIAL_S
            defaults = ClientOptions.of(output_buffer_size=-1, lookupd_poll_interval=interval_s)
            return cls(
                *found,
                https=tuple(_list_of(own.get("nsqd_http_addresses"))),
                channel=str(own.get("channel", "celery")),
                longest_defer_s=float(own.get("longest_defer_s", 3600)),
                publish_timeout_s=float(own.get("publish_timeout_s", 30)),
                options=defaults.with_settings(**client),
            )
        except (BadClientOption, TypeError, ValueError) as error:
            names = ", ".join(_OWN_OPTIONS)
            raise ImproperlyConfigured(
                f"broker_url or broker_transport_options: {error}; options of this transport alone are {names}"
            ) from error


def _list_of(addresses: str | Iterable[str] | None) -> list[str]:
    if isinstance(addresses, str):
        return [address for address in addresses.split(",") if address]
    return list(addresses or ())


def _addresses_in(url: str, port: int | None) -> tuple[list[str], list[str]]:
    """Return the nsqds and nsqlookupds of a broker URL. Raises ImproperlyConfigured."""
    if "://" not in url:
        return ([f"{url}:{port or _DEFAULT_PORT}"] if ":" not in url else [url]), []
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ImproperlyConfigured(
            "broker_url: NSQ has no users and passwords; set auth_secret in broker_transport_options"
        )
    query = parse_qs(parts.query)
    lookupds = query.pop("lookupd_http_address", [])
    if query or parts.path.strip("/"):
        raise ImproperlyConfigured(
            f"broker_url {url}: only addresses of nsqds and ?lookupd_http_address=host:port may stand in it; "
            "set other options in broker_transport_options"
        )
    nsqds = [_with_port(address) for address in parts.netloc.split(",") if address]
    return nsqds, [address for text in lookupds for address in text.split(",")]


def _with_port(address: str) -> str:
    has_port = ":" in address.rpartition("]")[2]
    return address if has_port else f"{address}:{_DEFAULT_PORT}"


def _refuse(what: str, remedy: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{what}: NSQ cannot do this; {remedy}")


# ---- times


def eta_of(payload: Mapping[str, Any]) -> float | None:
    """Return the ETA of a task in seconds since the epoch; None if it has none that can be read."""
    text = (payload.get("headers") or {}).get("eta")
    if not isinstance(text, str):
        return None
    try:
        eta = datetime.fromisoformat(text)
    except ValueError:
        return None  # the worker says what is wrong with it
    if eta.tzinfo is None:
        eta = eta.replace(tzinfo=UTC)  # as Celery's workers read it
    return eta.timestamp()


# ---- deliveries


class QueueConsumer(NonBlockingConsumer):
    """A consumer of all nsqds that the nsqlookupds know, also of those that do not have the topic yet."""

    def _begin(self) -> None:
        super()._begin()
        self._finders = [Finder(address, "", self._context) for address in self._lookupds]

    def allow(self, count: int) -> None:
        """Set the number of messages that may be in flight."""
        with self._subscription.lock:
            if self._subscription.max_in_flight != count:
                self._subscription.set_max_in_flight(count)


@dataclass(eq=False)
class Source:
    """A topic from which a queue of a channel gets messages. It refers to nothing of kombu, whose connection may be dropped.

    no_ack     True if a message is finished when its consumer gets it
    since_ns   older messages are dropped
    ttl_s      so are those that are older than this when they come
    held       messages that are here and not answered
    waiting    those of them that the consumer of the queue does not have yet
    """

    queue: str
    consumer: QueueConsumer
    no_ack: bool
    since_ns: int = 0
    ttl_s: float | None = None
    held: int = 0
    is_cancelled: bool = False
    waiting: deque[tuple[dict[str, Any], Message]] = field(default_factory=deque)

    def next_payload(self) -> dict[str, Any] | None:
        """Take the next message for its consumer; None if there is none."""
        while self.waiting:
            payload, message = self.waiting.popleft()
            if not self.no_ack:
                return payload
            if message.is_live:  # otherwise it comes again
                message.finish()
                return payload
        return None

    def is_too_old(self, payload: Mapping[str, Any], message: Message) -> bool:
        """True if the time of this message is over."""
        properties = payload["properties"]
        if message.timestamp_ns < self.since_ns:
            return True
        limits_s = [self.ttl_s] if self.ttl_s is not None else []
        if properties.get("expiration"):
            limits_s.append(float(properties["expiration"]) / 1000)
        age_s = (time_ns() - message.timestamp_ns) / 1e9
        return any(age_s > limit_s for limit_s in limits_s)


@dataclass
class Delivery:
    """A message that is not answered, as nsqd has delivered it: more than once if a connection was lost."""

    source: Source
    messages: list[Message]


class Deliveries:
    """The deliveries of one connection of kombu, by their tags. Any thread may answer them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[str, Delivery] = {}
        # Tags that were answered in the last seconds, with the time and the connection of the FIN.
        self._answered: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        # Tags that were answered just before their connection was lost: the FIN may be lost too.
        self._doubtful: OrderedDict[str, None] = OrderedDict()

    def is_new(self, tag: str, source: Source, message: Message) -> bool:
        """Note a delivery. False if the worker has the message already, or had it."""
        with self._lock:
            delivery = self._open.get(tag)
            if delivery is not None:
                delivery.messages = [one for one in delivery.messages if one.is_live] + [message]
                return False
            if tag in self._answered or tag in self._doubtful:
                self._finish(tag, [message])
                return False
            self._open[tag] = Delivery(source, [message])
            source.held += 1
            return True

    def finish(self, tag: str) -> None:
        """Finish a message, unless it is answered."""
        with self._lock:
            messages = self._take(tag)
            if messages:
                self._finish(tag, messages)

    def give_back(self, tag: str) -> None:
        """Let nsqd deliver a message again at once, unless it is answered."""
        with self._lock:
            for message in self._take(tag):
                message.requeue(0, backoff=False)

    def give_back_all(self, sources: Iterable[Source] | None = None) -> None:
        """Let nsqd deliver again what came from these sources, or all, in the order in which it came."""
        with self._lock:
            tags = list(self._open)
            if sources is not None:
                chosen = set(sources)
                tags = [tag for tag in tags if self._open[tag].source in chosen]
            for tag in tags:
                self.give_back(tag)

    def _take(self, tag: str) -> list[Message]:
        delivery = self._open.pop(tag, None)
        if delivery is None:
            return []
        delivery.source.held -= 1
        return delivery.messages

    def _finish(self, tag: str, messages: list[Message]) -> None:
        for message in messages:
            message.finish()
        self._doubtful.pop(tag, None)
        self._answered[tag] = monotonic(), messages[-1].batch.connection
        self._forget()

    def _forget(self) -> None:
        """Forget tags whose FIN nsqd has certainly kept."""
        kept_s = monotonic() - _KEPT_S
        while self._answered:
            tag, (answered_s, connection) = next(iter(self._answered.items()))
            if answered_s > kept_s:
                break
            del self._answered[tag]
            if not connection.is_open:
                self._doubtful[tag] = None
        while len(self._doubtful) > _MOST_DOUBTFUL:
            self._doubtful.popitem(last=False)


class Pump:
    """A thread that does the input and output of all consumers of a connection, whatever the worker does meanwhile.

    arrived   the messages that came, with their sources
    news      is woken when there are any
    failure   the error that has ended the thread
    """

    def __init__(self) -> None:
        self._backend = THREADS
        self.arrived: deque[tuple[Source, Message]] = deque()
        self.news = self._backend.make_poller()
        self.failure: Exception | None = None
        self._poller = self._backend.make_poller()
        self._added: deque[Source] = deque()
        self._sources: list[Source] = []
        self._pid = os.getpid()
        self._is_started = False
        self._is_stopping = False
        self._abandoned: Deliveries | None = None  # those of a connection that was dropped
        self._stopped = Latch(self._backend.make_lock)

    def add(self, source: Source) -> None:
        """Receive messages of a source too."""
        self._added.append(source)
        if self._is_started:
            self._poller.wake()
            return
        self._is_started = True
        self._backend.spawn("nsqd-py celery", self._run)

    @property
    def is_own_process(self) -> bool:
        """False in a fork of the process that has made it: the thread is not there."""
        return os.getpid() == self._pid

    def begin_to_stop(self, timeout_s: float) -> None:
        """End once all messages are answered, or after the time-out. Does not wait."""
        self._is_stopping = True
        for source in [*self._added, *self._sources]:
            source.consumer.begin_to_stop(timeout_s)
        if self._is_started:
            self._poller.wake()
        else:
            self._close()

    def abandon(self, deliveries: Deliveries) -> None:
        """Let the thread give these back, and end.

        The garbage collector calls this in any thread, perhaps in the middle of a turn: it only leaves a note.
        """
        self._abandoned = deliveries
        if self._is_started:
            self._poller.wake()
        else:
            self._is_stopping = True
            self._close()

    def stop(self, timeout_s: float) -> None:
        """Wait until all answers are sent and the thread has ended, or for the time-out."""
        self.begin_to_stop(timeout_s)
        if self._is_started:
            self._stopped.wait(timeout_s + 1.0)

    def _close(self) -> None:
        self._poller.close()
        if self._is_stopping:  # otherwise the transport must see the failure
            self.news.close()

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:
            self.failure = error
            logger.exception("the thread that receives messages has ended: %r", error)
        finally:
            self.news.wake()
            self._close()
            self._stopped.set()

    def _turn(self) -> bool:
        """Step all consumers, and wait. Return False at the end."""
        while self._added:
            self._sources.append(self._added.popleft())
        abandoned, self._abandoned = self._abandoned, None
        if abandoned is not None:
            self.begin_to_stop(_CLOSE_S)
            abandoned.give_back_all()
        self._sources = [source for source in self._sources if self._step(source)]
        if self._is_stopping:
            self._return_arrived()
        if self._is_stopping and not self._sources and not self._added:
            return False
        watched = [each for source in self._sources for each in source.consumer.watched]
        wait_s = min([_LONGEST_WAIT_S, *(source.consumer.wait_s for source in self._sources)])
        self._poller.wait(watched, wait_s)
        return True

    def _return_arrived(self) -> None:
        """Let nsqd deliver again what nothing will sort.

        Until nsqd has read that a consumer leaves, it may deliver a message to it again that was just given back. A message in
        flight when the connection closes would wait for its time-out.
        """
        with suppress(IndexError):  # it is empty, or the transport sorts the last one
            while True:
                _, message = self.arrived.popleft()
                message.requeue(0, backoff=False)

    def _step(self, source: Source) -> bool:
        """Return False once the consumer has ended."""
        batches = source.consumer.step(0)
        if batches is None:
            return False
        for batch in batches:
            if source.is_cancelled:
                batch.requeue(0)
            else:
                self.arrived.extend((source, message) for message in batch.messages())
        if batches:
            self.news.wake()
        return True


# ---- channels


@dataclass(frozen=True)
class QueueTraits:
    """The properties of a declared queue."""

    is_transient: bool
    ttl_s: float | None
    since_ns: int


class QoS:
    """The prefetch count of a channel, as kombu's own channels have it. 0 is no limit."""

    def __init__(self, channel: NsqChannel) -> None:
        self._channel = channel
        self.prefetch_count = 0

    def can_consume(self) -> bool:
        """True if a consumer may get one more message."""
        return not self.prefetch_count or self._channel.delivered_count < self.prefetch_count


class NsqChannel(virtual.Channel):
    """A channel of kombu: its consumers, and the messages that they have not acknowledged."""

    QoS = QoS
    closed: bool
    connection: Any  # a Transport; None after `close`

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._sources: dict[str, list[Source]] = {}  # by consumer tag
        self._getters: dict[str, Source] = {}  # by queue
        self._cancelled: list[Source] = []  # with messages that are not answered
        self._turns: deque[Source] = deque()
        self._receivers: dict[Source, Callable[[Any], object]] = {}
        # Says whether a routing key matches the binding of the queue, for sources that have messages of other queues too.
        self._routes: dict[Source, Callable[[str], bool]] = {}

    # ---- declarations

    def exchange_declare(self, exchange: str = "", type: str = "direct", **kwargs: Any) -> None:
        """Raises ImproperlyConfigured for an exchange of headers."""
        if (type or "direct") not in self.exchange_types:
            raise _refuse(f"exchange {exchange} of type {type}", "use a direct, topic or fanout exchange")
        super().exchange_declare(exchange, type, **kwargs)

    def prepare_queue_arguments(self, arguments: Mapping[str, Any], **kwargs: Any) -> Any:
        """Return the arguments of a queue by the names of AMQP."""
        return base.to_rabbitmq_queue_arguments(arguments, **kwargs)

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Note the properties of a queue. With `passive`, its number of messages is asked from nsqd.

        Raises ImproperlyConfigured, and ChannelError if `passive` and no nsqd has the topic.
        """
        queue = queue or f"amq.gen-{uuid()}"
        is_transient = auto_delete or exclusive
        ttl_ms = _checked_arguments(queue, arguments or {}, is_transient=is_transient)
        depth = 0
        if passive and not is_transient:
            topics = self.connection.servers.topics(nsq_name(queue), self.connection.settings.channel)
            if not topics:
                raise ChannelError(
                    f"NOT_FOUND - no queue {queue!r}", (50, 10), "Channel.queue_declare", "404"
                )
            depth = sum(topics)
        traits = QueueTraits(is_transient, ttl_ms / 1000 if ttl_ms else None, time_ns())
        self.connection.queues.setdefault(queue, traits)
        return queue_declare_ok_t(queue, depth, 0)

    def queue_purge(self, queue: str, **kwargs: Any) -> int:
        """Drop all messages of a queue, also deferred ones and those in flight. Return their number."""
        servers: Servers = self.connection.servers
        return servers.empty(nsq_name(queue), self.connection.settings.channel)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        """Delete the topic of a queue on all nsqds. The topics of transient queues end by themselves."""
        traits = self.connection.queues.pop(queue, None)
        self.state.queue_bindings_delete(queue)
        if traits is not None and traits.is_transient:
            return
        servers = self.connection.servers
        if if_empty and sum(servers.topics(nsq_name(queue), self.connection.settings.channel)):
            return
        servers.delete(nsq_name(queue))

    # ---- publishing

    def basic_publish(
        self,
        message: dict[str, Any],
        exchange: str = "",
        routing_key: str = "",
        immediate: bool = False,
        **kwargs: Any,
    ) -> None:
        """Store a message in the queues that the exchange has for it.

        Raises ImproperlyConfigured for a priority, `immediate`, and a message for which there is no queue.
        """
        properties = message["properties"]
        if properties.get("priority"):
            raise _refuse(
                f"priority {properties['priority']} of a message",
                "use a queue for each priority, with workers of its own",
            )
        if immediate:
            raise _refuse("immediate=True", "publish without it")
        self._inplace_augment_message(message, exchange, routing_key)
        is_transient = properties.get("delivery_mode") == _TRANSIENT
        if not exchange and not routing_key:
            raise ImproperlyConfigured(
                "a message without an exchange needs the name of its queue as routing_key"
            )
        if not exchange:
            self._store(routing_key, message, is_transient=is_transient)
            return
        kind = self.typeof(exchange).type
        queues = self._durable_queues(exchange, routing_key)
        is_broadcast = kind == "fanout" or (is_transient and (kind == "topic" or not queues))
        if not queues and not is_broadcast:
            queues = self._configured_queues(exchange, routing_key)
        for queue in queues:
            self._store(queue, message, is_transient=is_transient)
        if is_broadcast:
            topic = nsq_name(exchange, is_ephemeral=True)
            self.connection.publish(topic, message, is_soon=is_transient)

    def _store(self, queue: str, message: dict[str, Any], *, is_transient: bool) -> None:
        traits = self.connection.queues.get(queue)
        is_ephemeral = is_transient if traits is None else traits.is_transient
        # Each copy has a tag of its own: a worker may consume two queues that got the same message.
        copy = {**message, "properties": {**message["properties"], "delivery_tag": uuid()}}
        self.connection.publish(nsq_name(queue, is_ephemeral=is_ephemeral), copy, is_soon=False)

    def _durable_queues(self, exchange: str, routing_key: str) -> list[str]:
        """Return the queues that outlive their consumers, and that the exchange has for a routing key."""
        try:
            table = self.get_table(exchange)
        except KeyError:
            return []
        found = self.typeof(exchange).lookup(table, exchange, routing_key, None)
        traits = self.connection.queues
        return sorted(queue for queue in found if queue in traits and not traits[queue].is_transient)

    def _configured_queues(self, exchange: str, routing_key: str) -> list[str]:
        """Return the same after declaring the queues of the Celery app, as for a retry. Raises ImproperlyConfigured."""
        for queue in current_app.amqp.queues.values():
            if queue.exchange is not None and queue.exchange.name == exchange:
                queue.bind(self).declare()
        queues = self._durable_queues(exchange, routing_key)
        if not queues:
            raise ImproperlyConfigured(
                f"exchange {exchange}, routing key {routing_key}: no queue is bound to it in this process, and the message "
                "would be lost; add the queue with its binding to task_queues, or declare it before publishing"
            )
        return queues

    # ---- consuming

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], object],
        consumer_tag: str,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Receive the messages of a queue. Raises ImproperlyConfigured for arguments, such as a priority of the consumer."""
        if arguments:
            raise _refuse(
                f"consumer arguments {dict(arguments)} of queue {queue}", "remove consumer_arguments"
            )
        self._sources[consumer_tag] = sources = list(self._new_sources(queue, no_ack))
        self._consumers.add(consumer_tag)
        self._turns.extend(sources)
        self._receivers.update(dict.fromkeys(sources, callback))
        self._share_prefetch()
        for source in sources:
            self.connection.add_source(source, self)

    def _new_sources(self, queue: str, no_ack: bool) -> Iterator[Source]:
        traits = self.connection.queues.get(queue)
        bindings = list(self.state.queue_bindings(queue))
        if traits is None or not traits.is_transient:
            topic = nsq_name(queue)
            consumer = self.connection.new_consumer(topic, self.connection.settings.channel)
            yield Source(queue, consumer, no_ack, ttl_s=traits.ttl_s if traits else None)
            return
        channel = nsq_name(queue, is_ephemeral=True)
        if not bindings:
            consumer = self.connection.new_consumer(nsq_name(queue, is_ephemeral=True), channel)
            yield Source(queue, consumer, no_ack, ttl_s=traits.ttl_s)
        for exchange in dict.fromkeys(binding.exchange for binding in bindings):
            consumer = self.connection.new_consumer(nsq_name(exchange, is_ephemeral=True), channel)
            source = Source(queue, consumer, no_ack, ttl_s=traits.ttl_s)
            self._routes[source] = self._routing(queue, exchange)
            if self.typeof(exchange).type == "fanout":
                # A broadcast without a worker stays in the ephemeral topic: it is not for workers that start later.
                source.since_ns = traits.since_ns
            yield source

    def _routing(self, queue: str, exchange: str) -> Callable[[str], bool]:
        """Return a function that says whether the exchange has this queue for a routing key."""
        kind = self.typeof(exchange)
        table = [row for row in self.get_table(exchange) if row[2] == queue]
        return lambda routing_key: bool(kind.lookup(table, exchange, routing_key, None))

    def basic_cancel(self, consumer_tag: str) -> None:
        """Receive no more messages. Those that the consumer has may still be acknowledged."""
        self._consumers.discard(consumer_tag)
        self._cancelled = [source for source in self._cancelled if source.held]
        for source in self._sources.pop(consumer_tag, ()):
            self._cancelled.append(source)
            self._turns.remove(source)
            self._receivers.pop(source)
            self._end(source)
            self._routes.pop(source, None)
            self._share_prefetch()

    def _end(self, source: Source) -> None:
        if not self.connection.is_own_process:
            return
        source.is_cancelled = True
        self.connection.remove_source(source)
        while source.waiting:
            payload, message = source.waiting.popleft()
            if source.no_ack:
                message.requeue(0, backoff=False)
            else:
                self.connection.deliveries.give_back(_tag_of(payload))
        source.consumer.begin_to_stop(_NEVER_S)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Return the next message of a queue; None if none comes within a second."""
        source = self._getters.get(queue)
        if source is None:
            self._getters[queue] = source = next(self._new_sources(queue, no_ack))
            self.connection.add_source(source, self)
        source.no_ack = no_ack
        source.consumer.allow(source.held + 1)
        deadline_s = monotonic() + _GET_S
        while not source.waiting and (left_s := deadline_s - monotonic()) > 0:
            self.connection.wait_for_news(left_s)
        source.consumer.allow(source.held)
        payload = source.next_payload()
        return None if payload is None else self.Message(payload, channel=self)

    # ---- messages

    @property
    def delivered_count(self) -> int:
        """The number of messages that consumers have and have not acknowledged."""
        return sum(source.held - len(source.waiting) for source in self._turns if not source.no_ack)

    def take(self, source: Source, message: Message) -> None:
        """Sort a message that has arrived: keep it for its consumer, defer it, or drop it."""
        payload = _payload_of(message, source.queue)
        if source.is_too_old(payload, message) or not self._is_for(source, payload):
            message.finish()
            return
        longest_s = self.connection.settings.longest_defer_s
        eta_s = eta_of(payload)
        if eta_s is not None and eta_s - time() > _EARLY_S:
            message.requeue(min(eta_s - time(), longest_s), backoff=False)
            return
        if source in self._routes:  # several queues of this connection may get it
            payload["properties"]["delivery_tag"] = uuid()
        if not source.no_ack and not self.connection.deliveries.is_new(_tag_of(payload), source, message):
            return
        payload["properties"].setdefault("delivery_info", {})["redelivered"] = _is_redelivered(
            message, eta_s, longest_s
        )
        source.waiting.append((payload, message))
        self._share_prefetch()

    def _is_for(self, source: Source, payload: Mapping[str, Any]) -> bool:
        route = self._routes.get(source)
        return route is None or route(payload["properties"].get("delivery_info", {}).get("routing_key", ""))

    def deliver_one(self) -> bool:
        """Call the consumer of the next message. Return False if there is none, or the prefetch count is reached."""
        for _ in range(len(self._turns)):
            source = self._turns[0]
            self._turns.rotate(-1)
            if source.waiting and (source.no_ack or self.qos.can_consume()):
                payload = source.next_payload()
                if payload is not None:
                    self._receivers[source](self.Message(payload, channel=self))
                    return True
        return False

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Finish a message."""
        self._answer(self.connection.deliveries.finish, delivery_tag)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Finish a message or, with `requeue`, let nsqd deliver it again at once."""
        deliveries = self.connection.deliveries
        self._answer(deliveries.give_back if requeue else deliveries.finish, delivery_tag)

    def basic_recover(self, requeue: bool = False) -> None:
        """Let nsqd deliver again what is not acknowledged. Raises NotImplementedError without `requeue`."""
        if not requeue:
            raise NotImplementedError("recover(requeue=False)")
        self._give_back()

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Set how many messages consumers of this channel may have and not have acknowledged; 0 is no limit."""
        self.qos.prefetch_count = prefetch_count
        self._share_prefetch()
        self.connection.wake()

    def close(self) -> None:
        """Cancel all consumers, and let nsqd deliver again what is not acknowledged."""
        if self.closed:
            return
        self.closed = True
        for consumer_tag in list(self._consumers):
            self.basic_cancel(consumer_tag)
        for getter in self._getters.values():
            self._end(getter)
        self._give_back()
        if self.connection is not None:
            self.connection.close_channel(self)

    def _answer(self, answer: Callable[[str], None], delivery_tag: str) -> None:
        if self.connection is None or not self.connection.is_own_process:
            return  # closed, and nsqd has the message again
        answer(delivery_tag)
        self._share_prefetch()
        if any(source.waiting for source in self._turns):
            self.connection.wake()

    def _give_back(self) -> None:
        if self.connection is None or not self.connection.is_own_process:
            return
        self.connection.deliveries.give_back_all([*self._turns, *self._cancelled, *self._getters.values()])

    def _share_prefetch(self) -> None:
        """Let each source request what the prefetch count leaves: a queue must not wait for one that is empty."""
        sources = [source for source in self._turns if not source.no_ack]
        limit = self.qos.prefetch_count or _UNLIMITED
        free = max(0, limit - sum(source.held for source in sources))
        for source in sources:
            source.consumer.allow(limit if len(sources) == 1 else source.held + free)


def _checked_arguments(queue: str, arguments: Mapping[str, Any], *, is_transient: bool) -> int | None:
    """Return the time to live of the queue's messages in ms. Raises ImproperlyConfigured."""
    allowed = (_QUEUE_TTL, _QUEUE_EXPIRES) if is_transient else (_QUEUE_TTL,)
    refused = {
        name: value
        for name, value in arguments.items()
        if value is not None and name not in allowed and _CLASSIC.get(name) != value
    }
    if refused:
        raise _refuse(
            f"arguments {refused} of queue {queue}",
            "remove them from the queue; limits of a topic are settings of nsqd",
        )
    return arguments.get(_QUEUE_TTL)


def _payload_of(message: Message, queue: str) -> dict[str, Any]:
    """Return the message of kombu. What is none becomes one, which Celery reports as an unknown message."""
    try:
        payload = loads(message.body)
        if payload["properties"]["delivery_tag"]:
            return dict(payload)
    except (ValueError, KeyError, TypeError):
        pass
    info = {"exchange": "", "routing_key": queue}
    properties = {"delivery_tag": message.id.decode(), "delivery_info": info, "body_encoding": "base64"}
    return {
        "body": b64encode(message.body).decode(),
        "content-type": "application/octet-stream",
        "content-encoding": "binary",
        "headers": {},
        "properties": properties,
    }


def _tag_of(payload: Mapping[str, Any]) -> str:
    return str(payload["properties"]["delivery_tag"])


def _is_redelivered(message: Message, eta_s: float | None, longest_s: float) -> bool:
    """True if nsqd has delivered the message before, apart from the deliveries that chain a long delay."""
    if eta_s is None:
        return message.attempts > 1
    delay_s = eta_s - message.timestamp_ns / 1e9
    return message.attempts > max(1, ceil(delay_s / longest_s))


# ---- requests over HTTP


class Servers:
    """The nsqds of a connection, asked over HTTP: depths, purges, and what must be deleted."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # It knows to whom the secret may be sent: over TLS only.
        self._access = HttpAccess(settings.options, named=servers_in(settings.https))

    def tcp_addresses(self) -> list[str]:
        """Return the addresses of all nsqds, those of the settings first. Raises LookupFailed if no nsqlookupd answers."""
        found = list(self._settings.nsqds)
        failures: list[LookupFailed] = []
        for lookupd in self._settings.lookupds:
            try:
                found += find_nsqds(lookupd, "", self._settings.options)
            except LookupFailed as error:
                failures.append(error)
        if not found and failures:
            raise failures[0]
        return list(dict.fromkeys(found))

    def check(self) -> None:
        """Connect to some nsqd. Raises NoNsqd if that is not possible, and LookupFailed."""
        reasons: list[NsqClientError] = []
        for address in self.tcp_addresses():
            connection = Connection(address, self._settings.options)
            try:
                connection.open()
            except AtAddress as error:
                reasons.append(error)
                continue
            connection.close()
            return
        texts = "; ".join(map(str, reasons)) or "no nsqlookupd knows an nsqd"
        raise NoNsqd(f"no nsqd can be connected: {texts}", reasons)

    def topics(self, topic: str, channel: str) -> list[int]:
        """Return the number of messages of a queue on each nsqd that has it. Raises OperationalError."""
        query = {"format": "json", "topic": topic, "include_clients": "false"}
        depths = []
        for address in self._http_addresses():
            answer = json.loads(self._ask(address, "GET", "/stats", query) or b"{}")
            for row in answer.get("topics") or ():
                channels = {each["channel_name"]: each for each in row["channels"] or ()}
                found = channels.get(channel)
                waiting = row["depth"] if found is None else found["depth"] + found["deferred_count"]
                depths.append(waiting)
        return depths

    def empty(self, topic: str, channel: str) -> int:
        """Drop the messages of a queue. Return how many waited. Raises OperationalError."""
        count = sum(self.topics(topic, channel))
        for address in self._http_addresses():
            self._ask(address, "POST", "/topic/empty", {"topic": topic})
            self._ask(address, "POST", "/channel/empty", {"topic": topic, "channel": channel})
        return count

    def delete(self, topic: str) -> None:
        """Delete a topic everywhere. Raises OperationalError."""
        for address in self._http_addresses():
            self._ask(address, "POST", "/topic/delete", {"topic": topic})

    def _http_addresses(self) -> list[str]:
        return list(self._settings.https) or [self._http_address(address) for address in self.tcp_addresses()]

    def _http_address(self, address: str) -> str:
        """Ask an nsqd for its HTTP port. Raises OperationalError."""
        connection = Connection(address, self._settings.options)
        try:
            port = connection.open().http_port
            connection.close()
        except AtAddress as error:
            raise OperationalError(str(error)) from error
        if not port:
            raise OperationalError(
                f"{address} does not say its HTTP port; set nsqd_http_addresses in broker_transport_options"
            )
        return join_address(parse_address(address).host or _LOCALHOST, port)

    def _ask(self, address: str, method: str, path: str, query: Mapping[str, str]) -> bytes:
        """Return the answer of an nsqd; empty if it does not have the topic or channel. Raises OperationalError."""
        origin = address if "://" in address else f"http://{address}"
        handlers: list[Any] = [urllib.request.ProxyHandler({})]
        headers: dict[str, str] = {}
        if origin.startswith("https:"):
            context = tls_context(self._settings.options, ssl.SSLContext)
            handlers.append(urllib.request.HTTPSHandler(context=context))
            headers = self._access.headers_for(shown_address(origin).lower())
        request = urllib.request.Request(f"{origin}{path}?{urlencode(query)}", headers=headers, method=method)
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=_HTTP_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _NOT_FOUND:
                    return b""
                text = error.read().decode(errors="replace")
            raise OperationalError(f"{method} {origin}{path}: {error.code} {text}") from error
        except OSError as error:
            raise OperationalError(f"{method} {origin}{path}: {error}") from error


# ---- the transport


class Transport(virtual.Transport):
    """The transport: consumers on one thread, a Producer, and what kombu's event loop waits for.

    It reconnects by itself: kombu and Celery see no lost connection, only a publish that failed for `publish_timeout_s`.
    """

    Channel = NsqChannel
    can_parse_url = True
    default_port = _DEFAULT_PORT
    driver_type = "nsq"
    driver_name = "nsqd-py"
    connection_errors = (*virtual.Transport.connection_errors, NoNsqd, LookupFailed, AtAddress, PumpFailed)
    channel_errors = (*virtual.Transport.channel_errors, PublishFailed)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        """Raises ImproperlyConfigured."""
        super().__init__(client, **kwargs)
        if client.alt:
            raise ImproperlyConfigured(
                "broker_url: one URL has all nsqds, separated by commas, as in nsq://a:4150,b:4150; a worker uses all of them"
            )
        if client.ssl:
            raise ImproperlyConfigured(
                "broker_use_ssl: set tls_v1, tls_root_ca_file, tls_cert and tls_key in broker_transport_options"
            )
        self.settings = Settings.of(client.hostname or "", client.port, client.transport_options)
        self.servers = Servers(self.settings)
        self.deliveries = Deliveries()
        self.queues: dict[str, QueueTraits] = {}
        self._pid = os.getpid()
        self._owners: dict[Source, NsqChannel] = {}
        self._producer: Producer | None = None
        self._soon_count = 0
        self._soon_lock = threading.Lock()
        self._soon_outage = OutageLog(logger, monotonic)
        self._loop: Any = None
        self._made_pump: Pump | None = None

    @property
    def is_own_process(self) -> bool:
        """False in a fork of the process that has connected."""
        return os.getpid() == self._pid

    @property
    def _pump(self) -> Pump:
        """The pump, made when it is first used: a connection that only publishes needs none."""
        if self._made_pump is None:
            self._made_pump = Pump()
            finalize(self, _drop, self._made_pump, self.deliveries).atexit = False
        return self._made_pump

    def driver_version(self) -> str:
        """Return the version of this project."""
        from nsqd_py.version import PROJECT_VERSION

        return PROJECT_VERSION

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the URL as it is: it has no secrets."""
        return uri

    # ---- connections

    def establish_connection(self) -> Any:
        """Raises NoNsqd and LookupFailed if no nsqd can be connected."""
        self.servers.check()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Send all answers, give back what is not answered, and close."""
        if not self.is_own_process:
            return
        super().close_connection(connection)
        if self._loop is not None:
            self.unregister_from_event_loop(connection, self._loop)
        if self._made_pump is not None:
            self._made_pump.stop(_CLOSE_S)
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(_CLOSE_S)
            except NsqClientError as error:
                logger.warning("not all broadcasts and events were sent: %s", error)

    # ---- publishing

    def publish(self, topic: str, payload: dict[str, Any], *, is_soon: bool) -> None:
        """Store a message, deferred until its ETA. With `is_soon` it is sent soon, and dropped if no nsqd takes it.

        Raises ImproperlyConfigured for a delay that nsqd refuses, and otherwise as `publish` of a client does.
        """
        body = dumps(payload).encode()
        eta_s = eta_of(payload)
        if self._producer is None:
            self._producer = Producer(
                nsqd_tcp_addresses=self.settings.nsqds,
                lookupd_http_addresses=self.settings.lookupds,
                options=self.settings.options,
                publish_timeout_s=self.settings.publish_timeout_s,
            )
        if not is_soon:
            delay_s = 0.0 if eta_s is None else eta_s - time()
            defer_s = min(max(0.0, delay_s), self.settings.longest_defer_s)
            self._publish(topic, body, defer_s)
        elif self._soon_count >= _MOST_SOON:
            self._soon_outage.report("no nsqd takes broadcasts and events; they are dropped")
        else:
            with self._soon_lock:
                self._soon_count += 1
            self._producer.publish_soon(topic, body, on_done=self._sent)

    def _publish(self, topic: str, body: bytes, defer_s: float) -> None:
        assert self._producer is not None
        try:
            self._producer.publish(topic, body, defer_s=defer_s)
        except PublishFailed as error:
            if not defer_s or "timeout" not in error.text:
                raise
            raise ImproperlyConfigured(
                f"{error}; set longest_defer_s in broker_transport_options to --max-defer-timeout of nsqd in seconds"
            ) from error

    def _sent(self, error: NsqClientError | None) -> None:
        with self._soon_lock:
            self._soon_count -= 1
        if error is None:
            self._soon_outage.end("broadcasts and events are taken again")

    # ---- consuming

    def new_consumer(self, topic: str, channel: str) -> QueueConsumer:
        """Return a consumer that has not begun."""
        return QueueConsumer(
            topic,
            channel,
            nsqd_tcp_addresses=self.settings.nsqds,
            lookupd_http_addresses=self.settings.lookupds,
            max_in_flight=_UNACKNOWLEDGED,
            options=self.settings.options,
        )

    def add_source(self, source: Source, channel: NsqChannel) -> None:
        """Let the channel have the messages of a source."""
        self._owners[source] = channel
        self._pump.add(source)

    def remove_source(self, source: Source) -> None:
        """Let nsqd deliver again what has arrived from a source and is not sorted."""
        with suppress(PumpFailed):
            self.sort_arrived()
        self._owners.pop(source, None)

    def sort_arrived(self) -> None:
        """Hand messages that have arrived to their channels. Raises PumpFailed."""
        if self._pump.failure is not None:
            raise PumpFailed(f"messages are not received any more: {self._pump.failure!r}")
        arrived = self._pump.arrived
        while arrived:
            source, message = arrived.popleft()
            channel = self._owners.get(source)
            if channel is None or source.is_cancelled:
                message.requeue(0, backoff=False)
            else:
                channel.take(source, message)

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait until messages arrive, or for the time-out, and sort what is there."""
        self._pump.news.wait((), timeout_s)
        self.sort_arrived()

    def wake(self) -> None:
        """Let the event loop, or `drain_events`, deliver messages that wait."""
        self._pump.news.wake()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message. Raises TimeoutError."""
        deadline_s = None if timeout is None else monotonic() + timeout
        self.wait_for_news(0.0)
        while not self._deliver_one():
            left_s = _LONGEST_WAIT_S if deadline_s is None else deadline_s - monotonic()
            if left_s <= 0:
                raise TimeoutError
            self.wait_for_news(min(left_s, _LONGEST_WAIT_S))

    def _deliver_one(self) -> bool:
        return any(channel.deliver_one() for channel in list(self.channels))

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let an event loop of kombu deliver messages when they arrive."""
        self._loop = loop
        loop.add_reader(self._pump.news.fileno(), self._on_news)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """Undo `register_with_event_loop`."""
        self._loop = None
        with suppress(OSError, ValueError):
            loop.remove_reader(self._pump.news.fileno())

    def _on_news(self) -> None:
        self.wait_for_news(0.0)
        while self._deliver_one():
            pass


def _drop(pump: Pump, deliveries: Deliveries) -> None:
    """End what a connection that was dropped without `close` has left."""
    if pump.is_own_process:
        pump.abandon(deliveries)


TRANSPORT_ALIASES[SCHEME] = _PATH
