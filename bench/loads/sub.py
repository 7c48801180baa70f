"""Two consumers with RDY 2500 empty a channel that was filled before. Messages per second.

A message of 200 bytes is a frame of fixed size. So the ids are cut out of the receive buffer with strided
slices, sixteen for a whole buffer, and all its FINs leave in one send: 0.03 us per message, against 0.13 us
for a slice per id. A buffer with any other frame in it (a heartbeat) is parsed frame by frame.
"""

import select
import struct
from collections.abc import Callable

from bench import wire
from bench.admin import Admin, channels_hold, is_drained
from bench.loads.mpub import fill
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch

CONSUMERS = 2
RDY = 2500
_LEAST_RDY = 50
_STALLED_S = 30.0

FRAME_BYTES = 4 + 4 + 8 + 2 + 16 + wire.BODY_BYTES  # size, type, timestamp, attempts, id, body
_HEADER = struct.pack(">ii", FRAME_BYTES - 4, wire.MESSAGE)
_ID_AT, _ID_BYTES = 18, 16
_BUFFER_BYTES = 512 * 1024
_MOST = _BUFFER_BYTES // FRAME_BYTES
_LAST_SIZE_BYTES = _HEADER[3:4] * _MOST
_LAST_TYPE_BYTES = _HEADER[7:8] * _MOST
_FIN = b"FIN ----------------\n"
_FINS = _FIN * _MOST


def fins(buffer: bytearray, count: int) -> bytearray:
    """The FINs of the `count` message frames at the start of `buffer`."""
    out = bytearray(_FINS[: count * len(_FIN)])
    end = count * FRAME_BYTES
    for k in range(_ID_BYTES):
        out[4 + k :: len(_FIN)] = buffer[_ID_AT + k : end : FRAME_BYTES]
    return out


def is_regular(buffer: bytearray, count: int) -> bool:
    """Whether `buffer` starts with `count` message frames of the expected size, and nothing between them."""
    end = count * FRAME_BYTES
    return (
        buffer[3:end:FRAME_BYTES] == _LAST_SIZE_BYTES[:count] and buffer[7:end:FRAME_BYTES] == _LAST_TYPE_BYTES[:count]
    )


class Consumer:
    """One subscribed connection."""

    __slots__ = ("_buffer", "_filled", "_view", "sock")

    def __init__(self, port: int, channel: str = wire.CHANNEL) -> None:
        self.sock = wire.connect(port)
        self.sock.sendall(wire.sub(channel))
        wire.FrameReader(self.sock).expect_ok()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def pull(self) -> int:
        """Receive once and answer all of it; returns how many messages were finished."""
        received = self.sock.recv_into(self._view[self._filled :])
        if not received:
            raise ConnectionError("nsqd closed the connection")
        self._filled += received
        count = self._filled // FRAME_BYTES
        if count and is_regular(self._buffer, count):
            self.sock.sendall(fins(self._buffer, count))
            self._drop(count * FRAME_BYTES)
            return count
        return self._pull_slowly()

    def _pull_slowly(self) -> int:
        frames, rest = wire.split_frames(bytes(self._view[: self._filled]))
        answers = []
        for kind, body in frames:
            if kind == wire.MESSAGE:
                answers.append(b"FIN %s\n" % body[_ID_AT - 8 : _ID_AT - 8 + _ID_BYTES])
            elif wire.is_heartbeat(kind, body):
                answers.append(wire.NOP)
            else:
                raise LoadError(f"expected a message, got {body[:80]!r}")
        if answers:
            self.sock.sendall(b"".join(answers))
        self._drop(self._filled - len(rest))
        return sum(answer is not wire.NOP for answer in answers)

    def _drop(self, size_bytes: int) -> None:
        rest = self._filled - size_bytes
        self._buffer[:rest] = self._buffer[size_bytes : self._filled]
        self._filled = rest


def load(endpoint: Endpoint, amount: Amount) -> Run:
    return _drain(endpoint, amount.messages, [wire.CHANNEL] * CONSUMERS)


def channels(count: int, endpoint: Endpoint, amount: Amount) -> Run:
    """A consumer on each of `count` channels of one topic, `amount.messages` deliveries in all of them together."""
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
    run.details["server_cpu_us"] = run.server_cpu_s / run.messages * 1e6
    for stats in admin.wait_for(is_drained, within_s=10)["channels"]:
        if stats["requeue_count"] or stats["timeout_count"]:
            raise LoadError(f"requeued {stats['requeue_count']}, timed out {stats['timeout_count']}, expected none")
    return run


def _consume(consumers: list[Consumer], messages: int, watch: Stopwatch) -> Run:
    """Consume all; the figure leaves out the last two windows.

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
