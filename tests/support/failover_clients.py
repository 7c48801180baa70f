"""A publisher and a consumer of a client library of others, through a failover, as a program of its own.

    python -m tests.support.failover_clients pynsq LOOKUPD_HTTP_PORT NSQD_TCP_PORT NSQD_TCP_PORT

The publisher has the addresses of both nsqds, and the consumer the one of nsqlookupd. Each line of the output is
`OK <body>` for an acknowledged message or `GOT <body>` for a finished one. The program ends when its input does.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable
from typing import Any

TOPIC, CHANNEL = "failover", "channel"
PAUSE_S = 0.02
# The libraries' own intervals are made for production; the shortest that they take keep the test short.
POLL_S = 1


def say(word: str, body: str) -> None:
    print(word, body, flush=True)


async def publish_until_the_end(publish: Callable[[bytes], Awaitable[object]]) -> None:
    """`publish` raises if the message was not acknowledged."""
    end = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for number in itertools.count():
        if end.done():
            return
        body = f"m{number}"
        try:
            await asyncio.wait_for(publish(body.encode()), 40)
        except Exception as error:  # noqa: BLE001 - each library has its own
            print(f"{body}: {error!r}", file=sys.stderr)
        else:
            say("OK", body)
        await asyncio.sleep(PAUSE_S)


async def run_pynsq(lookupd: str, nsqds: list[str]) -> None:
    import nsq  # type: ignore[import-untyped]

    def handle(message: Any) -> bool:
        say("GOT", message.body.decode())
        return True

    async def publish(body: bytes) -> None:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answer(_: Any, data: Any) -> None:
            if not answered.done():
                answered.set_result(data)

        writer.pub(TOPIC, body, callback=answer)
        answer_of_nsqd = await answered
        assert answer_of_nsqd == b"OK", answer_of_nsqd

    writer = nsq.Writer(nsqds, reconnect_interval=0.5)
    nsq.Reader(TOPIC, CHANNEL, handle, lookupd_http_addresses=[f"http://{lookupd}"], lookupd_poll_interval=POLL_S)
    await publish_until_the_end(publish)


async def run_ansq(lookupd: str, nsqds: list[str]) -> None:
    import ansq

    # The topic exists, so nsqlookupd knows where it is.
    reader = await ansq.create_reader(
        TOPIC, CHANNEL, lookupd_http_addresses=[lookupd], lookupd_poll_interval=POLL_S * 1000, lookupd_poll_jitter=0
    )

    async def consume() -> None:
        async for message in reader.messages():
            say("GOT", message.body.decode())
            await message.fin()

    # Its writer chooses a connection at random and keeps those that failed: one writer for each nsqd.
    addresses = itertools.cycle(nsqds)
    writer: Any = None

    async def publish(body: bytes) -> None:
        nonlocal writer
        if writer is None:
            writer = await ansq.create_writer(nsqd_tcp_addresses=[next(addresses)])
        try:
            answer = await writer.pub(topic=TOPIC, message=body.decode())
            assert answer.is_ok, answer
        except BaseException:
            failed, writer = writer, None
            await failed.close()
            raise

    consuming = asyncio.create_task(consume())
    await publish_until_the_end(publish)
    consuming.cancel()


def run_gnsq(lookupd: str, nsqds: list[str]) -> None:
    from gevent import monkey

    monkey.patch_all()
    import gevent
    import gnsq  # type: ignore[import-untyped]

    def handle(_: Any, message: Any) -> None:
        say("GOT", message.body.decode())

    consumer = gnsq.Consumer(
        TOPIC, CHANNEL, lookupd_http_addresses=[lookupd], message_handler=handle, lookupd_poll_interval=POLL_S
    )
    consumer.start(block=False)
    producer = gnsq.Producer(nsqds, max_backoff_duration=1)
    producer.start()
    end = gevent.get_hub().threadpool.spawn(sys.stdin.read)
    for number in itertools.count():
        if end.ready():
            return
        body = f"m{number}"
        try:
            producer.publish(TOPIC, body.encode(), timeout=5)
        except Exception as error:  # noqa: BLE001 - it raises several kinds
            print(f"{body}: {error!r}", file=sys.stderr)
        else:
            say("OK", body)
        gevent.sleep(PAUSE_S)


def main() -> None:
    library, *ports = sys.argv[1:]
    lookupd, *nsqds = [f"127.0.0.1:{port}" for port in ports]
    if library == "gnsq":
        run_gnsq(lookupd, nsqds)
    else:
        asyncio.run({"pynsq": run_pynsq, "ansq": run_ansq}[library](lookupd, nsqds))


if __name__ == "__main__":
    main()
