"""A consumer that does nothing with its messages: `python -m bench.clients.consume LIBRARY HOST:PORT TOPIC CHANNEL`."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

_IN_FLIGHT = 2500


def ours(address: str, topic: str, channel: str) -> None:
    """A handler that is called for each message."""
    from nsqd_py.client import Consumer

    _consume_ours(Consumer(topic, channel, lambda message: None, **_ours_settings(address)))


def ours_batches(address: str, topic: str, channel: str) -> None:
    """A handler that is called for what came in one read."""
    from nsqd_py.client import Consumer

    _consume_ours(Consumer(topic, channel, batch_handler=lambda batch: batch.finish(), **_ours_settings(address)))


def ours_iterating(address: str, topic: str, channel: str) -> None:
    """A loop over messages."""
    from nsqd_py.client import Consumer

    for _ in Consumer(topic, channel, **_ours_settings(address)):
        pass


def ours_gevent(address: str, topic: str, channel: str) -> None:
    """A handler that is called for each message, on gevent."""
    from nsqd_py.client.gevent import Consumer

    _consume_ours(Consumer(topic, channel, lambda message: None, **_ours_settings(address)))


def ours_aio(address: str, topic: str, channel: str) -> None:
    """A coroutine that is called for each message."""
    from nsqd_py.client.aio import Consumer

    async def handle(message: Any) -> None:
        pass

    asyncio.run(Consumer(topic, channel, handle, **_ours_settings(address)).run())


def ansq(address: str, topic: str, channel: str) -> None:
    """Its reader has one message in flight and no setting for that; a connection takes a number."""
    import ansq as library

    async def consume() -> None:
        host, _, port = address.rpartition(":")
        connection = await library.open_connection(host, int(port))
        await connection.subscribe(topic, channel, _IN_FLIGHT)
        async for message in connection.messages():
            await message.fin()

    asyncio.run(consume())


def _ours_settings(address: str) -> dict[str, Any]:
    return {"nsqd_tcp_addresses": [address], "max_in_flight": _IN_FLIGHT}


def _consume_ours(consumer: Any) -> None:
    consumer.start()
    consumer.wait()


def gnsq(address: str, topic: str, channel: str) -> None:
    import gnsq as library

    consumer = library.Consumer(topic, channel, nsqd_tcp_addresses=[address], max_in_flight=_IN_FLIGHT)
    consumer.on_message.connect(lambda consumer, message: None, weak=False)
    consumer.start()


def pynsq(address: str, topic: str, channel: str) -> None:
    import nsq as library

    library.Reader(
        topic, channel, message_handler=lambda message: True, nsqd_tcp_addresses=[address], max_in_flight=_IN_FLIGHT
    )
    library.run()


LIBRARIES: dict[str, Callable[[str, str, str], None]] = {
    "ours": ours,
    "ours-batches": ours_batches,
    "ours-iterating": ours_iterating,
    "ours-gevent": ours_gevent,
    "ours-aio": ours_aio,
    "ansq": ansq,
    "gnsq": gnsq,
    "pynsq": pynsq,
}

if __name__ == "__main__":
    LIBRARIES[sys.argv[1]](*sys.argv[2:])
