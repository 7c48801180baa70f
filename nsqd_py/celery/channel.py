"""A channel of kombu: its queues and exchanges, what it publishes, and its consumers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic, time, time_ns
from typing import Any

from amqp.protocol import queue_declare_ok_t
from celery import current_app
from celery.exceptions import ImproperlyConfigured
from kombu.exceptions import ChannelError
from kombu.transport import base, virtual
from kombu.utils.uuid import uuid

from nsqd_py.celery.deliveries import Source
from nsqd_py.celery.payloads import eta_of, is_redelivered, payload_of, tag_of
from nsqd_py.celery.servers import Servers
from nsqd_py.celery.settings import nsq_name, refusal
from nsqd_py.client.message import Message

_EARLY_S = 1.0  # a task comes this long before its ETA at most; the worker's timer does the rest
_UNLIMITED = 2500  # messages in flight where Celery sets no limit; the default of nsqd's --max-rdy-count
_TRANSIENT = 1  # AMQP's delivery mode of messages that need not survive
_GET_S = 1.0  # how long `basic_get` waits for a message
_NEVER_S = 1e9

_QUEUE_TTL = "x-message-ttl"
_QUEUE_EXPIRES = "x-expires"
_CLASSIC = {"x-queue-type": "classic"}


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

    def __init__(self, connection: Any, **kwargs: Any) -> None:
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
            raise refusal(f"exchange {exchange} of type {type}", "use a direct, topic or fanout exchange")
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
            raise refusal(
                f"priority {properties['priority']} of a message",
                "use a queue for each priority, with workers of its own",
            )
        if immediate:
            raise refusal("immediate=True", "publish without it")
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
            raise refusal(
                f"consumer arguments {dict(arguments)} of queue {queue}", "remove consumer_arguments"
            )
        sources = list(self._new_sources(queue, no_ack))
        self._sources[consumer_tag] = sources
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

        def has_queue(routing_key: str) -> bool:
            return bool(kind.lookup(table, exchange, routing_key, None))

        return has_queue

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
                self.connection.deliveries.give_back(tag_of(payload))
        source.consumer.begin_to_stop(_NEVER_S)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Return the next message of a queue; None if none comes within a second."""
        source = self._getters.get(queue)
        if source is None:
            source = next(self._new_sources(queue, no_ack))
            self._getters[queue] = source
            self.connection.add_source(source, self)
        source.no_ack = no_ack
        source.consumer.allow(source.held + 1)
        deadline_s = monotonic() + _GET_S
        while not source.waiting and (left_s := deadline_s - monotonic()) > 0:
            self.connection.wait_for_news(left_s)
        source.consumer.allow(source.held)
        payload = source.next_payload()
        if payload is None:
            return None
        return self.Message(payload, channel=self)

    # ---- messages

    @property
    def delivered_count(self) -> int:
        """The number of messages that consumers have and have not acknowledged."""
        return sum(source.held - len(source.waiting) for source in self._turns if not source.no_ack)

    def take(self, source: Source, message: Message) -> None:
        """Sort a message that has arrived: keep it for its consumer, defer it, or drop it."""
        payload = payload_of(message, source.queue)
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
        if not source.no_ack and not self.connection.deliveries.is_new(tag_of(payload), source, message):
            return
        payload["properties"].setdefault("delivery_info", {})["redelivered"] = is_redelivered(
            message, eta_s, longest_s
        )
        source.waiting.append((payload, message))
        self._share_prefetch()

    def _is_for(self, source: Source, payload: Mapping[str, Any]) -> bool:
        route = self._routes.get(source)
        if route is None:
            return True
        return route(payload["properties"].get("delivery_info", {}).get("routing_key", ""))

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
        sources = [*self._turns, *self._cancelled, *self._getters.values()]
        self.connection.deliveries.give_back_all(sources)

    def _share_prefetch(self) -> None:
        """Let each source request what the prefetch count leaves: a queue must not wait for one that is empty."""
        sources = [source for source in self._turns if not source.no_ack]
        limit = self.qos.prefetch_count or _UNLIMITED
        free = max(0, limit - sum(source.held for source in sources))
        for source in sources:
            allowed = limit
            if len(sources) != 1:
                allowed = source.held + free
            source.consumer.allow(allowed)


def _checked_arguments(queue: str, arguments: Mapping[str, Any], *, is_transient: bool) -> int | None:
    """Return the time to live of the queue's messages in ms. Raises ImproperlyConfigured."""
    allowed = (_QUEUE_TTL, _QUEUE_EXPIRES) if is_transient else (_QUEUE_TTL,)
    refused = {}
    for name, value in arguments.items():
        if value is not None and name not in allowed and _CLASSIC.get(name) != value:
            refused[name] = value
    if refused:
        raise refusal(
            f"arguments {refused} of queue {queue}",
            "remove them from the queue; limits of a topic are settings of nsqd",
        )
    return arguments.get(_QUEUE_TTL)
