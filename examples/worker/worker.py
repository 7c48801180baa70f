"""A worker that stops gracefully: on SIGTERM and Ctrl-C, it takes no more messages, and finishes those that it has.

Start:  cd examples/worker; nsq-worker worker:app --stop-timeout=45s
Try:    seq 5 | to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150
        kill the worker by SIGTERM while it works

nsq-worker.service runs it under systemd, and Dockerfile in a container. Both give it time to stop.
"""

import os
import time

from nsqd_py.work import App

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
WORK_S = float(os.environ.get("WORK_S", "2"))

app = App(nsqd_tcp_addresses=NSQD)


@app.handler("orders", channel="worker", concurrency=4)
def work(order: str) -> None:
    print("began", order, flush=True)
    time.sleep(WORK_S)
    print("finished", order, flush=True)
