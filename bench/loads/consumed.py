"""Publishing to an nsqd while consumers finish every message. Deliveries a second."""

import gc
import multiprocessing
import select
import time
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event

from bench import wire
from bench.consumer import Consumer
from bench.percentiles import percentile
from bench.publishing import publish, topic_names
from bench.run import Amount, Endpoint, LoadError, Run
from bench.workload import Publishing

_CHANNEL = "consumed"
_RDY = 100
_SAMPLE_EVERY_S = 0.005
_LOOK_EVERY_S = 0.1
_READY_WITHIN_S = 30.0

# The time, the messages finished until then, and the age in ns of a message that was received then.
Sample = tuple[float, int, int]


def load(endpoint: Endpoint, amount: Amount) -> Run:
    """Return deliveries a second while publishers are at work; the ages count from nsqd's timestamp."""
    publishing = Publishing.from_environment()
    workload = publishing.workload
    context = multiprocessing.get_context("fork")
    is_ready, is_over = context.Event(), context.Event()
    results: SimpleQueue[tuple[list[Sample], float] | str] = context.SimpleQueue()
    arguments = (endpoint.tcp_port, workload.consumers, workload.size_bytes, is_ready, is_over, results)
    consumers = context.Process(target=_consume, args=arguments)
    consumers.start()
    try:
        if not is_ready.wait(_READY_WITHIN_S):
            raise LoadError("the consumers were not subscribed in time")
        watch, published = publish(
            endpoint.tcp_port, endpoint.pid, publishing.setup, workload, seconds=amount.seconds
        )
    finally:
        is_over.set()
    found = results.get()
    consumers.join()
    if isinstance(found, str):
        raise LoadError(found)
    samples, consumer_cores = found
    until_s = watch.started_s + published.elapsed_s
    delivered = finished_at(samples, until_s) - finished_at(samples, watch.started_s)
    ages_ns = sorted(age_ns for at_s, _, age_ns in samples if watch.started_s <= at_s <= until_s)
    if delivered < 1 or not ages_ns:
        raise LoadError("nothing was delivered")
    return watch.run(
        delivered / published.elapsed_s,
        int(delivered),
        published_per_s=published.messages / published.elapsed_s,
        age_p50_ms=percentile(ages_ns, 0.5) / 1e6,
        age_p99_ms=percentile(ages_ns, 0.99) / 1e6,
        server_cpu_us=watch.server_cpu_s / delivered * 1e6,
        consumer_cores=consumer_cores,
    )


def finished_at(samples: list[Sample], at_s: float) -> float:
    """Return how many messages were finished at a time, between two samples on the line from one to the other."""
    before = (0.0, 0)
    for sample_s, finished, _ in samples:
        if sample_s > at_s:
            share = (at_s - before[0]) / (sample_s - before[0]) if before[0] else 0.0
            return before[1] + share * (finished - before[1])
        before = (sample_s, finished)
    return float(before[1])


def _consume(
    port: int, count: int, body_bytes: int, is_ready: Event, is_over: Event,
    results: "SimpleQueue[tuple[list[Sample], float] | str]",
) -> None:  # fmt: skip
    gc.disable()
    try:
        consumers = [Consumer(port, _CHANNEL, topic_names(1)[0], body_bytes) for _ in range(count)]
        for consumer in consumers:
            consumer.sock.sendall(wire.rdy(_RDY))
        is_ready.set()
        started_s, cpu_s = time.perf_counter(), time.process_time()
        samples = _sample(consumers, is_over)
        results.put((samples, (time.process_time() - cpu_s) / (time.perf_counter() - started_s)))
    except (LoadError, wire.ProtocolError, OSError) as error:
        results.put(str(error))


def _sample(consumers: list[Consumer], is_over: Event) -> list[Sample]:
    """Finish messages until it is over."""
    poll = select.epoll()
    by_number = {consumer.sock.fileno(): consumer for consumer in consumers}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    samples: list[Sample] = []
    finished, sample_s = 0, time.perf_counter()
    while not is_over.is_set():
        for number, _ in poll.poll(_LOOK_EVERY_S):
            consumer = by_number[number]
            finished += consumer.pull()
            now_s = time.perf_counter()
            if now_s >= sample_s and consumer.oldest_ns:
                samples.append((now_s, finished, time.time_ns() - consumer.oldest_ns))
                sample_s = now_s + _SAMPLE_EVERY_S
    return samples
