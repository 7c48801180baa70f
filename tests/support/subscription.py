"""A subscription without a network: messages as nsqd would send them, and what is answered."""

from __future__ import annotations

import struct
import threading

from nsqd_py.client.consuming.subscription import Subscription
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Negotiated
from nsqd_py.protocol.incoming import FrameParser, IncomingMessages

LIMITS = Negotiated(max_rdy_count=2500, msg_timeout_s=60.0, max_msg_timeout_s=900.0)


def message_id(number: int) -> bytes:
    return b"%016x" % number


def frame(number: int, attempts: int = 1) -> bytes:
    data = struct.pack(">qH", 1_000 + number, attempts) + message_id(number) + b"body %d" % number
    return struct.pack(">ii", len(data) + 4, 2) + data


def messages(*numbers: int, attempts: int = 1) -> IncomingMessages:
    (found,) = FrameParser().feed(b"".join(frame(number, attempts) for number in numbers))
    return found


class World:
    """A subscription at one nsqd, and a clock that stands still until it is set."""

    def __init__(self, max_in_flight: int = 100, **settings: object) -> None:
        self.now_s = 0.0
        self.ready: list[str] = []
        self.news: list[str] = []
        self.subscription = Subscription(
            "topic",
            "channel",
            ClientOptions.of(max_in_flight=max_in_flight, **settings),
            auto_touch=True,
            now_s=lambda: self.now_s,
            chance=lambda: 0.0,
            on_output=lambda: self.ready.append("output"),
            on_backoff=self.news.append,
            lock=threading.RLock(),
        )
        self.window = self.subscription.opened("nsqd:4150", LIMITS)

    def batch(self, *numbers: int, attempts: int = 1) -> MessageBatch:
        return self.window.add(messages(*numbers, attempts=attempts))

    def sent(self) -> list[bytes]:
        """The commands that left since the last time."""
        self.ready.clear()
        return self.window.take_output().splitlines()
