"""A stop of nsqd: what consumers have answered before it counts, also where it is still on its way."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import ExitStack

import pytest

from tests.support.wire import NOP, Closed, fin

pytestmark = pytest.mark.ours

RUNS = 10
MESSAGES = 20


@pytest.mark.parametrize("delay_s", [0.0, 0.010, 0.025])
def test_fins_that_the_system_of_the_client_holds_back_count(make_nsqd, delay_s):
    """Without TCP_NODELAY, the second FIN waits for the ACK of the first, which is delayed by up to 40 ms."""
    channels = [f"c{number}" for number in range(RUNS)]
    nsqd = make_nsqd()
    nsqd.create("t", *channels)
    with ExitStack() as open_clients:
        clients = [open_clients.enter_context(nsqd.connect()) for _ in channels]
        clients[0].mpub("t", [b"%d" % number for number in range(MESSAGES)])
        for client, channel in zip(clients, channels, strict=True):
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
            client.sub("t", channel, MESSAGES)
        received = [client.messages(MESSAGES) for client in clients]
        for client, messages in zip(clients, received, strict=True):
            for message in messages:
                client.send(fin(message.id))
        time.sleep(delay_s)  # no wait: it is the time at which the stop meets the FINs
        assert nsqd.stop() == 0
    nsqd.start()
    depths = {channel: nsqd.wait_for_channel("t", channel)["depth"] for channel in channels}
    assert depths == dict.fromkeys(channels, 0)


def test_fins_arrive_as_fast_as_the_consumer_sends_them(shared_nsqd, topic):
    """The system waits for 40 ms before it acknowledges input without output, and the client's sends no second FIN until then."""
    with shared_nsqd.connect() as client, shared_nsqd.connect() as publisher:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        client.sub(topic, "c", MESSAGES)
        times_s = []
        for _ in range(RUNS):
            publisher.mpub(topic, [b"m"] * MESSAGES)
            messages = client.messages(MESSAGES)
            began_s = time.monotonic()
            for message in messages:
                client.send(fin(message.id))
            client.round_trip()
            times_s.append(time.monotonic() - began_s)
        shared_nsqd.wait_for_channel(topic, "c", in_flight_count=0)
    assert min(times_s) < 0.030, times_s  # the quickest: the machine may be busy


def test_a_stop_waits_for_no_answer_that_is_not_on_its_way(make_nsqd):
    """A consumer that works on its messages gets no longer time for them, whatever else it sends."""
    nsqd = make_nsqd()
    with nsqd.connect() as client, nsqd.connect() as publisher:
        publisher.pub("t", b"held")
        client.sub("t", "c", 1)
        held = client.message()
        nsqd.signal(signal.SIGTERM)
        began_s = time.monotonic()
        with pytest.raises(Closed):
            publisher.frame()
        with pytest.raises(Closed):
            while time.monotonic() < began_s + 40:
                client.send(NOP)
                time.sleep(0.001)  # a client that sends all the time, and never its FIN
        assert nsqd.wait() == 0
    nsqd.start()
    again = nsqd.consume_all("t", "c")
    assert [(message.id, message.attempts) for message in again] == [(held.id, 2)]
