"""Publishers under whose load a cluster is upgraded."""

from __future__ import annotations

import threading

from nsqd_py.client import Producer
from tests.support.nsqd_process import wait_until

TOPIC = "orders"
PUBLISHERS = 3
PAUSE_S = 0.002
BETWEEN = 100  # messages between two steps
DEADLINE_S = 60.0  # of what takes a second on an idle machine


class Publishers:
    """Threads that share a producer with the addresses of all nsqds. Any error of a publish ends the test."""

    def __init__(self, addresses: list[str]) -> None:
        self.acknowledged: list[bytes] = []
        self._producer = Producer(*addresses)
        self._errors: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._publish, args=(number,)) for number in range(PUBLISHERS)]

    def __enter__(self) -> Publishers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        self._producer.close()
        assert self._errors == []

    def go_on(self) -> None:
        """Return when some more messages are stored."""
        goal = len(self.acknowledged) + BETWEEN
        wait_until(lambda: len(self.acknowledged) >= goal or self._errors, DEADLINE_S, "more messages to be stored")

    def _publish(self, number: int) -> None:
        count = 0
        try:
            while not self._over.wait(PAUSE_S):
                body = b"%d.%d" % (number, count)
                self._producer.publish(TOPIC, body)
                self.acknowledged.append(body)
                count += 1
        except BaseException as error:
            self._errors.append(error)
            raise
