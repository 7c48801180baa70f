"""Calls handlers, and finishes, requeues or gives up their messages. All consumers use it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from nsqd_py.client.callables import check_handler_result, name_of
from nsqd_py.client.consuming.subscription import Subscription
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.message import Message, MessageBatch, Requeue
from nsqd_py.client.options import ClientLog

# On asyncio, the consumer awaits what they return.
Handler = Callable[[Message], object]
BatchHandler = Callable[[MessageBatch], object]

ENDINGS = (SystemExit, KeyboardInterrupt)
AT_ONCE = Requeue(0, backoff=False)
_QUIET_S = 1.0  # between log lines on handlers that do not run


class Handling:
    """Calls handlers and answers their messages.

    An exception in `endings` requeues the message at once and leaves the worker, which ends the consumer. Any other one
    is a failure of the handler, also those that are no Exception, such as a CancelledError or a gevent.Timeout.
    """

    def __init__(
        self,
        subscription: Subscription,
        max_attempts: int,
        on_give_up: Handler | None,
        log: ClientLog,
        endings: tuple[type[BaseException], ...] = ENDINGS,
    ) -> None:
        self._subscription = subscription
        self._max_attempts = max_attempts
        self._on_give_up = on_give_up
        self._log = log
        self._endings = endings
        self._log_again_s = 0.0

    def handle(self, handler: Callable[[Any], object], item: Message | MessageBatch) -> None:
        """Call the handler, or `on_give_up` if the message has come too often, unless nsqd delivers it again anyway."""
        if not item.is_live:
            return
        is_spent = self.is_spent(item)
        if is_spent:
            handler = self.giving_up(item)
        try:
            check_handler_result(handler, handler(item))
        except Requeue as request:
            self.put_off(item, request)
        except self._endings:
            self.put_off(item, AT_ONCE)
            raise
        except BaseException as error:  # noqa: BLE001 - any failure of a handler requeues its message
            self.fail(item, error, handler)
        else:
            item.settle()
            if is_spent:
                self.given_up()

    def is_spent(self, message: Any) -> bool:
        """True if the message has come more than max_attempts times: `on_give_up` gets it in place of the handler."""
        return bool(self._max_attempts) and message.attempts > self._max_attempts

    def giving_up(self, message: Any) -> Handler:
        """Log that the message is given up, and return the function to call for that."""
        self._log.warning("giving up on message %s after %d attempts", message.id.decode(), message.attempts - 1)
        return self._on_give_up or ignore

    def given_up(self) -> None:
        """Count a message that is given up."""
        self._subscription.given_up += 1

    def is_wanted(self, message: Message) -> bool:
        """True if a loop must get the message. One that has come too often goes to `on_give_up` here."""
        if message.is_live and self.is_spent(message):
            self.handle(ignore, message)
            return False
        return message.is_live

    def put_off(self, item: Message | MessageBatch, request: Requeue) -> None:
        """Requeue the message, or what of the batch is not answered, unless it is detached."""
        if not (item.is_detached or item.is_answered):
            item.requeue(request.delay_s, backoff=request.backoff)

    def fail(self, item: Message | MessageBatch, error: BaseException, handler: object) -> None:
        """Requeue what a handler that failed has not answered, and log the failure."""
        self.put_off(item, Requeue())
        self._log_failure(handler, str(item), error)

    def _log_failure(self, handler: object, item: str, error: BaseException) -> None:
        if not isinstance(error, BadClientOption):
            self._log.exception("the handler %s failed on %s: %r", name_of(handler), item, error)
        elif monotonic() >= self._log_again_s:  # the handler fails on every message
            self._log_again_s = monotonic() + _QUIET_S
            self._log.error("the handler failed on %s: %s", item, error)


def ignore(message: Message) -> None:
    """The default of `on_give_up`."""
