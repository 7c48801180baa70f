"""Spread work that needs a processor core over several processes.

Start:  cd examples; nsq-worker processes:app --processes=4
Try:    python examples/processes.py       publishes 40 jobs, and prints their results

nsqd distributes the messages, also over several machines. If a process dies, nsq-worker starts another one, and its messages come
again when their time-out is over.
"""

import os

from nsqd_py.client import Consumer
from nsqd_py.work import App

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
JOBS = 40

app = App(nsqd_tcp_addresses=NSQD)


@app.handler("jobs", channel="primes")
def count_primes(limit: int) -> None:
    count = sum(
        all(number % divisor for divisor in range(2, int(number**0.5) + 1)) for number in range(2, limit)
    )
    app.publish("results", f"{limit} {count} by {os.getpid()}")


def main() -> None:
    for limit in range(1000, 1000 * (JOBS + 1), 1000):
        app.publish("jobs", limit)
    for count, message in enumerate(Consumer("results", "screen", nsqd_tcp_addresses=NSQD), start=1):
        print(message.body.decode(), flush=True)
        if count == JOBS:
            message.finish()
            break


if __name__ == "__main__":
    main()
