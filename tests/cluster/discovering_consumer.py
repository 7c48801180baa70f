"""A consumer that finds its nsqds through nsqlookupd, with a client library of others, as a program of its own.

    python -m tests.cluster.discovering_consumer pynsq TOPIC CHANNEL 127.0.0.1:4161 ...

It prints the body of each message that it has finished, and runs until it is ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

POLL_S = 1


def note(body: bytes) -> None:
    print(body.decode(), flush=True)


def run_pynsq(topic: str, channel: str, lookupds: Sequence[str]) -> None:
    import nsq  # type: ignore[import-untyped]

    def handle(message: Any) -> bool:
        note(message.body)
        return True

    async def consume() -> None:
        nsq.Reader(
            topic,
            channel,
            message_handler=handle,
            lookupd_http_addresses=list(lookupds),
            lookupd_poll_interval=POLL_S,
            max_in_flight=20,
        )
        await asyncio.Event().wait()

    asyncio.run(consume())


def run_ansq(topic: str, channel: str, lookupds: Sequence[str]) -> None:
    import ansq

    async def consume() -> None:
        reader = await ansq.create_reader(
            topic=topic, channel=channel, lookupd_http_addresses=lookupds, lookupd_poll_interval=POLL_S * 1000
        )
        async for message in reader.messages():
            await message.fin()
            note(message.body)

    asyncio.run(consume())


def run_gnsq(topic: str, channel: str, lookupds: Sequence[str]) -> None:
    from gevent import monkey

    monkey.patch_all()
    import gnsq  # type: ignore[import-untyped]

    def handle(_: Any, message: Any) -> None:
        note(message.body)

    consumer = gnsq.Consumer(
        topic,
        channel,
        lookupd_http_addresses=lookupds,
        lookupd_poll_interval=POLL_S,
        max_in_flight=20,
        message_handler=handle,
    )
    consumer.start()


RUN = {"pynsq": run_pynsq, "ansq": run_ansq, "gnsq": run_gnsq}


def main() -> None:
    library, topic, channel, *lookupds = sys.argv[1:]
    RUN[library](topic, channel, lookupds)


if __name__ == "__main__":
    main()
