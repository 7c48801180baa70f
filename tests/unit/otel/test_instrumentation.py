"""What strangers publish never makes a handler fail, and async handlers have spans too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nsqd_py.otel import Instrumentation
from nsqd_py.otel.envelope import wrap
from tests.support.aio_client import run_in_new_loop

printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=600)
traceparents = printable | st.from_regex(
    r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}[ -~]{0,9}", fullmatch=True
)
members = st.lists(st.from_regex(r"[a-z0-9_*/@-]{0,9}=[ -~]{0,9}", fullmatch=True), max_size=40)
SPANS = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(SPANS))


class Message:
    """A message as a consumer has it."""

    topic, channel, nsqd, id, attempts = "orders", "billing", "unix:/run/nsqd.sock", b"0123456789abcdef", 1

    def __init__(self, body: bytes) -> None:
        self.body = body


@given(traceparents, printable | members.map(",".join))
def test_hostile_contexts_never_raise(traceparent: str, tracestate: str) -> None:
    telemetry = Instrumentation(tracer_provider=PROVIDER)
    message = Message(
        wrap(b"body", {"traceparent": traceparent, "tracestate": tracestate} if traceparent else {})
    )
    with telemetry.processing(message):
        assert message.body == b"body"


def test_an_async_handler_runs_in_its_span() -> None:
    SPANS.clear()

    async def handle(message: Any) -> bytes:
        await asyncio.sleep(0)
        return bytes(message.body)

    message = Message(b"body")
    assert run_in_new_loop(Instrumentation(tracer_provider=PROVIDER).handler(handle)(message)) == b"body"
    (span,) = SPANS.get_finished_spans()
    assert span.attributes["server.address"] == "unix:/run/nsqd.sock"
    assert "server.port" not in span.attributes
