"""The client on gevent, for programs whose threads are greenlets: the tools of this project, and servers on gevent.

    from nsqd_py.client.gevent import Producer, Consumer

They are the blocking clients with greenlets instead of threads. Greenlets of one thread may share one.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - gevent resolves host names with it, and it cannot be imported at the end
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any

import gevent
from gevent import select, socket
from gevent.hub import Waiter

from nsqd_py.client.blocking import consumer, producer
from nsqd_py.client.blocking.backend import Backend
from nsqd_py.client.consuming.base import ENDINGS
from nsqd_py.client.errors import NsqClientError, WrongPlace
from nsqd_py.client.process import refuse_in_event_loop
from nsqd_py.client.publishing.base import pinged
from nsqd_py.net.socket_buffers import literal_target
from nsqd_py.runtime.threads import GreenletLock

if TYPE_CHECKING:
    from typing import Unpack

    from nsqd_py.client.publishing.base import ProducerKeywords

__all__ = ["Consumer", "Producer", "PublishFuture", "connect"]

_READ = 1
_SLICE_S = 0.01  # how often a worker that never waits lets others run: heartbeats, answers, other handlers


class GeventPoller:
    """Waits for descriptors, as `Poller`. All methods belong to the greenlets of one thread."""

    def __init__(self) -> None:
        self._hub = gevent.get_hub()
        self._watchers: dict[int, Any] = {}
        self._waiter: Waiter[None] | None = None
        self._found: set[int] = set()
        self._is_woken = False

    @property
    def is_waiting(self) -> bool:
        return self._waiter is not None

    def wait(self, descriptors: Collection[int], timeout_s: float) -> set[int]:
        """Return those that can be read, as soon as there are any; none after the time-out, or when woken."""
        if self._watchers.keys() != set(descriptors):
            self.close()
            self._watchers = {descriptor: self._hub.loop.io(descriptor, _READ) for descriptor in descriptors}
        found: set[int] = set()
        self._found = found
        timer = self._hub.loop.timer(0.0 if self._is_woken else timeout_s)
        self._waiter = Waiter(self._hub)
        try:
            timer.start(self._resume)
            for descriptor, watcher in self._watchers.items():
                watcher.start(self._add, descriptor)
            self._waiter.get()
        finally:
            self._waiter = None
            self._is_woken = False
            timer.close()
            for watcher in self._watchers.values():
                watcher.stop()
        return found

    def _add(self, descriptor: int) -> None:
        self._found.add(descriptor)
        self._resume()

    def _resume(self) -> None:
        if self._waiter is not None:
            self._waiter.switch(None)

    def wake(self) -> None:
        """End a `wait`, or the next one."""
        if not self._is_woken:
            self._is_woken = True
            self._hub.loop.run_callback(self._resume)

    def close(self) -> None:
        """Drop the watchers. A greenlet that waits is woken no more: it belongs to the parent of this process."""
        self._waiter = None
        for watcher in self._watchers.values():
            watcher.close()
        self._watchers = {}


class WaitLock(GreenletLock):
    """A lock whose time-outs are no exceptions.

    Ctrl-C at the wrong step leaves a time-out of gevent behind, which is raised later, wherever the greenlet is then. A
    timer that is left behind here wakes no one.
    """

    __slots__ = ()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Return False after `timeout` seconds; a negative number means no limit."""
        if blocking and timeout >= 0:
            ends_s = monotonic() + timeout
            while not self._is_free.is_set() and (left_s := ends_s - monotonic()) > 0:
                self._wait(left_s)
            blocking = False
        return super().acquire(blocking)

    def _wait(self, timeout_s: float) -> None:
        hub = gevent.get_hub()
        waiter: Waiter[object] = Waiter(hub)
        timer = hub.loop.timer(timeout_s)
        try:
            timer.start(waiter.switch, None)
            self._is_free.rawlink(waiter.switch)
            waiter.get()
        finally:
            timer.close()
            self._is_free.unlink(waiter.switch)


class Greenlets(Backend):
    """Greenlets of one thread, and what they wait with."""

    socket, select = socket, select

    def __init__(self) -> None:
        self._hub = gevent.get_hub()
        self._slice_ends_s = 0.0

    def make_lock(self) -> Any:
        return WaitLock()

    def make_answer_lock(self) -> AbstractContextManager[object]:
        return nullcontext()  # nothing that it guards waits

    def make_poller(self) -> Any:
        return GeventPoller()

    def current(self) -> object:
        return gevent.getcurrent()

    def spawn(self, name: str, call: Callable[..., object], *args: object) -> Any:
        return gevent.spawn(call, *args)

    def kill(self, task: Any) -> None:
        if isinstance(task, gevent.Greenlet):
            task.kill(block=False)

    def refuse_to_wait(self, method: str) -> None:
        if not self.is_usable:
            raise WrongPlace(
                f"{method} of a client on gevent belongs to one thread: use nsqd_py.client, or a client for each thread"
            )
        refuse_in_event_loop(method)

    def yield_if_due(self) -> None:
        if monotonic() > self._slice_ends_s:
            # `sleep(0)` may return 50 times before the loop polls its sockets; a timer returns after it.
            timer = self._hub.loop.timer(0.0)
            try:
                self._hub.wait(timer)
            finally:
                timer.close()
            self._slice_ends_s = monotonic() + _SLICE_S

    def create_connection(self, address: Any, timeout_s: float | None, source: Any = None) -> Any:
        """Connect to an IP address without gevent's resolver, whose threads take 10 ms the first time."""
        target = literal_target(*address)
        if target is None:
            return super().create_connection(address, timeout_s, source)
        family, socket_address = target
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            if source is not None:
                sock.bind(source)
            sock.connect(socket_address)
        except BaseException:  # also a gevent time-out, which is no Exception
            sock.close()
            raise
        return sock

    def ssl_context_class(self) -> Any:
        from gevent import ssl  # takes 20 ms: only for nsqlookupds with https

        return ssl.SSLContext

    def after_fork(self) -> None:
        gevent.reinit()

    @property
    def is_usable(self) -> bool:
        return gevent.get_hub() is self._hub


class PublishFuture(producer.PublishFuture):
    __doc__ = producer.PublishFuture.__doc__

    make_lock = WaitLock

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """Raises WrongPlace where waiting for a condition would stop all greenlets."""
        if type(threading.Lock()).__module__.startswith("gevent"):
            return super()._condition
        raise WrongPlace(
            "concurrent.futures would stop all greenlets: wait by `result`, or patch threads with gevent.monkey"
        )


class Producer(producer.Producer):
    __doc__ = producer.Producer.__doc__

    _make_publish = PublishFuture
    _make_backend = Greenlets

    def _publish(self, head: bytes, body: bytes = b"") -> None:
        if gevent.getcurrent() is self._io_task:
            self._refuse_to_wait("publish")
        waiter: Waiter[NsqClientError | None] = Waiter()
        wake_soon = gevent.get_hub().loop.run_callback

        def on_done(error: NsqClientError | None) -> None:
            """Let the hub wake the caller. That takes 7 us less than the lock of a future, with its time-out."""
            wake_soon(waiter.switch, error)

        self._publish_soon(head, body, on_done)
        error = waiter.get()
        if error is not None:
            raise error.with_traceback(None)  # others may raise the same object

    def _start(self) -> None:
        self._backend.refuse_to_wait("a publish")
        super()._start()

    def _wake_io(self) -> None:
        try:
            self._backend.refuse_to_wait("a publish")  # about once an event-loop iteration
        except WrongPlace:
            self._inbox_bytes -= self._inbox.pop().size_bytes
            raise
        if self._is_closed:
            super()._wake_io()
        else:
            self._is_asleep = False
            self._core.held = self
            gevent.get_hub().loop.run_callback(self._send)

    def _send(self) -> None:
        """Send what the sockets take at once. In the hub, this takes 7 us a publish less than in the I/O greenlet."""
        core = self._core
        can_send = (
            core.poller.is_waiting
            and core.has_discovered
            and core.dispatcher.has_room
            and not self._must_check
        )
        if can_send and self._take_in() and core.pump(waits=False):
            self._is_asleep = True
        else:
            core.poller.wake()


class Consumer(consumer.Consumer):
    """A consumer on gevent. Handlers run in `concurrency` greenlets; heartbeats are answered in the meantime.

        with Consumer("topic", "channel", handle, nsqd_tcp_addresses=["127.0.0.1:4150"], max_in_flight=100) as consumer:
            consumer.wait()

    A handler that computes for long without waiting blocks everything else in its thread, heartbeats too. At the end of
    the time of a `stop`, handlers that still run are killed.

    `BaseConsumer` describes the arguments and the rules for handlers.
    """

    _endings = (*ENDINGS, gevent.GreenletExit)
    _make_backend = Greenlets

    def start(self) -> None:
        """Connect, and begin to consume. Returns at once. Idempotent. Raises WrongPlace if the consumer was stopped."""
        self._backend.refuse_to_wait("start")
        super().start()

    def _worker_failed(self, error: BaseException) -> None:
        if not isinstance(error, gevent.GreenletExit):
            super()._worker_failed(error)
        elif self.running:
            super()._worker_failed(NsqClientError("a handler's greenlet was killed"))

    def _give_up(self) -> None:
        super()._give_up()
        for worker in self._workers:
            self._backend.kill(worker)
        gevent.sleep(0)  # they requeue their messages


def connect(*addresses: str, **settings: Unpack[ProducerKeywords]) -> Producer:
    """Return a producer that is connected. Takes the arguments of `Producer`. Raises BadClientOption, NoNsqd."""
    return pinged(Producer(*addresses, **settings))
