"""nsq-to-http: each message is sampled, sent to one host or to all, and finished or requeued, until a signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from time import monotonic
from typing import Protocol

from nsq_tools.cli import DONE
from nsq_tools.clients import http_client, make_consumer
from nsq_tools.hosts import AGGREGATE, HostShares, Timings
from nsq_tools.to_http.options import ALL, ToHttpOptions
from nsq_tools.to_http.requests import HttpRequest, headers_of, make_requests
from nsq_tools.to_http.sender import HttpSender, NotDelivered
from nsqd_py.client.message import Message, Requeue
from nsqd_py.net.http.client import limit_s
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.process import StopSignals, raise_descriptor_limit

# Time to wait at the stop for requests, if they have no time-out.
PATIENCE_S = 30.0
# Added to the time of a request, so that its message is answered.
_MARGIN_S = 5.0

Clock = Callable[[], float]


def run(options: ToHttpOptions, log: Log) -> int:
    """Send messages until a stop signal. Requests that are being sent then are completed first."""
    raise_descriptor_limit()
    sender = HttpSender(http_client(options), log)
    delivery = make_delivery(options, sender, log)
    handler = Handler(delivery, options.sample, Random(), log)
    consumer = make_consumer(options, "nsq_to_http", options.topic, log, handler=handler, concurrency=options.n)
    with StopSignals() as signals:
        consumer.start()
        signals.wait()
        delivery.stop_retrying()
        consumer.stop(timeout_s=(limit_s(options.http_client_request_timeout_ns) or PATIENCE_S) + _MARGIN_S)
    sender.close()
    return DONE


def make_delivery(options: ToHttpOptions, sender: HttpSender, log: Log) -> HttpDelivery:
    requests = make_requests(options, headers_of(options))
    timings = Timings(requests, options.status_every, log)
    if options.mode == ALL:
        return ToAll(requests, sender, timings, monotonic)
    shares = HostShares(options.mode, list(requests), min(options.n, options.max_in_flight), Random())
    return ToOne(requests, shares, sender, timings, log, monotonic)


class HttpDelivery(Protocol):
    """Sends a message to one or several servers."""

    def deliver(self, body: bytes) -> None:
        """Send the message and wait for the response. Raises NotDelivered."""

    def stop_retrying(self) -> None:
        """Do not retry any more, because the tool is stopping."""


class Handler:
    """The message handler of a Consumer: a message is finished when it returns, and requeued when it raises Requeue."""

    def __init__(self, delivery: HttpDelivery, sample: float, random: Random, log: Log) -> None:
        """`sample` is the share of the messages that is sent, from 0 to 1."""
        self._delivery = delivery
        self._sample = sample
        self._random = random
        self._log = log

    def __call__(self, message: Message) -> None:
        if self._sample < 1.0 and self._random.random() >= self._sample:
            return
        try:
            self._delivery.deliver(message.body)
        except NotDelivered as failure:
            self._log.of_clients.warning(
                "%s; message %s is requeued, attempt %d", failure, message.id.decode("latin-1"), message.attempts
            )
            raise Requeue() from failure


class ToOne:
    """Delivery to one of the hosts. If a host does not respond, the next is tried; any response is final."""

    def __init__(
        self,
        requests: Mapping[str, HttpRequest],
        shares: HostShares,
        sender: HttpSender,
        timings: Timings,
        log: Log,
        clock: Clock,
    ) -> None:
        """`requests` has the host as key; `clock` returns monotonic seconds."""
        self._requests = requests
        self._shares = shares
        self._sender = sender
        self._timings = timings
        self._log = log
        self._clock = clock
        self._is_stopping = False

    def stop_retrying(self) -> None:
        self._is_stopping = True

    def deliver(self, body: bytes) -> None:
        began_s = self._clock()
        tried: set[str] = set()
        host = self._shares.take(began_s)
        while host is not None:
            try:
                self._send(host, body)
            except NotDelivered as failure:
                tried.add(host)
                host = self._elsewhere(failure, tried)
                if host is None:
                    raise
            else:
                self._timings.add(self._clock() - began_s, host, AGGREGATE)
                return

    def _send(self, host: str, body: bytes) -> None:
        began_s = self._clock()
        is_good = False
        try:
            self._sender.send(self._requests[host], body)
            is_good = True
        finally:
            now_s = self._clock()
            self._shares.give_back(host, is_good, now_s - began_s, now_s)

    def _elsewhere(self, failure: NotDelivered, tried: set[str]) -> str | None:
        """Return another host to try, or None."""
        if failure.is_answer or self._is_stopping:
            return None
        host = self._shares.take(self._clock(), tried)
        if host is not None:
            self._log.of_clients.warning("%s; trying %s", failure, self._requests[host].name)
        return host


class ToAll:
    """Delivery to every host, one after the other. If one fails, the message is requeued, and sent to all again."""

    def __init__(self, requests: Mapping[str, HttpRequest], sender: HttpSender, timings: Timings, clock: Clock) -> None:
        """The arguments are those of `ToOne`."""
        self._requests = requests
        self._sender = sender
        self._timings = timings
        self._clock = clock

    def stop_retrying(self) -> None:
        """Do nothing: this delivery does not retry."""

    def deliver(self, body: bytes) -> None:
        all_began_s = self._clock()
        for host, request in self._requests.items():
            began_s = self._clock()
            self._sender.send(request, body)
            self._timings.add(self._clock() - began_s, host)
        self._timings.add(self._clock() - all_began_s, AGGREGATE)
