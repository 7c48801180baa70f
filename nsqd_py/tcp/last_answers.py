"""The last answers of consumers when nsqd stops.

A consumer that finished its messages before the stop may have answers on their way. If its system waits for the ACK of
the first one before it sends the others (Nagle's algorithm, where a client does not set TCP_NODELAY), that ACK is late
by up to 40 ms: nsqd has no output with which to send it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import gevent

from nsqd_py.broker.services import Topic
from nsqd_py.tcp.client import Client

# Turns, not a time: on a busy machine, nsqd reads in each of them what has arrived by then.
_TURNS = 5
_TURN_S = 0.01


def with_messages(clients: Iterable[Client]) -> set[Client]:
    """Return the clients that have messages in flight."""
    return {client for client in clients if len(client.in_flight)}


def read_last_answers(clients: set[Client], topics: Iterable[Topic]) -> None:
    """Read from these clients for 50 ms more, and deliver nothing more. Blocks this greenlet.

    Return earlier when none of them has a message in flight.
    """
    for channel in chain.from_iterable(topic.channels.values() for topic in topics):
        channel.end_delivery()
    for _ in range(_TURNS):
        clients = {client for client in clients if len(client.in_flight) and not client.closed}
        if not clients:
            return
        for client in clients:
            client.acknowledge_input()
        gevent.sleep(_TURN_S)
