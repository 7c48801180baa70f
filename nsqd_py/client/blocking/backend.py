"""The primitives of the blocking clients, for threads. `nsqd_py.client.gevent` has the same ones for greenlets."""

from __future__ import annotations

import _thread
import select
import socket
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any, Generic, TypeVar

from nsqd_py.client.process import refuse_in_event_loop


class Poller:
    """Waits for descriptors. All methods but `wake` belong to one thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that `wake` makes readable."""
        return self._reader.fileno()

    def wait(self, descriptors: Collection[int], timeout_s: float) -> set[int]:
        """Return those that can be read, as soon as there are any; none after the time-out, or when woken."""
        poll = select.poll()
        waker = self.fileno()
        for descriptor in (waker, *descriptors):
            poll.register(descriptor, select.POLLIN)
        found = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}
        if waker in found:
            found.discard(waker)
            with suppress(BlockingIOError):
                self._reader.recv(4096)  # more than the socket holds
        return found

    def wake(self) -> None:
        """End a `wait`, or the next one. Any thread may call this, also after `close`."""
        with suppress(OSError):  # BlockingIOError: it is readable already
            self._writer.send(b"\0")

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class Backend:
    """Threads, and what they wait with. What is imported is looked up at each call: gevent may patch it later.

    yield_if_due  lets others run from time to time; None if the interpreter changes threads by itself
    """

    socket: Any = socket
    yield_if_due: Callable[[], None] | None = None

    def poll(self) -> Any:
        return select.poll()

    def make_lock(self) -> Any:
        return threading.Lock()

    def make_answer_lock(self) -> AbstractContextManager[object]:
        """Return the lock of everything that those who answer messages share with the I/O thread."""
        return threading.RLock()

    def make_poller(self) -> Any:
        return Poller()

    def current(self) -> object:
        return threading.get_ident()

    def spawn(self, name: str, call: Callable[..., object], *args: object) -> Any:
        """Run the call beside this one. Raises RuntimeError if the system has no more threads."""
        # A signal handler may interrupt the start of a `threading.Thread` at any step: another thread starts it.
        return _thread.start_new_thread(_start_thread, (name, call, args))

    def kill(self, task: Any) -> None:
        """End it, if that is possible: a thread goes on."""

    def refuse_to_wait(self, method: str) -> None:
        """Raise WrongPlace where a call must not wait."""
        refuse_in_event_loop(method)

    def ssl_context_class(self) -> Any:
        import ssl  # takes 20 ms: only for nsqlookupds with https

        return ssl.SSLContext

    def after_fork(self) -> None:
        """Called in a child process before anything else."""

    @property
    def is_usable(self) -> bool:
        """False where its clients cannot work any more."""
        return True


def _start_thread(name: str, call: Callable[..., object], args: Iterable[object]) -> None:
    try:
        threading.Thread(target=call, args=args, name=name, daemon=True).start()
    except RuntimeError:  # the system has no more threads: this one does it
        call(*args)


THREADS = Backend()


T = TypeVar("T")


class WorkerThread(Generic[T]):
    """Runs `call` beside a thread that must not wait, and wakes its poller when the call has ended."""

    def __init__(self, backend: Backend, poller: Any, call: Callable[[], T]) -> None:
        self._backend = backend
        self._poller = poller
        self._call = call
        self._result: T | None = None
        self._error: BaseException | None = None
        self.is_done = False
        self._task = backend.spawn("nsqd-py", self._run)

    def result(self) -> T:
        """Return or raise the result of the call, which is done."""
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def kill(self) -> None:
        self._backend.kill(self._task)

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._error = error
        finally:
            self.is_done = True
            self._poller.wake()
