"""The common part of all consumers: their settings, calls of handlers, and statistics."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from nsqd_py.client.addresses import Discovery
from nsqd_py.client.callables import (
    check_handler_result,
    name_of,
    refuse_what_does_not_run,
    refuse_without_argument,
)
from nsqd_py.client.consuming.subscription import ConsumerStats, Subscription
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.lookup import addresses_of
from nsqd_py.client.message import Message, MessageBatch, Requeue
from nsqd_py.client.options import ClientOptions, read_argument, read_flag, read_limit
from nsqd_py.client.process import log_for
from nsqd_py.runtime.logs.lines import LineWriter

if TYPE_CHECKING:
    from typing import Unpack

    from nsqd_py.client.keywords import ConnectionSettings

    class ConsumerKeywords(ConnectionSettings, total=False):
        """The keywords of a Consumer but for its handlers; `BaseConsumer` describes them."""

        nsqd_tcp_addresses: str | Iterable[str]
        lookupd_http_addresses: str | Iterable[str]
        max_in_flight: int | None
        concurrency: int
        options: ClientOptions | None
        log: LineWriter | None
        auto_touch: bool
        chance: Callable[[], float]


# On asyncio, the consumer awaits what they return.
AnyHandler = Callable[[Message], object]
AnyBatchHandler = Callable[[MessageBatch], object]

# The result of a handler outside asyncio. It is not used, and is no coroutine or generator, which would not run.
Unused: TypeAlias = (
    None | bool | int | float | str | bytes | tuple[object, ...] | list[Any] | dict[Any, Any] | set[Any]
)
Handler = Callable[[Message], Unused]
BatchHandler = Callable[[MessageBatch], Unused]

ENDINGS = (SystemExit, KeyboardInterrupt)
AT_ONCE = Requeue(0, backoff=False)
STOP_TIMEOUT_S = 30.0
_QUIET_S = 1.0  # between log lines on handlers that do not run
_LONGEST_NAP_S = 0.5


class BaseConsumer:
    """Receives messages of a channel from all nsqds that have them, and answers them.

    If `handler(message)` returns, the message is finished. If it raises `Requeue` or another exception, the message
    is redelivered later and the consumer slows down. `batch_handler(batch)` gets messages that arrived together, as
    columns, and must answer them itself, now or later; max_attempts does not apply to it. Without a handler, iterate:

        for message in Consumer("topic", "channel", lookupd_http_addresses=["127.0.0.1:4161"]):
            ...

    Each message is finished when the loop asks for the next one. Leaving the loop by `break` or an exception stops the
    consumer, and requeues the last message unless it was answered.

    Messages that are not answered are touched before their time-out, up to nsqd's --max-msg-timeout.
    """

    _awaits_handlers = False
    # Exceptions of a handler that requeue its message at once, and end the consumer.
    _endings: tuple[type[BaseException], ...] = ENDINGS

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: AnyHandler | None = None,
        *,
        batch_handler: AnyBatchHandler | None = None,
        nsqd_tcp_addresses: str | Iterable[str] = (),
        lookupd_http_addresses: str | Iterable[str] = (),
        max_in_flight: int | None = None,
        concurrency: int = 1,
        options: ClientOptions | None = None,
        log: LineWriter | None = None,
        on_give_up: AnyHandler | None = None,
        auto_touch: bool = True,
        chance: Callable[[], float] = random.random,
        **go_settings: Unpack[ConnectionSettings],
    ) -> None:
        """Nothing connects before `start`. Addresses of nsqds are host:port, [::1]:port, unix:/path or nsq://host:port.

        Without any, NSQD_TCP_ADDRESS or NSQLOOKUPD_HTTP_ADDRESS of the environment lists them, separated by commas.

        lookupd_http_addresses   consume from all nsqds that have the topic according to these nsqlookupds
        max_in_flight            how many messages may be here and not answered; by default `concurrency`
        concurrency              how many handlers run at a time
        options, **go_settings   by the names of go-nsq: `max_attempts=10, msg_timeout="2m", tls_v1=True`
        log                      has `info`, `warning`, ... as a logging.Logger, which is the default
        on_give_up(message)      is called for a message that came more than max_attempts times, before it is finished.
                                 If it fails, the message is redelivered
        auto_touch               touch messages that are not answered before their time-out
        chance                   returns a number from 0 to 1, to spread requests to nsqlookupds over time

        Raises BadClientOption, BadAddress, BadName, and TypeError if a topic or channel is not a str.
        """
        if handler is not None and batch_handler is not None:
            raise BadClientOption("give a handler or a batch_handler, not both")
        for role, call in (
            ("handler", handler),
            ("batch_handler", batch_handler),
            ("on_give_up", on_give_up),
        ):
            refuse_what_does_not_run(role, call, is_awaited=self._awaits_handlers)
            refuse_without_argument(role, call)
        refuse_what_does_not_run("chance", chance, is_awaited=False)
        read_argument("concurrency", concurrency, read_limit)
        settings: dict[str, Any] = {**go_settings}
        if max_in_flight is not None:
            settings["max_in_flight"] = max_in_flight
        self._options = ClientOptions.extending(options, settings)
        self._log = log_for(log)
        most = self._options.max_in_flight
        if max_in_flight is None:
            most = max(most, concurrency) if most else 0
        elif 0 < most < concurrency:
            self._log.warning(
                "max_in_flight=%d: no more handlers work at a time, although concurrency=%d",
                most,
                concurrency,
            )
        self._options = self._options.with_settings(max_in_flight=most)
        self._handler: Any = handler or batch_handler
        self._is_iterated = self._handler is None
        self._takes_batches = batch_handler is not None
        self._concurrency = concurrency
        self._chance = chance
        self._subscription = Subscription(
            topic,
            channel,
            self._options,
            auto_touch=read_argument("auto_touch", auto_touch, read_flag),
            now_s=monotonic,
            chance=chance,
            on_output=self._on_output,
            on_backoff=self._on_backoff,
            lock=nullcontext(),
        )
        self.topic = topic
        self.channel = channel
        if batch_handler is not None:
            self._max_attempts = 0
        else:
            self._max_attempts = self._options.max_attempts
        self._on_give_up = on_give_up
        self._next_log_s = 0.0
        nsqds, self._lookupds = addresses_of("consumer", nsqd_tcp_addresses, lookupd_http_addresses)
        self._discovery = Discovery(nsqds)
        self._set_up()

    # ---- for the shells

    def _set_up(self) -> None:
        raise NotImplementedError

    def _on_output(self) -> None:
        """Send output soon: there was none, and now there is some."""
        raise NotImplementedError

    def _on_backoff(self, news: str) -> None:
        self._log.warning("%s/%s: %s", self.topic, self.channel, news)

    def _refuse_without_handler(self) -> None:
        if self._handler is None:
            raise BadClientOption("there is nothing to call: give a handler or a batch_handler, or iterate")

    def _refuse_if_handled(self) -> None:
        if self._handler is not None:
            raise BadClientOption(
                "a consumer with a handler cannot be iterated: its messages go to the handler"
            )

    # ---- handlers

    def _handle(self, item: Message | MessageBatch) -> None:
        """Call the handler, or `on_give_up` if the message has come too often, unless nsqd redelivers it anyway."""
        if not item.is_live:
            return
        is_spent = self._is_spent(item)
        handler = self._giving_up(item) if is_spent else self._handler
        try:
            result = handler(item)
            if result is not None:
                check_handler_result(handler, result)
        except BaseException as error:
            if self._fail(item, error, handler):
                raise
        else:
            if is_spent:
                self._subscription.gave_up()
            item.settle()

    def _ends(self, error: BaseException) -> bool:
        """True if this exception of a handler ends the consumer. Any other one is a failure of the handler."""
        return isinstance(error, self._endings)

    def _is_spent(self, message: Any) -> bool:
        """True if the message has come more than max_attempts times: `on_give_up` gets it instead of the handler."""
        return bool(self._max_attempts) and message.attempts > self._max_attempts

    def _giving_up(self, message: Any) -> Callable[[Any], object]:
        """Log that the message is given up, and return the function to call for that."""
        self._log.warning("giving up on %s", _described(message))
        return self._on_give_up or (lambda message: None)

    @staticmethod
    def _put_off(item: Message | MessageBatch, request: Requeue) -> None:
        """Requeue the message, or what of the batch is not answered, unless it is detached."""
        if not (item.is_detached or item.is_answered):
            item.requeue(request.delay_s, backoff=request.backoff)

    def _fail(self, item: Message | MessageBatch, error: BaseException, handler: object) -> bool:
        """Requeue what a handler that failed has not answered. Return True if its exception ends the consumer."""
        if isinstance(error, Requeue):
            self._put_off(item, error)
            self._log.info("the handler %s requeued %s", name_of(handler), _described(item))
            return False
        if self._ends(error):
            self._put_off(item, AT_ONCE)
            return True
        self._put_off(item, Requeue())
        if not isinstance(error, BadClientOption):
            self._log.exception("the handler %s failed on %s: %r", name_of(handler), _described(item), error)
        elif monotonic() >= self._next_log_s:  # the handler fails on every message
            self._next_log_s = monotonic() + _QUIET_S
            self._log.error("the handler failed on %s: %s", _described(item), error)
        return False

    # ---- how it stands

    @property
    def is_starved(self) -> bool:
        """True if some nsqd can send little or nothing before more messages are answered: time to end a batch."""
        with self._subscription.lock:
            return self._subscription.is_starved

    def stats(self) -> ConsumerStats:
        """Return the current statistics."""
        with self._subscription.lock:
            return self._subscription.stats()

    # ---- how much flows

    def set_max_in_flight(self, count: int) -> None:
        """Raises BadClientOption."""
        count = self._options.with_settings(max_in_flight=count).max_in_flight
        with self._subscription.lock:
            self._subscription.set_max_in_flight(count)

    def pause(self) -> None:
        """Request no more messages; those in flight continue."""
        with self._subscription.lock:
            self._subscription.pause()

    def resume(self) -> None:
        with self._subscription.lock:
            self._subscription.pause(is_paused=False)

    # ---- time

    def _nap_s(self) -> float:
        """Return the time until something other than a message needs attention."""
        subscription = self._subscription
        timeouts_s = [window.msg_timeout_s for window in subscription.windows.values()]
        # New messages may add an earlier deadline.
        longest_s = min([_LONGEST_NAP_S, *(timeout_s / 10 for timeout_s in timeouts_s)])
        return min(longest_s, max(0.0, subscription.due_s - monotonic()))


def _described(item: Message | MessageBatch) -> str:
    """Return the message, or batch, as the log names it."""
    described = f"{item}/{item.channel}"  # "message ... of topic/channel"
    if isinstance(item, Message):
        return f"{described}, attempt {item.attempts}"
    return described
