"""Attributes of spans and metrics, by OpenTelemetry's semantic conventions for messaging.

Names that begin with `messaging.nsq` are ours.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.util.types import AttributeValue

from nsqd_py.client.message import Message

Attributes = Mapping[str, AttributeValue]

BODY_SIZE = "messaging.message.body.size"
ENVELOPE_SIZE = "messaging.message.envelope.size"
BATCH_COUNT = "messaging.batch.message_count"
REQUEUED = "messaging.nsq.message.requeued"
ERROR_TYPE = "error.type"


def publish_labels(topic: str) -> Attributes:
    """Return the attributes that the span of a publish and its metrics share."""
    return {
        "messaging.system": "nsq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
    }


def process_labels(topic: str, channel: str) -> Attributes:
    """Return the attributes that the span of a handled message and its metrics share."""
    return {
        "messaging.system": "nsq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": channel,
    }


def message_attributes(message: Message) -> Attributes:
    """Return the attributes of one message, and of the nsqd that delivered it."""
    host, separator, port = message.nsqd.rpartition(":")
    if separator and port.isdecimal():
        server: Attributes = {"server.address": host.strip("[]"), "server.port": int(port)}
    else:
        server = {"server.address": message.nsqd}
    return {**server, "messaging.message.id": message.id.decode(), "messaging.nsq.message.attempts": message.attempts}
