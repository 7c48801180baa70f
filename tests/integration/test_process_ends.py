"""Clients where processes end, fork, or drop them: nothing published is lost or doubled, and nothing stays open."""

from __future__ import annotations

import socket

import pytest

pytestmark = pytest.mark.ours


# Each child publishes 500, while 500 of the parent are on their way.
CHILDREN = {
    "none": "",
    "process": """
from multiprocessing import get_context
children = [get_context(KIND).Process(target=publish, args=(producer,) if KIND == "fork" else ()) for _ in range(3)]
for child in children:
    child.start()
for child in children:
    child.join()
    assert child.exitcode == 0
""",
    "executor": """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
with ProcessPoolExecutor(3, get_context(KIND)) as pool:
    for future in [pool.submit(publish) for _ in range(3)]:
        future.result()
""",
    "fork": """
import os
for _ in range(3):
    if not os.fork():
        publish()
        sys.exit()
for _ in range(3):
    os.wait()
""",
}


@pytest.mark.parametrize(
    ("way", "shell"), [*((way, "client") for way in CHILDREN), ("none", "client.gevent")]
)
def test_what_was_published_soon_is_stored_once_before_the_process_ends(
    shared_nsqd, script, topic, way, shell
):
    text = f"""
import sys
from nsqd_py.{shell} import Producer
producer = Producer(ADDRESS)
producer.publish(TOPIC, b"first")
def publish(*_):
    for _ in range(500):
        producer.publish_soon(TOPIC, b"of a child")
for _ in range(500):
    producer.publish_soon(TOPIC, b"of the parent")
{CHILDREN[way]}
"""
    script(text, KIND="fork")
    assert shared_nsqd.topic_stats(topic)["depth"] == 1 + (1 if way == "none" else 4) * 500


def test_all_that_is_open_ends_with_the_process_together(script):
    """20 producers for an nsqd that never answers, which waited 5 s each, and 5 consumers whose handlers hang."""
    text = """
import atexit, logging, threading, time
from nsqd_py.client import Consumer, Producer
logging.disable()
begun = threading.Semaphore(0)
def hang(message):
    begun.release()
    threading.Event().wait()
Producer(ADDRESS).multi_publish(TOPIC, [b"x"] * 5)
consumers = [Consumer(TOPIC, "c", hang, nsqd_tcp_addresses=ADDRESS) for _ in range(5)]
for consumer in consumers:
    consumer.start()
for _ in consumers:
    assert begun.acquire(timeout=40)
producers = [Producer(DEAF) for _ in range(20)]
for producer in producers:
    producer.publish_soon(TOPIC, b"x")
began_s = time.monotonic()
atexit._run_exitfuncs()
print(time.monotonic() - began_s < 40, {producer.publish_soon.__self__._is_closed for producer in producers})
"""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        assert script(text, DEAF=f"127.0.0.1:{deaf.getsockname()[1]}") == "True {True}\n"


def test_dropped_clients_end(shared_nsqd, script, topic):
    printed = script("""
import gc, logging, os, threading, time, warnings
from nsqd_py.client import Consumer, Producer
logging.disable()
def publish(count):
    producer = Producer(ADDRESS)
    for _ in range(count):
        producer.publish_soon(TOPIC, b"x")
class Service:
    def __init__(self):
        self.consumer = Consumer(TOPIC, "c", self.handle, nsqd_tcp_addresses=ADDRESS, concurrency=3)
        self.consumer.start()
    def handle(self, message):
        message.requeue(0, backoff=False)
def open_count():
    return threading.active_count(), len(os.listdir("/proc/self/fd"))
before = open_count()
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    for _ in range(20):
        publish(100)
        Service()
        Producer(ADDRESS), Consumer(TOPIC, "c", nsqd_tcp_addresses=ADDRESS)  # these were never used
    deadline_s = time.monotonic() + 40
    while open_count() != before and time.monotonic() < deadline_s:
        gc.collect()
        os.sched_yield()
texts = [str(one.message) for one in warned]
print(open_count() == before, *(sum(word in text for text in texts) for word in ("a producer for", "a consumer of")))
""")
    assert printed == "True 20 20\n"
    shared_nsqd.wait_for_channel(topic, "c", client_count=0, message_count=2000)
