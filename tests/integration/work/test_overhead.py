"""What a handler of an app costs more than one of the client: processor time a message, both in one run, alternately."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from nsqd_py.client import Consumer, Message
from nsqd_py.work import App

pytestmark = [pytest.mark.ours, pytest.mark.slow, pytest.mark.alone]

MOST_US = 25.0
COUNT, ROUNDS = 20_000, 5
BODY = b'{"id": 12345, "paid": true}'


class Arrivals:
    """Counts calls, and knows when all have come."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.are_all = threading.Event()

    def add(self) -> None:
        if next(self._numbers) == COUNT:
            self.are_all.set()


def cpu_us(start: Callable[[Arrivals], Any]) -> float:
    """Return the processor time of this process a message. `start` returns what is stopped at the end."""
    arrivals = Arrivals()
    began_s = time.process_time()
    with start(arrivals):
        assert arrivals.are_all.wait(120)
    return (time.process_time() - began_s) / COUNT * 1e6


@pytest.mark.parametrize("time_limit_s", [None, 60])
def test_a_message_costs_little_more_than_with_the_client(shared_nsqd, address, topic, time_limit_s) -> None:
    def of_client(arrivals: Arrivals) -> Any:
        def handle(message: Message) -> None:
            arrivals.add()

        return Consumer(topic, "client", handle, nsqd_tcp_addresses=address, max_in_flight=100)

    def of_app(arrivals: Arrivals) -> Any:
        app = App(nsqd_tcp_addresses=address)

        @app.handler(topic, channel="app", max_in_flight=100, time_limit_s=time_limit_s)
        def handle(order: dict) -> None:
            arrivals.add()

        return app.start()

    shared_nsqd.create(topic, "client", "app")
    overheads = []
    for _ in range(ROUNDS):
        for _ in range(COUNT // 1000):
            shared_nsqd.mpub(topic, [BODY] * 1000)
        bare_us = cpu_us(of_client)
        overheads.append(cpu_us(of_app) - bare_us)
        print(f"client {bare_us:.1f} us, app {overheads[-1]:+.1f} us")
    assert statistics.median(overheads) <= MOST_US
