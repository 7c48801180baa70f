"""Spans and metrics around the calls of a producer and the handlers of a consumer.

The attributes follow OpenTelemetry's semantic conventions for messaging; names that begin with `messaging.nsq` are ours.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any, Self, TypeVar, cast

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from nsqd_py.client.callables import is_coroutine_function
from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.message import Message, MessageBatch, Requeue
from nsqd_py.client.publishing.publish import Done, Failures
from nsqd_py.otel.envelope import MAGIC, unwrap, wrap
from nsqd_py.version import PROJECT_VERSION

_SCOPE = "nsqd_py.otel"
_PROPAGATOR = TraceContextTextMapPropagator()

T = TypeVar("T")
P = TypeVar("P")
AnyHandler = Callable[[Message], Any]
AnyBatchHandler = Callable[[MessageBatch], Any]


class Instrumentation:
    """Spans and metrics for publishing and handling.

        telemetry = Instrumentation()
        producer = telemetry.producer(Producer("127.0.0.1:4150"))
        consumer = Consumer("orders", "billing", telemetry.handler(handle), nsqd_tcp_addresses="127.0.0.1:4150")

    All calls may be used by several threads, greenlets and tasks.
    """

    def __init__(
        self,
        *,
        envelope: bool = True,
        linked: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        """Use OpenTelemetry's global providers, or those given.

        envelope  put an envelope with the trace context around each body that is published, and take it off each
                  message that is handled. Without it bodies stay as they are, and spans of handlers have no parent
        linked    the span of a handled message has a link to the span of its publish; by default it is its child
        """
        self._has_envelope = envelope
        self._is_linked = linked
        self._tracer = trace.get_tracer(_SCOPE, PROJECT_VERSION, tracer_provider)
        meter = metrics.get_meter(_SCOPE, PROJECT_VERSION, meter_provider)
        self._publishes = Instruments(
            meter, "messaging.client.sent.messages", "messaging.client.operation.duration", "published"
        )
        self._processes = Instruments(
            meter, "messaging.client.consumed.messages", "messaging.process.duration", "handled"
        )

    # ---- publishing

    def producer(self, producer: P) -> P:
        """Return a producer that does the same, with a span for each publish. It closes the producer that it wraps.

        `BaseProducer.send_mpub_body` and `BaseProducer.send_mpub_pieces` have no span, and their bodies no envelope.
        """
        is_async = inspect.iscoroutinefunction(getattr(producer, "flush", None))
        traced = AsyncTracedProducer if is_async else TracedProducer
        return cast(P, traced(producer, self._begin_publish))

    def _begin_publish(self, topic: str, bodies: Sequence[Any]) -> tuple[Operation, list[Any]]:
        """Begin the span of a publish, and return the bodies to send."""
        labels = labels_of("publish", "send", topic)
        size_bytes = sum(len(body) for body in bodies if isinstance(body, bytes | bytearray | memoryview))
        attributes: dict[str, AttributeValue] = {BODY_SIZE: size_bytes}
        if len(bodies) > 1:
            attributes[BATCH_COUNT] = len(bodies)
        span = self._tracer.start_span(
            f"publish {topic}", kind=SpanKind.PRODUCER, attributes={**labels, **attributes}
        )
        wrapped = list(bodies)
        if self._has_envelope:
            headers: dict[str, str] = {}
            _PROPAGATOR.inject(headers, trace.set_span_in_context(span))
            wrapped = [_wrap(body, headers) for body in bodies]
        return Operation(span, self._publishes, labels, len(bodies)), wrapped

    # ---- handling

    def handler(self, handle: AnyHandler) -> AnyHandler:
        """Return a handler, or an `async` one, that does the same in a span."""
        return _in_span(handle, self.processing)

    def processing(self, message: Message) -> AbstractContextManager[Span]:
        """The span in which a message is handled, for loops. Take the envelope off its body.

        for message in consumer:
            with telemetry.processing(message):
                ...
        """
        size_bytes = len(message.body)
        message.body, publisher = self._unwrapped(message.body)
        attributes = {
            **message_attributes(message),
            BODY_SIZE: len(message.body),
            "messaging.message.envelope.size": size_bytes,
        }
        if publisher is None:
            return self._begin_process(message, attributes).run()
        if self._is_linked:
            return self._begin_process(message, attributes, links=[publisher]).run()
        handled_in = trace.get_current_span().get_span_context()
        return self._begin_process(
            message, attributes, publisher, [handled_in] if handled_in.is_valid else []
        ).run()

    def batch_handler(self, handle: AnyBatchHandler) -> AnyBatchHandler:
        """Return a handler of batches that does the same in one span, with a link to the span of each publish."""
        return _in_span(handle, self._processing_batch)

    def _processing_batch(self, batch: MessageBatch) -> AbstractContextManager[Span]:
        opened = [self._unwrapped(body) for body in batch.bodies]
        batch.bodies[:] = [body for body, _ in opened]
        publishers = {publisher.span_id: publisher for _, publisher in opened if publisher is not None}
        attributes = {BATCH_COUNT: len(batch), BODY_SIZE: sum(map(len, batch.bodies))}
        return self._begin_process(batch, attributes, links=publishers.values(), count=len(batch)).run()

    def _begin_process(
        self,
        source: Message | MessageBatch,
        attributes: Attributes,
        parent: SpanContext | None = None,
        links: Iterable[SpanContext] = (),
        count: int = 1,
    ) -> Operation:
        """Begin a span; without a parent it is a child of the current span."""
        labels = labels_of("process", "process", source.topic, source.channel)
        span = self._tracer.start_span(
            f"process {source.topic}",
            None
            if parent is None
            else trace.set_span_in_context(NonRecordingSpan(parent), context.Context()),
            kind=SpanKind.CONSUMER,
            attributes={**labels, **attributes},
            links=[Link(each) for each in links],
        )
        return Operation(span, self._processes, labels, count)

    def _unwrapped(self, data: bytes) -> tuple[bytes, SpanContext | None]:
        """Return the body, and the context of its publisher if it carries one."""
        if not self._has_envelope:
            return data, None
        body, headers = unwrap(data)
        span = trace.get_current_span(_PROPAGATOR.extract(headers, context.Context()))
        publisher = span.get_span_context()
        return body, publisher if publisher.is_valid else None


def _in_span(
    handle: Callable[[T], Any], span: Callable[[T], AbstractContextManager[Span]]
) -> Callable[[T], Any]:
    """Return a function, or a coroutine function, that does the same in the span of its argument."""
    if is_coroutine_function(handle):

        @functools.wraps(handle)
        async def handle_async(item: T) -> Any:
            with span(item):
                return await handle(item)

        return handle_async

    @functools.wraps(handle)
    def handle_in_span(item: T) -> Any:
        with span(item):
            return handle(item)

    return handle_in_span


def _wrap(body: Any, headers: Mapping[str, str]) -> Any:
    """Return the body in an envelope. The producer refuses what is no body, or an empty one."""
    if not body or not isinstance(body, bytes | bytearray | memoryview):
        return body
    content = bytes(body)
    if not headers and not content.startswith(MAGIC):
        return body
    return wrap(content, headers)


# ---- one publish, or one handled message

Attributes = Mapping[str, AttributeValue]

BODY_SIZE = "messaging.message.body.size"
BATCH_COUNT = "messaging.batch.message_count"


def labels_of(operation: str, kind: str, topic: str, channel: str = "") -> Attributes:
    """Return the attributes that the span of an operation and its metrics share."""
    return {
        "messaging.system": "nsq",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
        **({"messaging.consumer.group.name": channel} if channel else {}),
    }


def message_attributes(message: Message) -> Attributes:
    """Return the attributes of one message, and of the nsqd that delivered it."""
    host, separator, port = message.nsqd.rpartition(":")
    if separator and port.isdecimal():
        server: Attributes = {"server.address": host.strip("[]"), "server.port": int(port)}
    else:
        server = {"server.address": message.nsqd}
    return {
        **server,
        "messaging.message.id": message.id.decode("latin-1"),
        "messaging.nsq.message.attempts": message.attempts,
    }


# The conventions ask for these boundaries, in seconds.
_BOUNDARIES_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class Instruments:
    """The counter and the histogram of one kind of operation."""

    def __init__(self, meter: Meter, counter: str, duration: str, what: str) -> None:
        self.counter: Counter = meter.create_counter(counter, "{message}", f"Messages {what}.")
        self.duration: Histogram = meter.create_histogram(
            duration,
            "s",
            f"Duration of an operation: {what}.",
            explicit_bucket_boundaries_advisory=_BOUNDARIES_S,
        )


class Operation:
    """A span that has begun, and its statistics. `end` ends it, once.

    labels  the attributes of its metrics; they have few values
    count   how many messages it is about
    """

    def __init__(self, span: Span, instruments: Instruments, labels: Attributes, count: int = 1) -> None:
        self.span = span
        self._instruments = instruments
        self._labels = labels
        self._count = count
        self._began_s = perf_counter()

    @contextmanager
    def run(self) -> Iterator[Span]:
        """Make its span the current one; the end of the block, or its exception, ends it."""
        with self.end_on_error(), use_span(self.span, record_exception=False, set_status_on_exception=False):
            yield self.span
        self.end()

    @contextmanager
    def end_on_error(self) -> Iterator[None]:
        """End the span if the block raises; otherwise the caller ends it."""
        try:
            yield
        except BaseException as error:
            self.end(error)
            raise

    def end(self, error: BaseException | None = None) -> None:
        """End the span. `Requeue` is no error: the handler asked for the message again."""
        outcome: dict[str, AttributeValue] = {}
        if isinstance(error, Requeue):
            outcome["messaging.nsq.message.requeued"] = True
        elif error is not None:
            outcome["error.type"] = type(error).__qualname__
            self.span.record_exception(error)
            self.span.set_status(Status(StatusCode.ERROR, str(error)))
        self.span.set_attributes(outcome)
        self.span.end()
        labels = {**self._labels, **outcome}
        self._instruments.counter.add(self._count, labels)
        self._instruments.duration.record(perf_counter() - self._began_s, labels)


# ---- producers whose publishes have spans
#
# Calls and attributes that are not here are those of the producer itself.

# Begins the span of a publish, and returns the bodies to send.
Begin = Callable[[str, Sequence[Any]], tuple[Operation, list[Any]]]


class _Traced:
    def __init__(self, producer: Any, begin: Begin) -> None:
        self._producer = producer
        self._begin = begin
        # `on_done` is ours, so the producer's `flush` does not raise what it reports.
        self._failures = Failures()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def _done(self, publish: Operation, on_done: Done | None) -> Done:
        def end(error: NsqClientError | None) -> None:
            publish.end(error)
            if on_done is not None:
                on_done(error)
            elif error is not None:
                self._failures.add(error)

        return end


class TracedProducer(_Traced):
    """A producer of threads or of gevent."""

    def publish(self, topic: str, body: Any, *, defer_s: float = 0) -> None:
        publish, (wrapped,) = self._begin(topic, [body])
        with publish.run():
            self._producer.publish(topic, wrapped, defer_s=defer_s)

    def multi_publish(self, topic: str, bodies: Sequence[Any]) -> None:
        publish, wrapped = self._begin(topic, bodies)
        with publish.run():
            self._producer.multi_publish(topic, wrapped)

    def publish_soon(self, topic: str, body: Any, on_done: Done | None = None, *, defer_s: float = 0) -> Any:
        publish, (wrapped,) = self._begin(topic, [body])
        with publish.end_on_error():
            return self._producer.publish_soon(topic, wrapped, self._done(publish, on_done), defer_s=defer_s)

    def multi_publish_soon(self, topic: str, bodies: Sequence[Any], on_done: Done | None = None) -> Any:
        publish, wrapped = self._begin(topic, bodies)
        with publish.end_on_error():
            return self._producer.multi_publish_soon(topic, wrapped, self._done(publish, on_done))

    def flush(self, timeout_s: float | None = None) -> None:
        self._producer.flush(timeout_s)
        self._failures.raise_new()

    def close(self, timeout_s: float | None = None) -> None:
        self._producer.close(timeout_s)
        self._failures.raise_new()

    def __enter__(self) -> Self:
        self._producer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._producer.__exit__(kind, error, trace)
        if error is None:  # the first error says more
            self._failures.raise_new()


class AsyncTracedProducer(_Traced):
    """A producer of asyncio."""

    async def publish(self, topic: str, body: Any, *, defer_s: float = 0) -> None:
        publish, (wrapped,) = self._begin(topic, [body])
        with publish.run():
            await self._producer.publish(topic, wrapped, defer_s=defer_s)

    async def multi_publish(self, topic: str, bodies: Sequence[Any]) -> None:
        publish, wrapped = self._begin(topic, bodies)
        with publish.run():
            await self._producer.multi_publish(topic, wrapped)

    async def publish_soon(
        self, topic: str, body: Any, on_done: Done | None = None, *, defer_s: float = 0
    ) -> Any:
        publish, (wrapped,) = self._begin(topic, [body])
        with publish.end_on_error():
            return await self._producer.publish_soon(
                topic, wrapped, self._done(publish, on_done), defer_s=defer_s
            )

    async def multi_publish_soon(self, topic: str, bodies: Sequence[Any], on_done: Done | None = None) -> Any:
        publish, wrapped = self._begin(topic, bodies)
        with publish.end_on_error():
            return await self._producer.multi_publish_soon(topic, wrapped, self._done(publish, on_done))

    async def flush(self, timeout_s: float | None = None) -> None:
        await self._producer.flush(timeout_s)
        self._failures.raise_new()

    async def close(self, timeout_s: float | None = None) -> None:
        await self._producer.close(timeout_s)
        self._failures.raise_new()

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        await self._producer.__aexit__(kind, error, trace)
        if error is None:  # the first error says more
            self._failures.raise_new()
