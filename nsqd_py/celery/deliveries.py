"""The messages that a connection of kombu has: where they come from, and which are not answered."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic, time_ns
from typing import Any

from nsqd_py.client.blocking.consuming_core import NonBlockingConsumer
from nsqd_py.client.blocking.lookup import Finder
from nsqd_py.client.message import Message

# How long a connection must last after a FIN before the FIN counts as kept: nsqd writes journals 20 times a second, and
# syncs them every 2 s.
_KEPT_S = 5.0
_MOST_DOUBTFUL = 10_000


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
        limits_s = []
        if self.ttl_s is not None:
            limits_s = [self.ttl_s]
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
