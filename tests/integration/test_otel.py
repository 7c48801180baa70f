"""Spans and metrics of programs that publish to a real nsqd and handle its messages, in OpenTelemetry's exporters."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from nsqd_py.client import BadBody, Consumer, FlushFailed, NoNsqd, Producer, Requeue, aio
from nsqd_py.testing.embedded import Nsqd

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from nsqd_py.otel import Instrumentation
from nsqd_py.otel.envelope import MAGIC, unwrap
from tests.support.aio_client import run_in_new_loop
from tests.support.module_servers import module_embedded

pytestmark = pytest.mark.ours


class Program:
    """Publishes to a topic and handles its messages; what it has exported.

    instrumented  how it is, unless a test says otherwise
    """

    def __init__(self, nsqd: Nsqd, topic: str) -> None:
        self.nsqd = nsqd
        self.topic = topic
        self.exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader])
        self.tracer = self.tracer_provider.get_tracer("test")
        self.instrument()

    def instrument(self, **settings: bool) -> None:
        self.instrumented = Instrumentation(
            tracer_provider=self.tracer_provider, meter_provider=self.meter_provider, **settings
        )

    def producer(self) -> Any:
        return self.instrumented.producer(Producer(self.nsqd.tcp_address))

    def publish(self, *bodies: bytes) -> None:
        """Publish each alone."""
        with self.producer() as producer:
            for body in bodies:
                producer.publish(self.topic, body)

    def consume(
        self, count: int, handler: Callable[[Any], object] = lambda message: None, **settings: Any
    ) -> None:
        """Consume until the instrumented handler was called so often."""
        self.consume_plainly(count, self.instrumented.handler(handler), **settings)

    def consume_plainly(self, count: int, handler: Callable[[Any], Any], **settings: Any) -> None:
        """Consume until the handler was called so often."""
        calls = 0

        def counted(message):
            nonlocal calls
            calls += 1
            if calls == count:
                consumer.stop()
            return handler(message)

        consumer = Consumer(
            self.topic, "billing", counted, nsqd_tcp_addresses=self.nsqd.tcp_address, **settings
        )
        with consumer:  # the handler may be called before `with Consumer(...) as consumer` has set the name
            assert consumer.wait(40), f"the handler was called {calls} times, not {count}"

    @property
    def message_count(self) -> int:
        """How many messages nsqd has got."""
        return self.nsqd.stats(self.topic)["topics"][0]["message_count"]

    def spans(self, kind: SpanKind, count: int = 1) -> list[ReadableSpan]:
        """Return the finished spans of a kind, which must be this many."""
        spans = [span for span in self.exporter.get_finished_spans() if span.kind is kind]
        assert len(spans) == count
        return spans

    def statistics(self, name: str) -> list[tuple[Any, dict[str, Any]]]:
        """Return the values of a metric, with their attributes: a sum, or the number of measured durations."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            (getattr(point, "value", None) or point.count, dict(point.attributes))
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


nsqd = module_embedded()


@pytest.fixture
def program(nsqd, nsqd_topic) -> Program:
    return Program(nsqd, nsqd_topic)


def test_a_handled_message_is_a_child_of_its_publish(program):
    """The attributes are those of the conventions."""
    messages = []
    with program.tracer.start_as_current_span("request") as request:
        program.publish(b"order 1")
    program.consume(1, messages.append)
    (message,) = messages
    assert message.body == b"order 1"
    (published,) = program.spans(SpanKind.PRODUCER)
    (handled,) = program.spans(SpanKind.CONSUMER)
    assert published.parent.span_id == request.get_span_context().span_id
    assert handled.parent.span_id == published.context.span_id
    assert handled.context.trace_id == request.get_span_context().trace_id
    common = {
        "messaging.system": "nsq",
        "messaging.destination.name": program.topic,
        "messaging.message.body.size": 7,
    }
    assert published.name == f"publish {program.topic}"
    assert published.attributes == common | {
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
    }
    host, _, port = program.nsqd.tcp_address.rpartition(":")
    assert handled.name == f"process {program.topic}"
    assert handled.attributes == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.message.id": message.id.decode(),
        "messaging.message.envelope.size": 7 + len(MAGIC) + 2 + 68,
        "messaging.nsq.message.attempts": 1,
        "server.address": host,
        "server.port": int(port),
    }


def test_without_the_envelope_bodies_are_untouched(program):
    program.instrument(envelope=False)
    bodies = []
    program.publish(b"order 1", MAGIC + b"\x00\x00")
    program.consume(2, lambda message: bodies.append(message.body))
    assert sorted(bodies) == sorted([b"order 1", MAGIC + b"\x00\x00"])
    assert all(span.parent is None and not span.links for span in program.spans(SpanKind.CONSUMER, 2))


def test_a_consumer_that_does_not_know_the_envelope(program):
    bodies = []
    program.publish(b"order 1")
    program.consume_plainly(1, lambda message: bodies.append(message.body))
    assert bodies[0].startswith(MAGIC) and bodies[0].endswith(b"order 1")
    body, headers = unwrap(bodies[0])
    assert body == b"order 1" and set(headers) == {"traceparent"}


def test_what_looks_like_an_envelope_arrives_without_a_tracer_too(program):
    """Without an SDK there is no context to carry, but the consumer still takes one envelope off."""
    program.instrumented = Instrumentation()
    bodies = []
    program.publish(b"plain", MAGIC + b"\x00\x00inner")
    program.consume(2, lambda message: bodies.append(message.body))
    assert sorted(bodies) == sorted([b"plain", MAGIC + b"\x00\x00inner"])


def test_a_failed_handler(program):
    attempts = []

    def handle(message):
        attempts.append(message.attempts)
        if message.attempts == 1:
            raise ValueError("no such customer")

    program.publish(b"order 1")
    program.consume(2, handle, default_requeue_delay=0, max_backoff_duration=0)
    failed, handled = program.spans(SpanKind.CONSUMER, 2)
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "no such customer")
    assert failed.attributes["error.type"] == "ValueError"
    assert [event.name for event in failed.events] == ["exception"]
    assert handled.status.status_code is StatusCode.UNSET
    assert attempts == [1, 2]
    statistics = program.statistics("messaging.client.consumed.messages")
    assert sorted((count, labels.get("error.type", "")) for count, labels in statistics) == [
        (1, ""),
        (1, "ValueError"),
    ]
    assert len(program.statistics("messaging.process.duration")) == 2


def test_a_requeue_is_no_error(program):
    def handle(message):
        if message.attempts == 1:
            raise Requeue(0, backoff=False)

    program.publish(b"order 1")
    program.consume(2, handle)
    requeued, _ = program.spans(SpanKind.CONSUMER, 2)
    assert requeued.status.status_code is StatusCode.UNSET and requeued.events == ()
    assert requeued.attributes["messaging.nsq.message.requeued"] is True


@pytest.mark.parametrize(
    ("method", "body", "error"),
    [("publish", b"order 1", NoNsqd), ("publish_soon", b"", BadBody)],
    ids=["publish", "publish_soon"],
)
def test_a_failed_publish(program, method, body, error):
    with Producer("127.0.0.1:1") as producer, pytest.raises(error):
        getattr(program.instrumented.producer(producer), method)("orders", body)
    (published,) = program.spans(SpanKind.PRODUCER)
    assert published.status.status_code is StatusCode.ERROR
    ((count, labels),) = program.statistics("messaging.client.sent.messages")
    assert (count, labels["error.type"]) == (1, error.__name__)


def test_several_messages_are_one_publish(program):
    bodies = []
    with program.producer() as producer:
        producer.multi_publish(program.topic, [b"order 1", b"order 2"])
    program.consume(2, lambda message: bodies.append(message.body))
    (published,) = program.spans(SpanKind.PRODUCER)
    assert published.attributes["messaging.batch.message_count"] == 2
    handled = program.spans(SpanKind.CONSUMER, 2)
    assert {span.parent.span_id for span in handled if span.parent} == {published.context.span_id}
    assert sorted(bodies) == [b"order 1", b"order 2"]
    ((count, _),) = program.statistics("messaging.client.sent.messages")
    assert count == 2


def test_a_linked_span_begins_a_trace(program):
    program.instrument(linked=True)
    program.publish(b"order 1")
    program.consume(1)
    (published,) = program.spans(SpanKind.PRODUCER)
    (handled,) = program.spans(SpanKind.CONSUMER)
    assert handled.parent is None
    assert [link.context.span_id for link in handled.links] == [published.context.span_id]


def test_a_loop_over_messages(program):
    program.publish(b"order 1")
    with program.tracer.start_as_current_span("worker") as worker:
        for message in Consumer(program.topic, "billing", nsqd_tcp_addresses=program.nsqd.tcp_address):
            with program.instrumented.processing(message) as span:
                assert message.body == b"order 1" and span.is_recording()
            break
    (published,) = program.spans(SpanKind.PRODUCER)
    (handled,) = program.spans(SpanKind.CONSUMER)
    assert handled.parent.span_id == published.context.span_id
    assert [link.context.span_id for link in handled.links] == [worker.get_span_context().span_id]


def test_a_batch_is_linked_to_its_publishes(program):
    bodies = []
    program.publish(b"order 1", b"order 2")
    program.nsqd.publish(program.topic, "of a stranger")

    def handle(batch):
        bodies.extend(batch.bodies)
        batch.finish()
        if len(bodies) == 3:
            consumer.stop()

    consumer = Consumer(
        program.topic,
        "billing",
        batch_handler=program.instrumented.batch_handler(handle),
        nsqd_tcp_addresses=program.nsqd.tcp_address,
        max_in_flight=10,
    )
    with consumer:
        assert consumer.wait(40)
    assert sorted(bodies) == [b"of a stranger", b"order 1", b"order 2"]
    published = program.spans(SpanKind.PRODUCER, 2)
    handled = [span for span in program.exporter.get_finished_spans() if span.kind is SpanKind.CONSUMER]
    linked = {link.context.span_id for span in handled for link in span.links}
    assert linked == {span.context.span_id for span in published}
    assert sum(count for count, _ in program.statistics("messaging.client.consumed.messages")) == 3


def test_a_publish_that_does_not_wait_ends_with_its_answer(program):
    """A traced producer is still a producer."""
    results = []
    with program.producer() as producer:
        producer.ping()
        producer.publish_soon(program.topic, b"order 1")
        producer.multi_publish_soon(program.topic, [b"order 2", b"order 3"], results.append)
        producer.publish_soon(program.topic, b"order 4", defer_s=60)
        producer.publish(program.topic, b"order 5", defer_s=60)
    with pytest.raises(NoNsqd):
        producer.ping()
    assert results == [None]
    assert program.message_count == 5
    spans = program.spans(SpanKind.PRODUCER, 4)
    counts = [span.attributes.get("messaging.batch.message_count", 1) for span in spans]
    assert sorted(counts) == [1, 1, 1, 2]
    assert [count for count, _ in program.statistics("messaging.client.sent.messages")] == [5]


def test_what_nsqd_refuses_is_raised_by_flush_or_passed_to_on_done(program):
    refused = program.topic, bytes(2 << 20)
    errors = []
    producer = program.producer()
    producer.publish_soon(*refused)
    with pytest.raises(FlushFailed, match="E_BAD_MESSAGE"):
        producer.flush()
    producer.publish_soon(*refused, errors.append)
    producer.flush()
    assert [error.code for error in errors] == ["E_BAD_MESSAGE"]
    with pytest.raises(FlushFailed), producer:
        producer.publish_soon(*refused)
    spans = program.spans(SpanKind.PRODUCER, 3)
    assert {span.status.status_code for span in spans} == {StatusCode.ERROR}


def test_asyncio(program):
    bodies = []

    async def handle(message):
        await asyncio.to_thread(bool)
        bodies.append(message.body)
        if len(bodies) == 4:
            await consumer.stop()

    async def publish_and_consume():
        nonlocal consumer
        address, handler = program.nsqd.tcp_address, program.instrumented.handler(handle)
        async with program.instrumented.producer(aio.Producer(address)) as producer:
            await producer.publish(program.topic, b"order 1")
            await producer.multi_publish(program.topic, [b"order 2", b"order 3"])
            await producer.publish_soon(program.topic, b"order 4")
        consumer = aio.Consumer(program.topic, "billing", handler, nsqd_tcp_addresses=address)
        async with consumer:
            return await consumer.wait(40)

    consumer: aio.Consumer
    assert run_in_new_loop(publish_and_consume())
    assert sorted(bodies) == [b"order 1", b"order 2", b"order 3", b"order 4"]
    published = {span.context.span_id for span in program.spans(SpanKind.PRODUCER, 3)}
    handled = {span.parent.span_id for span in program.spans(SpanKind.CONSUMER, 4) if span.parent}
    assert handled == published


def test_gevent(nsqd, nsqd_topic):
    """In a process of its own, as gevent's client is used."""
    code = f"""
from nsqd_py.client.gevent import Consumer, Producer
from nsqd_py.otel import Instrumentation
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
telemetry = Instrumentation()
with telemetry.producer(Producer({nsqd.tcp_address!r})) as producer:
    producer.publish({nsqd_topic!r}, b"order 1")
    producer.publish_soon({nsqd_topic!r}, b"order 2")
parents = []

def handle(message):
    parents.append(trace.get_current_span().parent.span_id)
    print(message.body)
    if len(parents) == 2:
        consumer.stop()

consumer = Consumer({nsqd_topic!r}, "billing", telemetry.handler(handle), nsqd_tcp_addresses={nsqd.tcp_address!r})
with consumer:
    assert consumer.wait(40)
print(len(set(parents)), all(parents))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (sorted(done.stdout.splitlines()), done.stderr) == (["2 True", "b'order 1'", "b'order 2'"], "")
