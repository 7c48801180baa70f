"""Publishers under whose load a cluster is upgraded, and its consumers."""

from __future__ import annotations

from functools import partial

from nsqd_py.client import Consumer, Message, Producer
from tests.support.background import DEADLINE_S, Background
from tests.support.nsqd_process import wait_until

TOPIC = "orders"
PUBLISHERS = 3
PAUSE_S = 0.002
BETWEEN = 100  # messages between two steps


def consumer_into(received: set[bytes], channel: str, lookupd: str) -> Consumer:
    """Return a consumer that puts the bodies of all messages into a set."""

    def handle(message: Message) -> None:
        received.add(bytes(message.body))

    settings = {"max_in_flight": 50, "lookupd_poll_interval": 0.2, "max_attempts": 0}
    return Consumer(TOPIC, channel, handle, lookupd_http_addresses=lookupd, **settings)


class Publishers(Background):
    """Threads that share a producer with the addresses of all nsqds. Any error of a publish ends the test."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(*(partial(self._publish, number) for number in range(PUBLISHERS)))
        self.acknowledged: list[bytes] = []
        self._producer = Producer(*addresses)

    def __exit__(self, *_: object) -> None:
        with self._producer:
            super().__exit__()

    def go_on(self) -> None:
        """Return when some more messages are stored."""
        goal = len(self.acknowledged) + BETWEEN
        wait_until(
            lambda: len(self.acknowledged) >= goal or any(call.done() for call in self.running),
            DEADLINE_S,
            "more messages to be stored",
        )

    def _publish(self, number: int) -> None:
        count = 0
        while not self.is_over.wait(PAUSE_S):
            body = b"%d.%d" % (number, count)
            self._producer.publish(TOPIC, body)
            self.acknowledged.append(body)
            count += 1
