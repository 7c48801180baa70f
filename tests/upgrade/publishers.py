"""Publishers under whose load a cluster is upgraded, and its consumers."""

from __future__ import annotations

from collections import Counter
from functools import partial

from nsqd_py.client import Consumer, Message, Producer
from tests.support.background import DEADLINE_S, Background
from tests.support.ledger import History
from tests.support.nsqd_process import wait_until

TOPIC = "orders"
PUBLISHERS = 3
PAUSE_S = 0.002
BETWEEN = 100  # messages between two steps


def noting_consumer(history: History, received: Counter[str], channel: str, lookupd: str) -> Consumer:
    """Return a consumer that notes all messages in a history, and counts them by channel."""

    def handle(message: Message) -> None:
        history.delivered(TOPIC, channel, bytes(message.body))
        received[channel] += 1

    settings = {"max_in_flight": 50, "lookupd_poll_interval": 0.2, "max_attempts": 0}
    return Consumer(TOPIC, channel, handle, lookupd_http_addresses=lookupd, **settings)


class Publishers(Background):
    """Threads that share a producer with the addresses of all nsqds. Any error of a publish ends the test."""

    def __init__(self, history: History, addresses: list[str]) -> None:
        super().__init__(*(partial(self._publish, number) for number in range(PUBLISHERS)))
        self._history = history
        self._producer = Producer(*addresses)

    def __exit__(self, *_: object) -> None:
        with self._producer:
            super().__exit__()

    def go_on(self) -> None:
        """Return when some more messages are stored."""
        goal = self._history.acknowledged + BETWEEN
        wait_until(
            lambda: self._history.acknowledged >= goal or any(call.done() for call in self.running),
            DEADLINE_S,
            "more messages to be stored",
        )

    def _publish(self, number: int) -> None:
        count = 0
        while not self.is_over.wait(PAUSE_S):
            body = b"%d.%d" % (number, count)
            publish = self._history.sending(TOPIC, [body], resends=True)
            self._producer.publish(TOPIC, body)
            self._history.ok(publish)
            count += 1
