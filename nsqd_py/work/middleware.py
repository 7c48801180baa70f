"""What runs around each call of a handler, and some uses of that.

Their libraries are imported when one is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from nsqd_py.client.callables import is_coroutine_function
from nsqd_py.client.message import Message, Requeue
from nsqd_py.work.outcomes import Drop

if TYPE_CHECKING:
    from nsqd_py.otel import Instrumentation
    from nsqd_py.work.handlers import Handler

_REQUESTS = (Requeue, Drop)  # a handler raises them, and has not failed
_PLAIN = "around"
_ASYNC = "around_async"
UNRAISED = "unraised"


class Call:
    """The rest of a call, for a middleware: it runs it with `call()`, or `await call()` around coroutine functions.

    handler   the handler that is called
    messages  its messages: one, or those of a batch
    """

    __slots__ = ("_run", "handler", "messages")

    def __init__(self, handler: Handler, messages: Sequence[Message], run: Callable[[], Any]) -> None:
        self.handler = handler
        self.messages = messages
        self._run = run

    def __call__(self) -> Any:
        return self._run()


class Middleware(Protocol):
    """What runs around each call of a handler. Derive from it, and override one method or both.

    An object of another class needs the methods for the kinds of functions that the app has: a declaration without is refused.
    They run `call` once, see what it raises, and may raise something else. `message` is the first one of a batch; the body
    of a message is as it was published, in its envelope if it has one. Without the call, the message is finished.

    It may have `unraised(error, call)` too, which gets the errors that no call raises: that of a message that is given up without
    a call because it came too often, of a thread that is over its time limit and goes on, and of a `Requeue` that is not
    possible. It runs in any thread, also that of the event loop, so it must not wait.
    """

    def around(self, message: Message, call: Call) -> None:
        """Run around a plain function."""
        call()

    async def around_async(self, message: Message, call: Call) -> None:
        """Run around a coroutine function."""
        await call()


class Within(Middleware):
    """A middleware that is a context manager, the same one around plain functions and coroutine functions."""

    def within(self, call: Call) -> AbstractContextManager[object]:
        """Return the context manager in which the call runs."""
        raise NotImplementedError

    def around(self, message: Message, call: Call) -> None:
        with self.within(call):
            call()

    async def around_async(self, message: Message, call: Call) -> None:
        with self.within(call):
            await call()


def fault_of(middleware: object) -> str:
    """Return why this is no middleware; "" if it is one."""
    if isinstance(middleware, type):
        return (
            f"{middleware.__qualname__} is a class: give an object of it, as in {middleware.__qualname__}()"
        )
    if not (hasattr(middleware, _PLAIN) or hasattr(middleware, _ASYNC)):
        return f"{middleware!r} has neither {_PLAIN} nor {_ASYNC}: add one of them, or both"
    if is_coroutine_function(getattr(middleware, _PLAIN, None)):
        return (
            f"{_PLAIN} of {_name_of(middleware)} is a coroutine function, which plain functions do not await: "
            f"rename it to {_ASYNC}"
        )
    return ""


def fault_around(middleware: Sequence[object], *, is_async: bool) -> str:
    """Return why some middleware cannot run around functions of this kind; "" if all can."""
    method = _ASYNC if is_async else _PLAIN
    kind = "a coroutine function" if is_async else "a plain function"
    for each in middleware:
        fault = fault_of(each)
        if fault:
            return f"the middleware {fault}"
        if not hasattr(each, method):
            return (
                f"it is {kind}, and the middleware {_name_of(each)} has no {method}: add it, or derive from "
                "nsqd_py.work.middleware.Within, which is for both kinds"
            )
    return ""


def _name_of(middleware: object) -> str:
    return f"{type(middleware).__module__}.{type(middleware).__qualname__}"


class OnError(Within):
    """Calls `report(error, call)` for each error of a handler, and for each message that fails in another way.

        OnError(lambda error, call: sentry_sdk.capture_exception(error))

    Those are bodies that cannot be decoded, messages that came too often, and threads over their time limit, which may raise
    later. `Requeue` and `Drop` are no errors. `report` runs in any thread, also in that of the event loop.
    """

    def __init__(self, report: Callable[[BaseException, Call], object]) -> None:
        self._report = report

    @contextmanager
    def within(self, call: Call) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not isinstance(error, _REQUESTS):
                self._report(error, call)
            raise

    def unraised(self, error: BaseException, call: Call) -> None:
        """Report an error that no call raises."""
        self._report(error, call)


class OpenTelemetry(Within):
    """A span and metrics for each message, as `nsqd_py.otel.Instrumentation` makes them; those of a batch are nested."""

    def __init__(self, instrumentation: Instrumentation | None = None) -> None:
        if instrumentation is None:
            from nsqd_py.otel import Instrumentation

            instrumentation = Instrumentation()
        self._instrumentation = instrumentation

    @contextmanager
    def within(self, call: Call) -> Iterator[None]:
        with ExitStack() as spans:
            for message in call.messages:
                spans.enter_context(self._instrumentation.processing(message))
            yield


class Prometheus(Within):
    """The histogram `nsq_work_call_seconds` of prometheus-client, with the labels `handler` and `outcome`.

    An outcome is "returned", "requeued", "dropped" or "failed".
    """

    def __init__(self, registry: Any = None) -> None:
        from prometheus_client import REGISTRY, Histogram

        self._seconds = Histogram(
            "nsq_work_call_seconds",
            "Duration of a call of a handler.",
            ["handler", "outcome"],
            registry=registry or REGISTRY,
        )

    @contextmanager
    def within(self, call: Call) -> Iterator[None]:
        outcome = "failed"
        began_s = time.perf_counter()
        try:
            yield
            outcome = "returned"
        except Requeue:
            outcome = "requeued"
            raise
        except Drop:
            outcome = "dropped"
            raise
        finally:
            took_s = time.perf_counter() - began_s
            self._seconds.labels(call.handler.name, outcome).observe(took_s)


class DjangoConnections(Middleware):
    """Closes Django's database connections that are unusable or too old, before and after each call, as a request does."""

    def __init__(self) -> None:
        from asgiref.sync import sync_to_async
        from django.db import close_old_connections

        self._close = close_old_connections
        self._close_async = sync_to_async(close_old_connections)

    def around(self, message: Message, call: Call) -> None:
        self._close()
        try:
            call()
        finally:
            self._close()

    async def around_async(self, message: Message, call: Call) -> None:
        await self._close_async()
        try:
            await call()
        finally:
            await self._close_async()
