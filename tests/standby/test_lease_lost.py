"""A primary that has lost its lease: nothing that it sent before arrives when the next one serves."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.wire import MESSAGE, Client, Closed

pytestmark = pytest.mark.ours

COUNT, SIZE_BYTES = 200, 20_000


def test_what_the_network_held_back_is_not_delivered_later(make_hosts):
    """The consumer's system acknowledges nothing, so most of the messages wait in the primary's socket."""
    hosts = make_hosts()
    primary, standby = hosts.wait_until_whole()
    primary.create("t", "c")
    port, address = primary.tcp_port, primary.host.address
    with hosts.client_host.call(lambda: Client(port, address=address)) as consumer:
        consumer.sub("t", "c", COUNT)
        hosts.network.silence(hosts.client_host, primary.host)
        with Client(port, address=address) as publisher:
            publisher.mpub("t", [bytes(SIZE_BYTES)] * COUNT)
        hosts.network.cut(primary.host, hosts.store)
        hosts.wait_until_it_serves(standby)
        _messages(consumer, 0.5)
        hosts.network.heal_all()
        assert not _messages(consumer, 5.0)


def _messages(consumer: Client, deadline_s: float) -> int:
    """Return how many come until the connection ends, or is silent for that time."""
    count = 0
    with contextlib.suppress(Closed, TimeoutError):
        while True:
            count += consumer.frame(deadline_s).kind == MESSAGE
    return count
