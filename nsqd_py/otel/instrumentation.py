"""Spans and metrics around the calls of a producer and the handlers of a consumer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from nsqd_py.client.callables import is_coroutine_function
from nsqd_py.client.message import Message, MessageBatch
from nsqd_py.otel.operation import (
    BATCH_COUNT,
    BODY_SIZE,
    Attributes,
    Instruments,
    Operation,
    labels_of,
    message_attributes,
)
from nsqd_py.otel.producers import AsyncTracedProducer, TracedProducer
from nsqd_py.protocol.envelope import MAGIC, unwrap, wrap
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
        """Begin the span in which a message is handled, for loops. Take the envelope off its body.

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
        current = trace.get_current_span().get_span_context()
        links = [current] if current.is_valid else []
        return self._begin_process(message, attributes, publisher, links).run()

    def batch_handler(self, handle: AnyBatchHandler) -> AnyBatchHandler:
        """Return a handler of batches that does the same in one span, with a link to the span of each publish."""
        return _in_span(handle, self._processing_batch)

    def _processing_batch(self, batch: MessageBatch) -> AbstractContextManager[Span]:
        bodies = []
        publishers = {}
        for wrapped in batch.bodies:
            body, publisher = self._unwrapped(wrapped)
            bodies.append(body)
            if publisher is not None:
                publishers[publisher.span_id] = publisher
        batch.bodies[:] = bodies
        attributes = {BATCH_COUNT: len(batch), BODY_SIZE: sum(map(len, batch.bodies))}
        processing = self._begin_process(batch, attributes, links=publishers.values(), count=len(batch))
        return processing.run()

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
        within = None
        if parent is not None:
            within = trace.set_span_in_context(NonRecordingSpan(parent), context.Context())
        span = self._tracer.start_span(
            f"process {source.topic}",
            within,
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
