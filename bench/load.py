"""Publish to an nsqd and consume from it: `python -m bench.load -addr HOST:PORT -mode pub|mpub ...`.

The arguments are those of the generator that `--load` of `python -m bench` may name, and so is the object of JSON at
the end: messages published and consumed a second, and waits in microseconds. `measuring` is printed when every topic
exists, the consumers have subscribed, and the measurement begins.
"""

import argparse
import gc
import json
import multiprocessing
import select
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawValue
from typing import Any

from bench.client import Consumer, LoadError, Publisher, connect, request

_STALLED_S = 60.0
_TOPICS_WITHIN_S = 600.0  # Go's nsqd takes 110 s for 10,000 topics: it writes nsqd.dat for each one.
_LOOK_EVERY_S = 0.1
_STARTS, _MEASURES, _ENDS = range(3)


def percentile_us(waits_ns: Sequence[int], share: float) -> float:
    """Return a percentile in microseconds; 0 if there are no values."""
    ordered = sorted(waits_ns)
    return ordered[int((len(ordered) - 1) * share)] / 1000 if ordered else 0.0


def publish(publishers: Sequence[Publisher], requests: int, seconds: float) -> int:
    """Send up to `requests` on each connection for up to `seconds`. Return the number of requests; all are answered."""
    poll = select.epoll()
    by_number = {publisher.sock.fileno(): publisher for publisher in publishers}
    before = sum(publisher.answered for publisher in publishers)
    for number, publisher in by_number.items():
        # Edge-triggered: asking for EPOLLOUT all the time then costs nothing.
        poll.register(number, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        publisher.limit = publisher.answered + requests
    deadline_s = time.perf_counter() + seconds
    heard_s = time.perf_counter()
    is_late = False
    for publisher in publishers:
        publisher.push()
    while not all(publisher.is_done for publisher in publishers):
        events = poll.poll(_LOOK_EVERY_S)
        now_s = time.perf_counter()
        heard_s = now_s if events else heard_s
        if now_s - heard_s > _STALLED_S:
            raise LoadError(f"no answer to a publish for {_STALLED_S:g} s")
        if now_s >= deadline_s and not is_late:
            is_late = True
            for publisher in publishers:
                publisher.stop_after_sent()
        for number, event in events:
            publisher = by_number[number]
            if event & ~select.EPOLLOUT:
                publisher.pull()
            publisher.push()
    poll.close()
    return sum(publisher.answered for publisher in publishers) - before


def consume(port: int, arguments: argparse.Namespace, state: Any, finished: Any, answers: Connection) -> None:
    """Finish messages until `state` is _ENDS. Send the ages of some in ns, counted from nsqd's timestamp."""
    gc.disable()
    ages_ns = []
    try:
        poll = select.epoll()
        by_number: dict[int, Consumer] = {}
        for number in range(arguments.consumers):
            channel = f"channel{number % arguments.channels}"
            consumer = Consumer(port, topic_name(0), channel, arguments.size, arguments.rdy)
            by_number[consumer.sock.fileno()] = consumer
            poll.register(consumer.sock, select.EPOLLIN)
        answers.send("ready")
        while state.value != _ENDS:
            for number, _ in poll.poll(_LOOK_EVERY_S):
                finished.value += by_number[number].pull()
                if state.value == _MEASURES:
                    ages_ns.append(time.time_ns() - by_number[number].sent_ns)
        answers.send(ages_ns)
    except (LoadError, OSError) as error:
        answers.send(f"a consumer failed: {error}")


def topic_name(number: int) -> str:
    """Return a name whose length is the same for all numbers."""
    return f"load{number:05d}"


def publishers_of(port: int, arguments: argparse.Namespace) -> list[Publisher]:
    """Connect all publishers. Each begins with another topic, and goes round all topics."""
    batch = arguments.batch if arguments.mode == "mpub" else 1
    every = [request(topic_name(number), b"x" * arguments.size, batch) for number in range(arguments.topics)]
    firsts = [number * len(every) // arguments.conns for number in range(arguments.conns)]
    return [Publisher(connect(port), every[first:] + every[:first], arguments.window) for first in firsts]


def run(arguments: argparse.Namespace) -> dict[str, float]:
    """Publish for a time, with consumers in another process if there are any."""
    port = int(arguments.addr.rpartition(":")[2])
    context = multiprocessing.get_context("fork")
    state = RawValue("i", _STARTS)
    finished = RawValue("q", 0)
    here, there = context.Pipe()
    child = context.Process(target=consume, args=(port, arguments, state, finished, there), daemon=True)
    if arguments.consumers:
        child.start()
        answer(here)
    publishers = publishers_of(port, arguments)
    share = -(-arguments.topics // arguments.conns)
    publish(publishers, max(share, arguments.window), _TOPICS_WITHIN_S)
    publish(publishers, 1 << 40, arguments.warm)
    for publisher in publishers:
        del publisher.waits_ns[:]
    print("measuring", flush=True)
    state.value = _MEASURES
    before = finished.value
    started_s = time.perf_counter()
    requests = publish(publishers, 1 << 40, arguments.seconds)
    elapsed_s = time.perf_counter() - started_s
    consumed = finished.value - before
    state.value = _ENDS
    ages_ns = answer(here) if arguments.consumers else []
    waits_ns = [wait for publisher in publishers for wait in publisher.waits_ns]
    published = requests * (arguments.batch if arguments.mode == "mpub" else 1)
    return {
        "published_s": published / elapsed_s,
        "consumed_s": consumed / elapsed_s,
        "errors": 0,
        "answer_p50_us": percentile_us(waits_ns, 0.5),
        "answer_p99_us": percentile_us(waits_ns, 0.99),
        "e2e_p50_us": percentile_us(ages_ns, 0.5),
        "e2e_p99_us": percentile_us(ages_ns, 0.99),
    }


def answer(pipe: Connection) -> Any:
    """Return what the consumers' process sends. Raise LoadError if that is an error, or if nothing comes."""
    if not pipe.poll(_STALLED_S):
        raise LoadError("the consumers do not answer")
    received = pipe.recv()
    if isinstance(received, str) and received != "ready":
        raise LoadError(received)
    return received


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.load", description="Publish to an nsqd and consume from it."
    )
    parser.add_argument("-addr", required=True, metavar="HOST:PORT")
    parser.add_argument("-mode", choices=("pub", "mpub"), default="pub")
    for name, default, text in (
        ("conns", 1, "connections that publish"),
        ("topics", 1, "topics, each connection goes round all"),
        ("size", 200, "bytes of a message"),
        ("batch", 200, "messages of an MPUB"),
        ("window", 1, "unanswered requests of a connection"),
        ("consumers", 0, "connections that consume"),
        ("channels", 1, "channels of the consumers"),
        ("rdy", 2500, "messages in flight to a consumer"),
    ):
        parser.add_argument(f"-{name}", type=int, default=default, help=text)
    parser.add_argument("-seconds", type=float, default=1.0, help="length of the measurement")
    parser.add_argument("-warm", type=float, default=0.2, help="seconds of publishing before it")
    gc.disable()
    try:
        print(json.dumps(run(parser.parse_args())))
    except (LoadError, OSError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
