"""The messages of kombu: what the body of a message of nsqd says about a task."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any

from kombu.utils.json import loads

from nsqd_py.client.message import Message


def eta_of(payload: Mapping[str, Any]) -> float | None:
    """Return the ETA of a task in seconds since the epoch; None if it has none that can be read."""
    text = (payload.get("headers") or {}).get("eta")
    if not isinstance(text, str):
        return None
    try:
        eta = datetime.fromisoformat(text)
    except ValueError:
        return None  # the worker says what is wrong with it
    if eta.tzinfo is None:
        eta = eta.replace(tzinfo=UTC)  # as Celery's workers read it
    return eta.timestamp()


def payload_of(message: Message, queue: str) -> dict[str, Any]:
    """Return the message of kombu. What is none becomes one, which Celery reports as an unknown message."""
    try:
        payload = loads(message.body)
        if payload["properties"]["delivery_tag"]:
            return dict(payload)
    except (ValueError, KeyError, TypeError):
        pass
    info = {"exchange": "", "routing_key": queue}
    properties = {"delivery_tag": message.id.decode(), "delivery_info": info, "body_encoding": "base64"}
    return {
        "body": b64encode(message.body).decode(),
        "content-type": "application/octet-stream",
        "content-encoding": "binary",
        "headers": {},
        "properties": properties,
    }


def tag_of(payload: Mapping[str, Any]) -> str:
    return str(payload["properties"]["delivery_tag"])


def is_redelivered(message: Message, eta_s: float | None, longest_s: float) -> bool:
    """True if nsqd has delivered the message before, apart from the deliveries that chain a long delay."""
    if eta_s is None:
        return message.attempts > 1
    delay_s = eta_s - message.timestamp_ns / 1e9
    return message.attempts > max(1, ceil(delay_s / longest_s))
