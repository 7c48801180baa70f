"""A producer: `python -m bench.clients.produce LIBRARY HOST:PORT TOPIC MESSAGES`.

It says `ready` when it is connected, waits for a line, publishes, and ends when all is acknowledged.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from bench.wire import BODY

_MPUB = 200
_GNSQ_GREENLETS = 100


def ours(address: str, topic: str, messages: int) -> None:
    """One call a message, without waiting for each answer."""
    from nsqd_py.client import Producer

    _publish_one_by_one(Producer(address), topic, messages)


def ours_gevent(address: str, topic: str, messages: int) -> None:
    """The same on gevent."""
    from nsqd_py.client.gevent import Producer

    _publish_one_by_one(Producer(address), topic, messages)


def ours_aio(address: str, topic: str, messages: int) -> None:
    """The same for asyncio."""
    from nsqd_py.client.aio import Producer

    async def publish() -> None:
        async with Producer(address) as producer:
            await producer.ping()
            _get_set()
            for _ in range(messages):
                await producer.publish_soon(topic, BODY)

    asyncio.run(publish())


def ansq(address: str, topic: str, messages: int) -> None:
    """Many tasks, since each waits for its answer."""
    import ansq as library

    async def publish() -> None:
        writer = await library.create_writer(nsqd_tcp_addresses=[address])
        _get_set()

        async def some(count: int) -> None:
            for _ in range(count):
                await writer.pub(topic, BODY)

        await asyncio.gather(*(some(messages // _GNSQ_GREENLETS) for _ in range(_GNSQ_GREENLETS)))
        await writer.close()

    asyncio.run(publish())


def _publish_one_by_one(producer: Any, topic: str, messages: int) -> None:
    with producer:
        producer.ping()
        _get_set()
        for _ in range(messages):
            producer.publish_soon(topic, BODY)
        producer.flush()


def ours_multi(address: str, topic: str, messages: int) -> None:
    """Lists of 200, without waiting for each answer."""
    from nsqd_py.client import Producer

    bodies = [BODY] * _MPUB
    with Producer(address) as producer:
        producer.ping()
        _get_set()
        for _ in range(messages // _MPUB):
            producer.multi_publish_soon(topic, bodies)
        producer.flush()


def gnsq(address: str, topic: str, messages: int) -> None:
    """Many greenlets, since each waits for its answer."""
    import gevent
    import gnsq as library

    producer = library.Producer(nsqd_tcp_addresses=[address])
    producer.start()
    _get_set()

    def publish(count: int) -> None:
        for _ in range(count):
            producer.publish(topic, BODY)

    gevent.joinall([gevent.spawn(publish, messages // _GNSQ_GREENLETS) for _ in range(_GNSQ_GREENLETS)])


def _get_set() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


LIBRARIES: dict[str, Callable[[str, str, int], None]] = {
    "ours": ours,
    "ours-gevent": ours_gevent,
    "ours-aio": ours_aio,
    "ansq": ansq,
    "ours-multi": ours_multi,
    "gnsq": gnsq,
}

if __name__ == "__main__":
    LIBRARIES[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
