"""A broker for taskiq: its tasks are messages of nsqd. It needs `pip install taskiq`.

    from nsqd_py.taskiq import NsqBroker

    broker = NsqBroker("127.0.0.1:4150")

    @broker.task
    async def bill(order_id: int) -> None: ...

taskiq's worker, scheduler, middleware and result backends work with it as they are. taskiq finishes a message when its task
has ended, also by an error; a task whose worker was killed runs again. With the label `delay`, in seconds, nsqd defers a
task; the SmartRetryMiddleware of taskiq sets this label.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from nsqd_py.client.aio import Consumer, Producer
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.outgoing import sub

if TYPE_CHECKING:
    from typing import Unpack

    from nsqd_py.client.keywords import ConnectionSettings

DELAY = "delay"
PRIORITY = "priority"
# taskiq's worker has this many tasks at a time, unless --max-async-tasks says otherwise.
_MAX_IN_FLIGHT = 100
# taskiq's signal handler sets an event, but does not wake the event loop: an idle one would not see it.
_WAKE_S = 0.5


class NsqBroker(AsyncBroker):
    """Publishes tasks to a topic, and gets those of a channel of it."""

    def __init__(
        self,
        *nsqd_tcp_addresses: str,
        lookupd_http_addresses: str | Iterable[str] = (),
        topic: str = "taskiq",
        channel: str = "workers",
        max_in_flight: int = _MAX_IN_FLIGHT,
        options: ClientOptions | None = None,
        log: Any = None,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        """Nothing connects before the first task is sent, or a worker listens.

        nsqd_tcp_addresses, lookupd_http_addresses   as those of a Producer and a Consumer
        topic, channel    of the tasks; all workers of a broker have the same
        max_in_flight     tasks that a worker process has at a time, and those that wait in it
        options, others   of the connections, by the names of go-nsq
        log               has the methods of a logging.Logger, which is the default

        Raises BadName; other errors of arguments come from the first use.
        """
        super().__init__()
        sub(topic, channel)  # raises BadName
        self.topic = topic
        self.channel = channel
        self.max_in_flight = max_in_flight
        self._client: dict[str, Any] = {
            "nsqd_tcp_addresses": nsqd_tcp_addresses,
            "lookupd_http_addresses": lookupd_http_addresses,
            "options": options,
            "log": log,
            **settings,
        }
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    async def kick(self, message: BrokerMessage) -> None:
        """Publish a task, and return when nsqd has stored it.

        Raises ValueError for labels that nsqd cannot serve, and the errors of `Producer.publish`.
        """
        delay_s = _delay_s(message)
        if self._producer is None:
            self._producer = Producer(**self._client)
        await self._producer.publish(self.topic, message.message, defer_s=delay_s)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield the tasks of the channel. Each is finished by its `ack`, and touched until then.

        When a worker stops, it leaves this generator first and then waits for its tasks, whose acks need the connections:
        so the end only pauses the consumer, and `shutdown` ends it.
        """
        consumer = Consumer(
            self.topic, self.channel, max_in_flight=self.max_in_flight, max_attempts=0, **self._client
        )
        self._consumer = consumer
        waking = asyncio.create_task(_wake_often())
        try:
            while (message := await consumer.next()) is not None:
                message.detach()
                yield AckableMessage(data=message.body, ack=message.finish)
        finally:
            waking.cancel()
            consumer.pause()
        await consumer.wait(0)  # raises what ended the consumer

    async def shutdown(self) -> None:
        """Return unfinished tasks to nsqd, where other workers get them at once, and close the connections."""
        await super().shutdown()
        if self._consumer is not None:
            await self._consumer.stop(0)
            self._consumer = None
        if self._producer is not None:
            await self._producer.close()
            self._producer = None


async def _wake_often() -> None:
    """Wake the event loop, so that it sees what a signal handler has done."""
    while True:
        await asyncio.sleep(_WAKE_S)


def _delay_s(message: BrokerMessage) -> float:
    """Return the delay of a task by its labels. Raises ValueError."""
    if message.labels.get(PRIORITY):
        raise ValueError(
            f"task {message.task_name}: nsqd has no priorities: remove the label {PRIORITY!r}, and give urgent tasks a "
            "broker with a topic of their own"
        )
    delay = message.labels.get(DELAY, 0)
    try:
        return float(delay)
    except (TypeError, ValueError):
        raise ValueError(
            f"task {message.task_name}: the label {DELAY!r} is a number of seconds, got {delay!r}"
        ) from None
