"""Ctrl-C at any moment, in each kind of client."""

from __future__ import annotations

import pytest

from tests.support.nsqd_process import NsqdProcess
from tests.support.tool_process import run_script

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


@pytest.mark.parametrize("shell", ["aio", "gevent", "threads"])
def test_control_c_in_a_loop_raises_nothing_else(shared_nsqd: NsqdProcess, topic: str, shell: str) -> None:
    names = {"ADDRESS": f"127.0.0.1:{shared_nsqd.tcp_port}", "TOPIC": topic, "SHELL": shell}
    # On gevent, it may come while a greenlet has a message that is not queued yet: `stop` waits for its answer.
    numbers: dict[str, object] = {"TIMES": 100, "LONGEST_S": 100 if shell == "gevent" else 20}
    ended = run_script(LOOPS, **names, **numbers)
    assert (ended.stdout, ended.stderr) == ("['KeyboardInterrupt'] 100 True\n", "")


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
    sleep(3600)
consumer = Consumer(TOPIC, "c", handle, nsqd_tcp_addresses=ADDRESS)
with Producer(ADDRESS) as producer:
    producer.publish(TOPIC, b"x")
try:
    consumer.run()
except KeyboardInterrupt:
    pass
"""

HANGS = {
    "threads": f"from nsqd_py.client import Consumer, Producer\nfrom time import sleep\n{HANDLER}",
    "gevent": f"""
from gevent import get_hub, sleep
from nsqd_py.client.gevent import Consumer, Producer
get_hub().print_exception = lambda *_: None
{HANDLER}""",
    "aio": """
import asyncio
from nsqd_py.client.aio import Consumer, Producer
async def handle(message):
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.3)
    await asyncio.sleep(3600)
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


@pytest.mark.parametrize("shell", sorted(HANGS))
def test_a_second_control_c_shortens_a_stop(shared_nsqd: NsqdProcess, topic: str, shell: str) -> None:
    """`run` would wait 30 s for a handler that hangs."""
    end = "signal.setitimer(signal.ITIMER_REAL, 0)\nprint(time.monotonic() - began_s < 25)\n"
    text = "\n".join([STOPPING, HANGS[shell], end])
    ended = run_script(text, ADDRESS=f"127.0.0.1:{shared_nsqd.tcp_port}", TOPIC=topic)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("True\n", "", 0)
    shared_nsqd.wait_for_channel(topic, "c", client_count=0)
