"""Programs whose types are right."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from datetime import timedelta

from nsqd_py.client import ClientOptions, Consumer, Message, MessageBatch, Producer, Requeue, aio, connect
from nsqd_py.client import gevent as on_gevent


def handle(message: Message) -> None:
    if message.attempts < 2:
        raise Requeue(timedelta(seconds=5))


def handle_and_count(message: Message) -> int:
    return len(message.body)


def handle_batch(batch: MessageBatch) -> None:
    batch.finish()


async def handle_later(message: Message) -> None:
    await asyncio.sleep(0)


OPTIONS = ClientOptions.of(msg_timeout="2m", max_in_flight=10).with_settings(tls_v1=True)
SHARED: dict[str, object] = {"topic": "t"}


def publish() -> None:
    with Producer("h:4150", publish_timeout_s=5, window=10, snappy=True, log=logging.getLogger()) as producer:
        producer.publish("t", b"x", defer_s=timedelta(seconds=1))
        future = producer.publish_soon("t", b"x")
        future.add_done_callback(lambda one: print(one.exception()))
        concurrent.futures.wait([future])
    connect("h:4150", retry_unknown=False).close()
    on_gevent.connect(lookupd_http_addresses="h:4161").multi_publish("t", [b"x"])


def consume() -> None:
    got: list[Message] = []
    with Consumer(
        "t", "c", handle, nsqd_tcp_addresses="h:4150", max_in_flight=3, options=OPTIONS
    ) as consumer:
        consumer.wait(1)
    Consumer(
        "t",
        "c",
        handle_and_count,
        lookupd_http_addresses=["h:4161"],
        msg_timeout=timedelta(minutes=2),
        concurrency=2,
    ).run()
    Consumer("t", "c", got.append, on_give_up=got.append, max_attempts="3").run()
    on_gevent.Consumer("t", "c", batch_handler=handle_batch, deflate=True, deflate_level=3).run()
    for message in Consumer("t", "c"):
        print(message.body.decode())
    single = Consumer("t", "c").next(timeout_s=1)
    if single is not None:
        single.requeue(30)


async def main() -> None:
    async with aio.Producer("h:4150", answer_timeout_s=1) as producer:
        await producer.publish("t", b"x")
        await asyncio.gather(producer.publish("t", b"x"), producer.multi_publish("t", [b"x"]))
        stored = await producer.publish_soon("t", b"x")
        await stored
        task = asyncio.create_task(producer.publish("t", b"x"))
        await task
    await (await aio.connect("h:4150")).close()
    async with aio.Consumer(
        "t", "c", handle_later, nsqd_tcp_addresses="h:4150", on_give_up=handle
    ) as consumer:
        await consumer.wait(1)
    async for message in aio.Consumer("t", "c"):
        print(message.body.decode())
    async for batch in aio.Consumer("t", "c").batches(5):
        print(batch.bodies[0].decode())
    single = await aio.Consumer("t", "c").next(5)
    if single is not None:
        print(single.body)
