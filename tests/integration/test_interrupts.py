"""Ctrl-C at any moment, in each kind of client."""

from __future__ import annotations

import pytest

from tests.support.sweeps import sample

pytestmark = pytest.mark.ours


# An alarm sends the SIGINT, so that one process is interrupted many times.
LOOPS = """
import asyncio, logging, random, signal, sys, time, warnings
from nsqd_py.client import Producer
logging.disable()
warnings.simplefilter("ignore")  # an interrupt may leave a coroutine that was not awaited
# A loop of asyncio that is interrupted while it is made reports what it does not have yet.
in_a_new_loop = lambda one: getattr(one.object, "__qualname__", "") == "BaseEventLoop.__del__"
sys.unraisablehook = lambda one: in_a_new_loop(one) or sys.__unraisablehook__(one)
chance = random.Random()
if SHELL == "gevent":
    import gevent
    from nsqd_py.client.gevent import Consumer
elif SHELL == "aio":
    from nsqd_py.client.aio import Consumer
else:
    from nsqd_py.client import Consumer

def pause():
    return 0.0005 * (chance.random() < 0.3)

def loop():
    if SHELL == "aio":
        asyncio.run(loop_of_tasks())
    elif SHELL == "gevent":
        gevent.get_hub().print_exception = lambda *_: None
        for message in Consumer(TOPIC, "c", nsqd_tcp_addresses=ADDRESS, max_in_flight=chance.choice((1, 50))):
            gevent.sleep(pause())
    else:
        for message in Consumer(TOPIC, "c", nsqd_tcp_addresses=ADDRESS, max_in_flight=chance.choice((1, 50))):
            time.sleep(pause())

async def loop_of_tasks():
    async for message in Consumer(TOPIC, "c", nsqd_tcp_addresses=ADDRESS, max_in_flight=chance.choice((1, 50))):
        await asyncio.sleep(pause())

def after_the_interrupt(error):
    # Without the errors that were being handled when it came, as asyncio and gevent do: those were no cause.
    names = []
    while error is not None:
        names.append(type(error).__name__)
        error = error.__context__
    while names[-1] != "KeyboardInterrupt" in names:
        names.pop()
    return names

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
ended, seen = [], set()
with Producer(ADDRESS) as producer:
    for _ in range(TIMES):
        producer.multi_publish(TOPIC, [b"x"] * 50)
        began_s = time.monotonic()
        try:
            # On gevent again: an interrupt in a callback of a weak reference is lost.
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0005, 0.03), 2 * (SHELL == "gevent"))
            loop()
        except BaseException as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            seen |= set(after_the_interrupt(error))
        ended.append(time.monotonic() - began_s)
print(sorted(seen - {"GeneratorExit", "CancelledError"}), len(ended), max(ended) < LONGEST_S)
"""


@pytest.mark.parametrize("times", sample(30, 100))
def test_control_c_in_a_loop_raises_nothing_else(script, shell, times):
    # On gevent, it may come while a greenlet has a message that is not queued yet: `stop` waits for its answer.
    printed = script(LOOPS, SHELL=shell, TIMES=times, LONGEST_S=100 if shell == "gevent" else 20)
    assert printed == f"['KeyboardInterrupt'] {times} True\n"


STOPPING = """
import logging, signal, threading, time
logging.disable()
signal.signal(signal.SIGINT, signal.default_int_handler)
left = [1, 2]
def interrupt(*_):
    if left:
        left.pop()
        signal.raise_signal(signal.SIGINT)
signal.signal(signal.SIGALRM, interrupt)
has_begun = threading.Event()
began_s = time.monotonic()
"""

HANDLER = """
def handle(message):
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.3)
    hang()
consumer = Consumer(TOPIC, "c", handle, nsqd_tcp_addresses=ADDRESS)
with Producer(ADDRESS) as producer:
    producer.publish(TOPIC, b"x")
try:
    consumer.run()
except KeyboardInterrupt:
    pass
"""

HANGS = {
    "threads": f"from nsqd_py.client import Consumer, Producer\nhang = threading.Event().wait\n{HANDLER}",
    "gevent": f"""
from gevent import get_hub
from gevent.event import Event
from nsqd_py.client.gevent import Consumer, Producer
hang = Event().wait
get_hub().print_exception = lambda *_: None
{HANDLER}""",
    "aio": """
import asyncio
from nsqd_py.client.aio import Consumer, Producer
async def handle(message):
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.3)
    await asyncio.Event().wait()
async def main():
    async with Producer(ADDRESS) as producer:
        await producer.publish(TOPIC, b"x")
    await Consumer(TOPIC, "c", handle, nsqd_tcp_addresses=ADDRESS).run()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
""",
}


def test_a_second_control_c_shortens_a_stop(shared_nsqd, script, topic, shell):
    """`run` would wait 30 s for a handler that hangs."""
    end = "signal.setitimer(signal.ITIMER_REAL, 0)\nprint(time.monotonic() - began_s < 25)\n"
    assert script("\n".join([STOPPING, HANGS[shell], end])) == "True\n"
    shared_nsqd.wait_for_channel(topic, "c", client_count=0)
