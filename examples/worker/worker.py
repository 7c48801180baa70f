"""A worker that stops gracefully: on SIGTERM and Ctrl-C, it takes no more messages, and finishes those that it has.

Start:  python examples/worker/worker.py
Try:    seq 5 | to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150
        kill the worker by SIGTERM while it works

nsq-worker.service runs it under systemd, and Dockerfile in a container. Both give it time to stop.
"""

import os
import signal
import threading
import time

from nsqd_py.client import Consumer, Message

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
WORK_S = float(os.environ.get("WORK_S", "2"))
STOP_TIMEOUT_S = 45.0  # less than systemd and the container's engine wait before SIGKILL

stopping = threading.Event()


def handle(message: Message) -> None:
    print("began", message.body.decode(), flush=True)
    time.sleep(WORK_S)
    print("finished", message.body.decode(), flush=True)


def main() -> None:
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, lambda *_: stopping.set())
    consumer = Consumer("orders", "worker", handle, nsqd_tcp_addresses=NSQD, max_in_flight=4, concurrency=4)
    consumer.start()
    while not stopping.wait(1):  # Python may miss a signal that comes just before a wait without a time-out
        pass
    # Messages that are not finished by then come again, here or in another worker.
    consumer.stop(STOP_TIMEOUT_S)
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
