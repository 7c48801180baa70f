"""Call a service at most ten times a second, however many messages wait.

Start:  python examples/rate_limited.py
Try:    seq 50 | to-nsq --topic=emails --nsqd-tcp-address=127.0.0.1:4150

The limit is that of one process; for n processes, give each an n-th of it.
"""

import os
import time

from nsqd_py.work import App

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")

app = App(nsqd_tcp_addresses=NSQD)


@app.handler("emails", channel="sender", concurrency=4, rate=float(os.environ.get("PER_SECOND", "10")))
def send(email: str) -> None:
    print(f"{time.time():.3f} sent", email, flush=True)  # call the service here


if __name__ == "__main__":
    app.run()
