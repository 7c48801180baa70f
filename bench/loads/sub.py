"""Two consumers with RDY 2500 empty a channel that was filled before. Messages per second."""

import select
from collections.abc import Callable

from bench import wire
from bench.admin import Admin, channels_hold, is_drained
from bench.consumer import Consumer
from bench.loads.mpub import fill
from bench.peers.setups import LIMIT
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch
from bench.workload import Publishing

CONSUMERS = 2
RDY = 2500
_LEAST_RDY = 50
_STALLED_S = 30.0


def load(endpoint: Endpoint, amount: Amount) -> Run:
    return _drain(endpoint, amount.messages, [wire.CHANNEL] * CONSUMERS)


def channels(count: int, endpoint: Endpoint, amount: Amount) -> Run:
    """A consumer on each of `count` channels of one topic, `amount.messages` deliveries in all of them together."""
    if Publishing.from_environment().setup == LIMIT.name:
        consumers = [Consumer(endpoint.tcp_port) for _ in range(count)]
        return _consume(consumers, amount.messages, Stopwatch(endpoint.pid), ends=False)
    return _drain(endpoint, amount.messages // count, [f"channel{number}" for number in range(count)])


def _drain(endpoint: Endpoint, messages: int, channels: list[str]) -> Run:
    """Fill the topic, then consume it with a consumer on each of `channels`, of which several may have one name."""
    admin = Admin(endpoint.http_port)
    admin.create(*set(channels))
    filling = Stopwatch(endpoint.pid)
    messages = fill(endpoint, messages)
    filling.stop()
    admin.wait_for(channels_hold(messages), within_s=60)
    consumers = [Consumer(endpoint.tcp_port, channel) for channel in channels]
    run = _consume(consumers, messages * len(set(channels)), Stopwatch(endpoint.pid))
    run.details["published_per_s"] = messages / filling.elapsed_s
    for stats in admin.wait_for(is_drained, within_s=10)["channels"]:
        if stats["requeue_count"] or stats["timeout_count"]:
            raise LoadError(f"requeued {stats['requeue_count']}, timed out {stats['timeout_count']}, expected none")
    return run


def _consume(consumers: list[Consumer], messages: int, watch: Stopwatch, *, ends: bool = True) -> Run:
    """Consume all, if the server `ends` after all; the figure leaves out the last two windows.

    The end of a queue may wait for the output buffer's time-out (250 ms in Go's nsqd), which is a matter of
    latency: it would make a peer's throughput look worse the shorter the run.
    """
    poll = select.epoll()
    pulls = {}
    ready = max(RDY * CONSUMERS // max(len(consumers), CONSUMERS), _LEAST_RDY)
    for consumer in consumers:
        poll.register(consumer.sock, select.EPOLLIN)
        pulls[consumer.sock.fileno()] = consumer.pull
        consumer.sock.sendall(wire.rdy(ready))
    timed = max(messages - 2 * ready * len(consumers), messages // 2)
    done = _pull_until(timed, 0, poll, pulls)
    watch.stop()
    run = watch.rate(done)
    if not ends:
        return run
    done = _pull_until(messages, done, poll, pulls)
    if done > messages:
        raise LoadError(f"{done} messages delivered, {messages} published")
    return run


def _pull_until(target: int, done: int, poll: select.epoll, pulls: dict[int, Callable[[], int]]) -> int:
    while done < target:
        events = poll.poll(_STALLED_S)
        if not events:
            raise LoadError(f"nothing delivered for {_STALLED_S:g} s, {done} of {target} so far")
        for number, _ in events:
            done += pulls[number]()
    return done
