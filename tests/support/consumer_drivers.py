"""Both consumers behind the same few methods, so that a test can be run on each."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

import gevent

from nsqd_py.client import blocking
from nsqd_py.client.consumer import Consumer
from nsqd_py.client.consuming.base import BaseConsumer
from nsqd_py.client.consuming.subscription import ConsumerStats

DEADLINE_S = 15.0
_POLL_S = 0.005

T = TypeVar("T")


class GeventDriver:
    """The consumer works while the test waits."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.consumer = Consumer(*args, **settings)
        self.consumer.start()

    def wait(self, condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        """Let it work until the answer is true, and return it."""
        ends_s = monotonic() + deadline_s
        while not (answer := condition()):
            assert monotonic() < ends_s, f"waited in vain, last was {answer!r}; {self.stats()}"
            gevent.sleep(_POLL_S)
        return answer

    def stats(self) -> ConsumerStats:
        return self.consumer.stats()

    def close(self) -> None:
        self.consumer.stop(timeout_s=0)


class BlockingDriver:
    """Likewise."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.consumer = blocking.Consumer(*args, **settings)
        self.consumer.start()

    def wait(self, condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        ends_s = monotonic() + deadline_s
        while not (answer := condition()):
            assert monotonic() < ends_s, f"waited in vain, last was {answer!r}; {self.stats()}"
            self.consumer.handle_next(_POLL_S)
        return answer

    def stats(self) -> ConsumerStats:
        return self.consumer.stats()

    def close(self) -> None:
        self.consumer.stop()


Driver = GeventDriver | BlockingDriver

DRIVERS: dict[str, type[GeventDriver] | type[BlockingDriver]] = {"gevent": GeventDriver, "blocking": BlockingDriver}
KINDS: dict[str, type[BaseConsumer]] = {"gevent": Consumer, "blocking": blocking.Consumer}
