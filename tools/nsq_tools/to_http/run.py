"""nsq-to-http: each message is sampled, sent to one host or to all, and finished or requeued, until a signal."""

from __future__ import annotations

from random import Random
from time import monotonic

from nsq_tools.clients import STOP_TIMEOUT_S, make_consumer
from nsq_tools.hosts import AGGREGATE, HostBalancer, Timings
from nsq_tools.to_http.options import ALL, ToHttpOptions
from nsq_tools.to_http.requests import headers_of, make_requests
from nsq_tools.to_http.sender import HttpSender, NotDelivered
from nsqd_py.client.message import Message, Requeue
from nsqd_py.net.http.client import http_client
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.process import StopSignals, raise_descriptor_limit
from nsqd_py.settings.program import DONE


def run(options: ToHttpOptions, log: Log) -> int:
    """Send messages until a stop signal. Requests that are being sent then may take STOP_TIMEOUT_S more."""
    raise_descriptor_limit()
    sender = HttpSender(http_client(options, log.error))
    delivery = HttpDelivery(options, sender, log)
    consumer = make_consumer(
        options, "nsq_to_http", options.topic, log, handler=delivery.handle, concurrency=options.n
    )
    with StopSignals() as signals:
        consumer.start()
        signals.wait()
        delivery.is_stopping = True
        consumer.stop(STOP_TIMEOUT_S)
    sender.close()
    return DONE


class HttpDelivery:
    """Sends messages to one of the hosts each, or to all hosts.

    is_stopping  True if no other host is tried after a failure
    """

    def __init__(self, options: ToHttpOptions, sender: HttpSender, log: Log) -> None:
        self.is_stopping = False
        self._requests = make_requests(options, headers_of(options))
        self._sender = sender
        self._log = log
        self._sample = options.sample
        self._random = Random()
        self._timings = Timings(self._requests, options.status_every, log)
        self._balancer: HostBalancer | None = None
        if options.mode != ALL:
            most = min(options.n, options.max_in_flight)
            self._balancer = HostBalancer(options.mode, list(self._requests), most, self._random)

    def handle(self, message: Message) -> None:
        """Send a message, unless it is not in the sample. Raises Requeue if a host did not take it."""
        if self._sample < 1.0 and self._random.random() >= self._sample:
            return
        began_s = monotonic()
        try:
            if self._balancer is None:
                self._send_to_all(message.body)
            else:
                self._send_to_one(self._balancer, message.body, began_s)
        except NotDelivered as failure:
            self._log.of_clients.warning(
                "%s; message %s is requeued, attempt %d",
                failure,
                message.id.decode("latin-1"),
                message.attempts,
            )
            raise Requeue() from failure
        self._timings.add(monotonic() - began_s, AGGREGATE)

    def _send_to_all(self, body: bytes) -> None:
        for host, request in self._requests.items():
            began_s = monotonic()
            self._sender.send(request, body)
            self._timings.add(monotonic() - began_s, host)

    def _send_to_one(self, balancer: HostBalancer, body: bytes, began_s: float) -> None:
        """If a host does not respond, the next is tried; any response is final."""
        tried: set[str] = set()
        failure: NotDelivered | None = None
        while (host := balancer.take(monotonic(), tried)) is not None:
            if failure is not None:
                self._log.of_clients.warning("%s; trying %s", failure, self._requests[host].name)
            failure = self._try(balancer, host, body)
            if failure is None:
                self._timings.add(monotonic() - began_s, host)
                return
            tried.add(host)
            if failure.is_answer or self.is_stopping:
                break
        raise failure or AssertionError("there is no host")

    def _try(self, balancer: HostBalancer, host: str, body: bytes) -> NotDelivered | None:
        """Return the failure, or None after a 2xx response."""
        began_s = monotonic()
        failure = None
        try:
            self._sender.send(self._requests[host], body)
        except NotDelivered as error:
            failure = error.with_traceback(None)
        now_s = monotonic()
        balancer.give_back(host, failure is None, now_s - began_s, now_s)
        return failure
