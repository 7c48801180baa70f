"""Signal handlers that raise anywhere in a client's methods, or that call them again, as finalizers do."""

from __future__ import annotations

import threading

import pytest

from nsqd_py.client import Producer, TimedOut
from tests.support.ledger import compare
from tests.support.sweeps import sample
from tests.support.wire import bodies

pytestmark = pytest.mark.ours


# `interrupts(step, number)` calls `step` until a signal handler has interrupted it so often, at random moments.
_PRELUDE = """
import faulthandler, gc, logging, random, signal, sys, threading
from nsqd_py.client import Consumer, NoNsqd, Producer, aio
faulthandler.dump_traceback_later(60, exit=True)

class Interrupt(Exception):
    pass

def interrupt(*_):
    raise Interrupt

# Python only reports what is raised in a finalizer, as in those of a WeakSet.
sys.unraisablehook = lambda one: one.exc_type is Interrupt or sys.__unraisablehook__(one)
# So does a producer with what is raised in a callback.
logging.lastResort.addFilter(lambda record: not (record.exc_info and record.exc_info[0] is Interrupt))

def interrupts(step, number, longest_s=4e-4):
    signal.signal(signal.SIGALRM, interrupt)
    while number:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, longest_s))
            try:
                step()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupt:
            number -= 1

stored, numbers = [], iter(range(1 << 40))
def body():
    return b"%d" % next(numbers)
producer = Producer(ADDRESS)
"""
_AFTER = """
producer.publish(TOPIC, b"last")
producer.flush()
producer.close(1)
print(*(one.decode() for one in stored), "last")
"""


STEPS = {
    "publish": """
def step():
    one = body()
    producer.publish(TOPIC, one)
    stored.append(one)
interrupts(step, TIMES)
""",
    "publish_soon": """
def step():
    one = body()
    producer.publish_soon(TOPIC, one, lambda error: error is None and stored.append(one))
interrupts(step, TIMES, 1e-4)
""",
    "result": """
def step():
    one = body()
    future = producer.publish_soon(TOPIC, one)
    future.add_done_callback(lambda _: None)
    future.result()
    stored.append(one)
interrupts(step, TIMES)
""",
    "flush": """
def step():
    some = [body() for _ in range(5)]
    for one in some:
        producer.publish_soon(TOPIC, one)
    producer.flush()
    stored.extend(some)
interrupts(step, TIMES)
""",
    "start": """
for _ in range(TIMES // 15):
    producer = Producer(ADDRESS)
    interrupts(lambda: producer.publish(TOPIC, b"first"), 1, 2e-4)
    stored.append(body())
    producer.publish(TOPIC, stored[-1])
    producer.close(1)
producer = Producer(ADDRESS)
""",
    "close": """
def step():
    one = body()
    with Producer(ADDRESS) as producer:
        producer.publish_soon(TOPIC, one)
    stored.append(one)
interrupts(step, TIMES // 10, 2e-3)
""",
    "room": """
producer = Producer(ADDRESS, window=1)
def step():
    one = body()
    producer.publish_soon(TOPIC, one, lambda error: error is None and stored.append(one))
interrupts(step, TIMES)
""",
}


# A producer may be called inside its own calls.
REENTRANT = {
    "signal handler": """
def publish_again(*_):
    one = body()
    producer.publish_soon(TOPIC, one, lambda error: error is None and stored.append(one))
    if len(stored) % 50 == 0:
        producer.publish(TOPIC, one)
    signal.setitimer(signal.ITIMER_REAL, 1e-4)
signal.signal(signal.SIGALRM, publish_again)
publish_again()
for _ in range(TIMES):
    producer.publish(TOPIC, b"x")
    producer.publish_soon(TOPIC, b"x")
signal.signal(signal.SIGALRM, lambda *_: None)
""",
    "finalizer": """
class Dropped:
    def __init__(self):
        self.cycle = self
    def __del__(self):
        one = body()
        producer.publish_soon(TOPIC, one, lambda error: error is None and stored.append(one))
gc.set_threshold(20)
for _ in range(TIMES):
    Dropped()
    producer.publish_soon(TOPIC, b"x").add_done_callback(lambda _: Dropped())
    producer.publish(TOPIC, b"x")
gc.collect()
""",
    "closing signal handler": """
def close(*_):
    producer.close(1)
signal.signal(signal.SIGALRM, close)
for _ in range(TIMES // 30):
    producer = Producer(ADDRESS)
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 5e-3))
    try:
        while True:
            producer.publish(TOPIC, b"x")
            stored.append(b"x")
    except NoNsqd as error:
        assert "closed" in str(error)
producer = Producer(ADDRESS)
stored += [b"%d" % number for number in range(10)]
producer.multi_publish(TOPIC, stored[-10:])
""",
}


@pytest.mark.parametrize("times", sample(500, 3000))
@pytest.mark.parametrize("name", [*STEPS, *REENTRANT])
def test_interruptions_break_nothing(shared_nsqd, script, topic, name, times):
    """What a producer reports as stored is in nsqd, and the producer works after it."""
    code = (STEPS | REENTRANT)[name]
    stored = set(script("\n".join([_PRELUDE, code, _AFTER]), TIMES=times).encode().split())
    assert b"last" in stored
    assert compare(stored, bodies(shared_nsqd.consume_all(topic, "c")), at_least_once=True).of("lost") == []


def test_a_signal_handler_that_raises_loses_no_message_of_a_consumer(shared_nsqd, script, topic):
    answered = """
producer.multi_publish(TOPIC, [b"%d" % number for number in range(3000)])
from queue import SimpleQueue
came, answered = SimpleQueue(), set()
def keep(message):
    message.detach()
    came.put(message)
consumer = Consumer(TOPIC, "c", keep, nsqd_tcp_addresses=ADDRESS, max_in_flight=2500, max_attempts=0, msg_timeout="2s")
consumer.start()
def step():
    message = came.get(timeout=40)
    message.touch()
    if random.random() < 0.5:
        message.requeue(0, backoff=False)
    else:
        answered.add(message.body)
        message.finish()
interrupts(step, 1500, 1e-4)
consumer.stop(1)
for one in answered:
    print(one.decode())
"""
    finished = script(_PRELUDE + answered).encode().split()
    published = map(b"%d".__mod__, range(3000))
    compare(
        published, finished + bodies(shared_nsqd.consume_all(topic, "c")), at_least_once=True
    ).require_sound()


def test_close_does_not_wait_for_a_callback_that_hangs(address, topic):
    may_end, has_ended = threading.Event(), threading.Event()

    def hang(error):
        assert may_end.wait(40)
        has_ended.set()

    producer = Producer(address)
    producer.publish_soon(topic, b"x", hang)
    with pytest.raises(TimedOut):
        producer.close(0.1)
    assert not has_ended.is_set()
    may_end.set()
    assert has_ended.wait(40)


def test_a_consumer_whose_start_was_interrupted_starts(script):
    starts = """
for _ in range(60):
    came = threading.Event()
    consumer = Consumer(TOPIC, "c", lambda message: came.set(), nsqd_tcp_addresses=ADDRESS)
    interrupts(consumer.start, 1, 2e-4)
    producer.publish(TOPIC, b"x")
    consumer.start()
    assert came.wait(40)
    consumer.stop(1)
"""
    script(_PRELUDE + starts)


@pytest.mark.parametrize(
    "wait",
    [
        "consumer.wait()",
        "consumer.stop()",
        "next(iter(Consumer(TOPIC, 'other', nsqd_tcp_addresses=ADDRESS)))",
    ],
)
def test_a_signal_that_comes_just_before_a_wait_ends_it(script, wait):
    """Then the wait itself is not interrupted. The kernel gives the signal to another thread here, with the same effect."""
    text = f"""
handling, may_end = threading.Event(), threading.Event()
def handle(message):
    handling.set()
    may_end.wait()

producer.publish(TOPIC, b"1")
consumer = Consumer(TOPIC, "c", handle, nsqd_tcp_addresses=ADDRESS)
consumer.start()
handling.wait()
threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # from here on also in new threads
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted")
may_end.set()
consumer.stop()
"""
    assert script(_PRELUDE + text) == "interrupted\n"
