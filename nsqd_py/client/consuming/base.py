"""What the consumers on gevent and without it have in common: their settings, and what they tell of themselves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from time import monotonic
from types import TracebackType
from typing import Any, Self

from nsqd_py.client.addresses import address_list, parse_address
from nsqd_py.client.consuming.handling import BatchHandler, Handler, Handling
from nsqd_py.client.consuming.lane import Lane
from nsqd_py.client.consuming.subscription import ConsumerStats, Subscription
from nsqd_py.client.discovery import Discovery
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.lookup import lookup_url
from nsqd_py.client.options import ClientLog, ClientOptions, standard_log

STOP_TIMEOUT_S = 30.0
_LONGEST_NAP_S = 0.5


class BaseConsumer:
    """Gets messages of a topic's channel from all nsqds that have them, and answers them.

    `handler(message)` returns: the message is finished. It raises `Requeue`, or anything else: the message comes
    again later, and the consumer slows down. `batch_handler(batch)` gets what came together, as columns, and answers
    it itself, now or later; it sees `attempts`, and nothing is given up for it. Without either, iterate:

        for message in Consumer("topic", "channel", lookupd_http_addresses=["127.0.0.1:4161"]):
            ...

    Each message is finished when the loop asks for the next one. A loop that is left by `break` or an exception
    stops the consumer, and gives the message that it had back, unless it was answered.

    What is not answered is touched before its time-out, up to nsqd's --max-msg-timeout.
    """

    # What a handler may raise beside Exception.
    _stray_failure: type[BaseException] = Exception

    def __init__(
        self,
        topic: str,
        channel: str,
        handler: Handler | None = None,
        *,
        batch_handler: BatchHandler | None = None,
        nsqd_tcp_addresses: str | Iterable[str] = (),
        lookupd_http_addresses: str | Iterable[str] = (),
        max_in_flight: int | None = None,
        concurrency: int = 1,
        options: ClientOptions | None = None,
        log: ClientLog | None = None,
        on_give_up: Handler | None = None,
        auto_touch: bool = True,
        chance: Callable[[], float] = random.random,
        **go_settings: Any,
    ) -> None:
        """Connects when it is started. Addresses of nsqds are host:port, [::1]:port or unix:/path.

        lookupd_http_addresses   consume from all nsqds that these nsqlookupds know to have the topic
        max_in_flight            how many messages may be here and not answered
        concurrency              so many handlers run at a time
        options, **go_settings   by the names of go-nsq: `max_attempts=10, msg_timeout="2m", tls_v1=True`
        log                      has `info`, `warning`, ... as a logging.Logger, which it is by default
        on_give_up(message)      is called for a message that came more than max_attempts times, before it is finished
        auto_touch               touch what is not answered before its time-out
        chance                   gives a number from 0 to 1, to spread questions to nsqlookupds over time

        Raises BadClientOption, BadAddress, BadName, and TypeError for a topic or channel that is not a str.
        """
        if handler is not None and batch_handler is not None:
            raise BadClientOption("give a handler or a batch_handler, not both")
        if concurrency < 1:
            raise BadClientOption("concurrency has to be at least 1")
        if max_in_flight is not None:
            go_settings["max_in_flight"] = max_in_flight
        self._options = (options or ClientOptions()).with_settings(**go_settings)
        self._log = log or standard_log()
        self._handler = handler
        self._batch_handler = batch_handler
        self._concurrency = concurrency
        self._chance = chance
        self._discovery = Discovery(canonical_address(address) for address in address_list(nsqd_tcp_addresses))
        self._lookupds = tuple(dict.fromkeys(address_list(lookupd_http_addresses)))
        for address in self._lookupds:
            lookup_url(address, topic)
        self._subscription = Subscription(
            topic,
            channel,
            self._options,
            auto_touch=auto_touch,
            clock=monotonic,
            chance=chance,
            on_output=self._on_output,
            on_backoff=self._on_backoff,
        )
        self._handling = Handling(
            self._subscription, self._options.max_attempts, on_give_up, self._log, self._stray_failure
        )  # fmt: skip
        self._set_up()
        if not self._discovery.wanted and not self._lookupds:
            raise BadClientOption("a consumer needs the address of an nsqd (host:port) or of an nsqlookupd")

    # ---- what a shell does

    def _set_up(self) -> None:
        """The rest of making one."""
        raise NotImplementedError

    def start(self) -> None:
        """Connect, and begin to consume. Idempotent."""
        raise NotImplementedError

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask for nothing more, wait for what is in flight, close. What is not answered in time comes again."""
        raise NotImplementedError

    def _on_output(self, lane: Lane, is_urgent: bool) -> None:
        """There is something to send to this nsqd; what is urgent was asked for by the user just now."""
        raise NotImplementedError

    def _on_backoff(self, news: str) -> None:
        self._log.warning("%s/%s: %s", self.topic, self.channel, news)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _refuse_if_handled(self) -> None:
        if self._handler is not None or self._batch_handler is not None:
            raise BadClientOption("a consumer with a handler cannot be iterated: its messages go to the handler")

    # ---- how it stands

    @property
    def topic(self) -> str:
        return self._subscription.topic

    @property
    def channel(self) -> str:
        return self._subscription.channel

    @property
    def is_starved(self) -> bool:
        """True when some nsqd can send little or nothing before more messages are answered: time to end a batch."""
        return self._subscription.is_starved

    def stats(self) -> ConsumerStats:
        """A snapshot."""
        return self._subscription.stats()

    # ---- how much flows

    def set_max_in_flight(self, count: int) -> None:
        self._subscription.flow.set_max_in_flight(count)

    def pause(self) -> None:
        """Ask for nothing more; what is in flight goes on."""
        self._subscription.flow.pause()

    def resume(self) -> None:
        self._subscription.flow.pause(is_paused=False)

    # ---- time

    def _nap_s(self) -> float:
        """How long nothing has to be done, messages aside."""
        subscription = self._subscription
        timeouts_s = [lane.touching.timeout_s for lane in subscription.lanes.values()]
        longest_s = min([_LONGEST_NAP_S, *(timeout_s / 10 for timeout_s in timeouts_s)])  # new messages may come
        return min(longest_s, max(0.0, subscription.due_s - monotonic()))


def canonical_address(address: str) -> str:
    """The form in which addresses of nsqds are compared. Raises BadAddress."""
    return str(parse_address(address))
