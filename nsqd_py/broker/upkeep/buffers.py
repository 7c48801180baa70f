"""The memory of connections: partly received requests, and unsent output."""

from __future__ import annotations

from typing import Any

from nsqd_py.broker.broker import Broker
from nsqd_py.runtime.pacing import WorkSlices

# Whatever the limit of memory is, the incomplete requests may hold as many bodies of --max-body-size.
_UNFINISHED_BODIES = 32


def count_buffers(broker: Broker, slices: WorkSlices) -> None:
    """Count the partly received requests and unsent output of connections. Blocks this greenlet in its pauses.

    If the requests alone exceed the limit of memory, close the connections with the largest ones.
    """
    received = {}
    buffered_bytes = 0
    for client in (*broker.clients, *broker.http_clients):
        received[client] = client.received_bytes
        buffered_bytes += client.buffered_bytes
        slices.sleep_if_due()
    received_bytes = sum(received.values())
    broker.memory.note_buffers(received_bytes + buffered_bytes)
    most_bytes = max(broker.memory.limit_bytes, _UNFINISHED_BODIES * broker.options.max_body_size)
    if received_bytes > most_bytes:
        _close_largest(broker, received, received_bytes - most_bytes)


def _close_largest(broker: Broker, received: dict[Any, int], excess: int) -> None:
    """Close the connections with the largest incomplete requests, until these have `excess` bytes or more."""
    for client in sorted(received, key=received.__getitem__, reverse=True):
        if excess <= 0:
            return
        excess -= received[client]
        broker.log.of_clients.warning(
            "closed client(%s) - too many large requests are incomplete", client.peer
        )
        client.close("too many large requests are incomplete")
