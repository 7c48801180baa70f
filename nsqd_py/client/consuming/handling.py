"""Calls handlers, and finishes, requeues or gives up their messages. All consumers use it."""

from __future__ import annotations

from collections.abc import Callable

from nsqd_py.client.consuming.subscription import Subscription
from nsqd_py.client.message import Message, MessageBatch, Requeue
from nsqd_py.client.options import ClientLog

Handler = Callable[[Message], object]
BatchHandler = Callable[[MessageBatch], object]


class Handling:
    """Calls handlers and answers their messages. `stray` is an exception beside Exception that a handler may raise."""

    def __init__(
        self,
        subscription: Subscription,
        max_attempts: int,
        on_give_up: Handler | None,
        log: ClientLog,
        stray: type[BaseException] = Exception,
    ) -> None:
        self._subscription = subscription
        self._max_attempts = max_attempts
        self._on_give_up = on_give_up
        self._log = log
        self._failures = (Exception, stray)

    def handle(self, handler: Handler, message: Message) -> None:
        """Call the handler, unless the message has come too often, or will come again anyway."""
        if not self.is_wanted(message):
            return
        try:
            handler(message)
        except Requeue as request:
            self.put_off(message, request)
        except self._failures as error:
            self.fail(message, error)
        else:
            message.settle()

    def handle_batch(self, handler: BatchHandler, batch: MessageBatch) -> None:
        """Call the handler, which answers the batch. If it fails, requeue what it has not answered."""
        if not batch.is_live:
            return
        try:
            handler(batch)
        except Requeue as request:
            self.put_off_batch(batch, request)
        except self._failures as error:
            self.fail_batch(batch, error)

    def put_off_batch(self, batch: MessageBatch, request: Requeue) -> None:
        """Requeue what of the batch is not answered."""
        if not batch.is_answered:
            batch.requeue(request.delay_s, backoff=request.backoff)

    def fail_batch(self, batch: MessageBatch, error: BaseException) -> None:
        """Log the failure of a handler, and requeue what it has not answered."""
        self._log.exception("the handler of %s failed on %d messages: %r", batch.topic, len(batch), error)
        if not batch.is_answered:
            batch.requeue(backoff=True)

    def is_wanted(self, message: Message) -> bool:
        """True if a handler must get the message: nsqd does not deliver it again, and it has not come too often.

        A message that has come too often is finished here.
        """
        if self._max_attempts and message.attempts > self._max_attempts:
            self._give_up(message)
            return False
        return message.is_live

    def _give_up(self, message: Message) -> None:
        self._log.warning("giving up on message %s after %d attempts", message.id.decode(), message.attempts - 1)
        self._subscription.given_up += 1
        if self._on_give_up is not None:
            try:
                self._on_give_up(message)
            except self._failures as error:
                self._log.exception("on_give_up failed on message %s: %r", message.id.decode(), error)
        message.settle()

    def put_off(self, message: Message, request: Requeue) -> None:
        """Requeue the message, unless it is answered or detached."""
        if not (message.is_detached or message.is_answered):
            message.requeue(request.delay_s, backoff=request.backoff)

    def fail(self, message: Message, error: BaseException) -> None:
        """Log the failure of a handler, and requeue its message."""
        self._log.exception("the handler of %s failed on message %s: %r", message.topic, message.id.decode(), error)
        if not (message.is_detached or message.is_answered):
            message.requeue()
