"""What becomes of a message: sample, choose a host, send, try elsewhere, requeue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from nsq_tools.hosts import Places, Random
from nsq_tools.timings import TimingsByHost
from nsq_tools.to_http.requests import Request
from nsq_tools.to_http.sender import NotDelivered, Sender
from nsqd_py.client.message import Message, Requeue
from nsqd_py.runtime.logs import Log

Clock = Callable[[], float]


class Delivery(Protocol):
    """Brings a message where it has to go."""

    def deliver(self, body: bytes) -> None:
        """Returns when it is there. Raises NotDelivered."""

    def hurry(self) -> None:
        """The tool is about to end: no second tries."""


class Handler:
    """Handles the messages of a Consumer: what returns from it is finished, what raises Requeue is requeued."""

    def __init__(self, delivery: Delivery, sample: float, random: Random, log: Log) -> None:
        """`sample` is the part of the messages that is sent, 0 to 1."""
        self._delivery = delivery
        self._sample = sample
        self._random = random
        self._log = log

    def __call__(self, message: Message) -> None:
        if self._sample < 1.0 and self._random() >= self._sample:
            return
        try:
            self._delivery.deliver(message.body)
        except NotDelivered as failure:
            self._log.warning("%s; message %s is requeued, attempt %d", failure, message.id.decode(), message.attempts)
            raise Requeue() from failure


class ToOne:
    """To one of the hosts. One that does not answer is passed over for the next; what one answers is final."""

    def __init__(
        self,
        requests: Mapping[str, Request],
        places: Places,
        sender: Sender,
        timings: TimingsByHost,
        log: Log,
        clock: Clock,
    ) -> None:
        """`requests` by host; `clock` gives monotonic seconds."""
        self._requests = requests
        self._places = places
        self._sender = sender
        self._timings = timings
        self._log = log
        self._clock = clock
        self._is_in_a_hurry = False

    def hurry(self) -> None:
        self._is_in_a_hurry = True

    def deliver(self, body: bytes) -> None:
        began_s = self._clock()
        tried: set[str] = set()
        host = self._places.take(began_s)
        while host is not None:
            try:
                self._send(host, body)
            except NotDelivered as failure:
                tried.add(host)
                host = self._elsewhere(failure, tried)
                if host is None:
                    raise
            else:
                self._timings.add(host, self._clock() - began_s)
                return

    def _send(self, host: str, body: bytes) -> None:
        began_s = self._clock()
        is_good = False
        try:
            self._sender.send(self._requests[host], body)
            is_good = True
        finally:
            now_s = self._clock()
            self._places.give_back(host, is_good, now_s - began_s, now_s)

    def _elsewhere(self, failure: NotDelivered, tried: set[str]) -> str | None:
        """The host that may have it instead, if any."""
        if failure.is_answer or self._is_in_a_hurry:
            return None
        host = self._places.take(self._clock(), tried)
        if host is not None:
            self._log.warning("%s; trying %s", failure, self._requests[host].name)
        return host


class ToAll:
    """To each of the hosts, one after the other. What one of them does not take is sent to all again, later."""

    def __init__(
        self, requests: Mapping[str, Request], sender: Sender, timings: TimingsByHost, clock: Clock
    ) -> None:
        """As for `ToOne`."""
        self._requests = requests
        self._sender = sender
        self._timings = timings
        self._clock = clock

    def hurry(self) -> None:
        """There are no second tries."""

    def deliver(self, body: bytes) -> None:
        all_began_s = self._clock()
        for host, request in self._requests.items():
            began_s = self._clock()
            self._sender.send(request, body)
            self._timings.add_to_one(host, self._clock() - began_s)
        self._timings.add_to_all(self._clock() - all_began_s)
