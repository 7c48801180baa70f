"""Call a service at most ten times a second, however many messages wait.

Start:  python examples/rate_limited.py
Try:    seq 50 | to-nsq --topic=emails --nsqd-tcp-address=127.0.0.1:4150

Handlers may sleep: the client answers heartbeats, and touches waiting messages, in a thread of its own. The limit is
that of one process; for n processes, give each an n-th of it.
"""

import os
import threading
import time
from contextlib import suppress

from nsqd_py.client import Consumer, Message

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
PER_SECOND = float(os.environ.get("PER_SECOND", "10"))


class RateLimit:
    """Lets callers pass at even intervals."""

    def __init__(self, per_second: float) -> None:
        self._interval_s = 1 / per_second
        self._next_s = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            now_s = time.monotonic()
            turn_s = max(now_s, self._next_s)
            self._next_s = turn_s + self._interval_s
        time.sleep(turn_s - now_s)


limit = RateLimit(PER_SECOND)


def handle(message: Message) -> None:
    limit.wait()
    print(f"{time.time():.3f} sent", message.body.decode(), flush=True)  # call the service here


if __name__ == "__main__":
    with (
        suppress(KeyboardInterrupt),
        Consumer(
            "emails", "sender", handle, nsqd_tcp_addresses=NSQD, max_in_flight=8, concurrency=4
        ) as consumer,
    ):
        consumer.wait()
