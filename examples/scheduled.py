"""Deliver messages at a time of your choice, even in some weeks.

Start:  python examples/scheduled.py
Try:    python examples/scheduled.py 2 'call Ann'     deliver it in 2 seconds

nsqd keeps deferred messages on disk, so they survive restarts. It defers a message for at most an hour (its flags
--max-defer-timeout and --max-req-timeout). Therefore the body has the time, and the consumer defers the message again.
"""

import json
import os
import sys
import time
from contextlib import suppress

from nsqd_py.client import Consumer, Message, Producer, Requeue

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
LONGEST_DELAY_S = float(os.environ.get("LONGEST_DELAY_S", "3600"))


def schedule(producer: Producer, text: str, at_s: float) -> None:
    """Publish a reminder for a time, in seconds since 1970."""
    body = json.dumps({"at_s": at_s, "text": text}).encode()
    producer.publish("reminders", body, defer_s=min(max(0.0, at_s - time.time()), LONGEST_DELAY_S))


def handle(message: Message) -> None:
    reminder = json.loads(message.body)
    left_s = reminder["at_s"] - time.time()
    if left_s > 0:
        raise Requeue(min(left_s, LONGEST_DELAY_S), backoff=False)
    print(reminder["text"], flush=True)


def main() -> None:
    if len(sys.argv) == 3:
        with Producer(NSQD) as producer:
            schedule(producer, sys.argv[2], time.time() + float(sys.argv[1]))
        return
    # max_attempts=0: each deferral is an attempt.
    with (
        suppress(KeyboardInterrupt),
        Consumer(
            "reminders", "screen", handle, nsqd_tcp_addresses=NSQD, max_in_flight=50, max_attempts=0
        ) as consumer,
    ):
        consumer.wait()


if __name__ == "__main__":
    main()
