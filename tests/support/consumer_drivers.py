"""All consumers behind the same few methods, so that a test can be run on each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import gevent
import gevent.event

from nsqd_py.client import Consumer as ThreadedConsumer
from nsqd_py.client.consuming.subscription import ConsumerStats
from nsqd_py.client.gevent import Consumer as GeventConsumer
from tests.support.aio_client import AioConsumer

DEADLINE_S = 40.0
_POLL_S = 0.005

T = TypeVar("T")


class Shell(NamedTuple):
    """One kind of client, with what its handlers and its tests wait by.

    spawn  runs a call next to the test; the result has `get(timeout=seconds)`
    """

    consumer: Any
    event: Any
    sleep: Callable[[float], object]
    spawn: Callable[[Callable[[], object]], Any]

    def wait(self, condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        """Wait until the answer is true, and return it. Clients work in the meantime."""
        ends_s = monotonic() + deadline_s
        while not (answer := condition()):
            assert monotonic() < ends_s, f"waited without effect, last was {answer!r}"
            self.sleep(_POLL_S)
        return answer


class _Call:
    """A call in a thread."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._future: Future[object] = Future()
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self._future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - `get` raises it
            self._future.set_exception(error)

    def ready(self) -> bool:
        return self._future.done()

    def get(self, timeout: float) -> object:
        return self._future.result(timeout)


SHELLS = {
    "aio": Shell(AioConsumer, threading.Event, time.sleep, _Call),
    "gevent": Shell(GeventConsumer, gevent.event.Event, gevent.sleep, gevent.spawn),
    "threads": Shell(ThreadedConsumer, threading.Event, time.sleep, _Call),
}


class Driver:
    """A consumer that is started, and works while the test waits."""

    def __init__(self, shell: str, *args: Any, **settings: Any) -> None:
        self.shell = SHELLS[shell]
        self.consumer = self.shell.consumer(*args, **settings)
        self.consumer.start()

    def wait(self, condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        """Let it work until the answer is true, and return it."""
        try:
            return self.shell.wait(condition, deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.stats()}") from None

    def stats(self) -> ConsumerStats:
        return self.consumer.stats()

    def close(self) -> None:
        self.consumer.stop(timeout_s=0)
