"""Programs whose mistakes a type checker sees. A comment `wrong` is on each line that it must name."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from nsqd_py.client import ClientOptions, Consumer, Message, MessageBatch, Producer, aio, connect
from nsqd_py.client import gevent as on_gevent


async def handle_later(message: Message) -> None:
    pass


async def handle_batch_later(batch: MessageBatch) -> None:
    pass


def submit(message: Message) -> Future[int]:
    return ThreadPoolExecutor().submit(len, message.body)


def handle(message: Message) -> None:
    pass


def handle_text(text: str) -> None:
    pass


def publish() -> None:
    Producer("h:4150", windw=10)  # wrong
    Producer("h:4150", publish_timeout="5")  # wrong
    Producer("h:4150", window="10")  # wrong
    connect("h:4150", max_in_fligt=3)  # wrong
    on_gevent.Producer("h:4150", snapy=True)  # wrong
    on_gevent.connect("h:4150", snapy=True)  # wrong
    ClientOptions.of(max_in_fligt=3)  # wrong
    ClientOptions().with_settings(tls_v2=True)  # wrong
    Producer("h:4150").publish("t", "a text")  # wrong
    Producer("h:4150").publish("t", b"x", delay_s=3)  # wrong


def consume() -> None:
    Consumer("t", "c", handle, max_in_fligt=3)  # wrong
    Consumer("t", "c", handle, max_in_flight="three")  # wrong
    Consumer("t", "c", handle, tls_v1=3.5)  # wrong
    Consumer("t", "c", handle_later)  # wrong
    Consumer("t", "c", submit)  # wrong
    Consumer("t", "c", handle_text)  # wrong
    Consumer("t", "c", batch_handler=handle_batch_later)  # wrong
    Consumer("t", "c", handle, on_give_up=handle_later)  # wrong
    on_gevent.Consumer("t", "c", handle_later)  # wrong
    on_gevent.Consumer("t", "c", handle, mesage_timeout=3)  # wrong


async def main() -> None:
    producer = aio.Producer("h:4150")
    producer.publish("t", b"x")  # wrong
    producer.multi_publish("t", [b"x"])  # wrong
    producer.publish_soon("t", b"x")  # wrong
    producer.multi_publish_soon("t", [b"x"])  # wrong
    producer.flush()  # wrong
    aio.Producer("h:4150", windw=10)  # wrong
    aio.connect("h:4150")  # wrong
    await aio.connect("h:4150", windw=10)  # wrong
    aio.Consumer("t", "c", handle_later, max_in_fligt=3)  # wrong
    aio.Consumer("t", "c", handle_text)  # wrong
    aio.Consumer("t", "c", handle).stop()  # wrong
