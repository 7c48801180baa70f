"""One publish, or one handled message: its span, its metrics, and their attributes.

The attributes follow OpenTelemetry's semantic conventions for messaging; names that begin with `messaging.nsq` are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.trace import Span, Status, StatusCode, use_span
from opentelemetry.util.types import AttributeValue

from nsqd_py.client.message import Message, Requeue

Attributes = Mapping[str, AttributeValue]

BODY_SIZE = "messaging.message.body.size"
BATCH_COUNT = "messaging.batch.message_count"
# The conventions ask for these boundaries, in seconds.
_BOUNDARIES_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def labels_of(operation: str, kind: str, topic: str, channel: str = "") -> Attributes:
    """Return the attributes that the span of an operation has in common with its metrics."""
    labels = {
        "messaging.system": "nsq",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }
    if channel:
        labels["messaging.consumer.group.name"] = channel
    return labels


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
