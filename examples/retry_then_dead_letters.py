"""Retry with a growing delay; after the last attempt, the message goes to the topic of dead letters, with its error.

Start:  python examples/retry_then_dead_letters.py
Try:    echo '{"amount": -1}' | to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150
        cd examples; nsq-worker dead list retry_then_dead_letters:app

nsqadmin shows the dead letters too. nsqd can move messages by itself, for consumers in any language: `nsqd-py --max-attempts=4`.
"""

import os
from typing import Any

from nsqd_py.work import App, Retry

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
FIRST_DELAY_S = float(os.environ.get("FIRST_DELAY_S", "1"))

app = App(nsqd_tcp_addresses=NSQD)


@app.handler(
    "orders", channel="billing", concurrency=10, retry=Retry(attempts=4, first_s=FIRST_DELAY_S, factor=4)
)
def charge(order: dict[str, Any]) -> None:
    if order["amount"] < 0:
        raise ValueError("a negative amount")
    print("charged", order["amount"], flush=True)


if __name__ == "__main__":
    app.run()
