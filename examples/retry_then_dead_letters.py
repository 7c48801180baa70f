"""Retry with a growing delay; after the last attempt, move the message to a topic of dead letters.

Start:  python examples/retry_then_dead_letters.py
Try:    echo '{"amount": -1}' | to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150
        nsq-tail --topic=orders.dead --nsqd-tcp-address=127.0.0.1:4150

nsqd can do the last step by itself, for consumers in any language: `nsqd-py --max-attempts=4`.
"""

import json
import os
from contextlib import suppress

from nsqd_py.client import Consumer, Message, Producer, Requeue

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
FIRST_DELAY_S = float(os.environ.get("FIRST_DELAY_S", "1"))
ATTEMPTS = 4

producer = Producer(NSQD)


def charge(body: bytes) -> None:
    order = json.loads(body)
    if order["amount"] < 0:
        raise ValueError("a negative amount")
    print("charged", order["amount"], flush=True)


def handle(message: Message) -> None:
    try:
        charge(message.body)
    except Exception as error:
        if message.attempts < ATTEMPTS:
            # 1, 4 and 16 s. Without back-off, the consumer gets other messages in the meantime.
            raise Requeue(FIRST_DELAY_S * 4 ** (message.attempts - 1), backoff=False) from error
        letter = {
            "error": repr(error),
            "id": message.id.decode(),
            "body": message.body.decode(errors="replace"),
        }
        # If this fails, the handler raises, and the message comes again.
        producer.publish("orders.dead", json.dumps(letter).encode())


if __name__ == "__main__":
    # max_attempts=0: the client itself never gives up.
    with (
        suppress(KeyboardInterrupt),
        Consumer(
            "orders", "billing", handle, nsqd_tcp_addresses=NSQD, max_in_flight=100, max_attempts=0
        ) as consumer,
    ):
        consumer.wait()
