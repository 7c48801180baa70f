"""Spread work that needs a processor core over several processes: each one is a consumer of the same channel.

Start:  python examples/processes.py

It publishes 40 jobs, counts primes in four processes, and prints the results. In production, systemd or Kubernetes
starts the processes; nsqd distributes the messages in the same way. If a process dies, the others get its messages when
their time-out is over.
"""

import multiprocessing
import os
from multiprocessing.synchronize import Event

from nsqd_py.client import Consumer, Message, Producer

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
PROCESSES = 4
JOBS = 40


def count_primes(limit: int) -> int:
    return sum(
        all(number % divisor for divisor in range(2, int(number**0.5) + 1)) for number in range(2, limit)
    )


def work(stopping: Event) -> None:
    """Run in a process: one message at a time."""
    producer = Producer(NSQD)

    def handle(message: Message) -> None:
        limit = int(message.body)
        producer.publish("results", f"{limit} {count_primes(limit)} by {os.getpid()}".encode())

    with producer, Consumer("jobs", "primes", handle, nsqd_tcp_addresses=NSQD, max_in_flight=1):
        stopping.wait()


def main() -> None:
    stopping = multiprocessing.Event()
    processes = [multiprocessing.Process(target=work, args=[stopping]) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    with Producer(NSQD) as producer:
        producer.multi_publish(
            "jobs", [str(limit).encode() for limit in range(1000, 1000 * (JOBS + 1), 1000)]
        )
    for count, message in enumerate(Consumer("results", "screen", nsqd_tcp_addresses=NSQD), start=1):
        print(message.body.decode(), flush=True)
        if count == JOBS:
            message.finish()
            break
    stopping.set()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
