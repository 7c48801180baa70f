"""Runs a client library of others against an nsqd, as a program of its own.

    python -m tests.support.real_clients pynsq 4150 ['{"snappy": true}']

Each library publishes by PUB, MPUB and DPUB, and consumes what it published: some messages it requeues at
their first attempt, some it touches, all it finishes in the end. The outcome is printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from typing import Any

from tests.support.nsqd_process import REPOSITORY

TOPIC, CHANNEL = "clients", "channel"
SINGLE, BATCHES, BATCH, DEFERRED = 150, 3, 100, 10
DEFER_MS = 400
TIME_LIMIT_S = 60.0

SINGLES = [f"single-{number}" for number in range(SINGLE)]
IN_BATCHES = [[f"batch-{batch}-{number}" for number in range(BATCH)] for batch in range(BATCHES)]
LATER = [f"deferred-{number}" for number in range(DEFERRED)]
ALL = SINGLES + [body for batch in IN_BATCHES for body in batch] + LATER


def is_requeued(body: str) -> bool:
    return body.endswith("3")


def is_touched(body: str) -> bool:
    return body.endswith("7")


class Outcome:
    """What a consumer did, in the order in which it did it."""

    def __init__(self) -> None:
        self.requeued: list[str] = []
        self.touched: list[str] = []
        self.finished: list[str] = []
        self.attempts: dict[str, int] = {}

    def wants_requeue(self, body: str, attempts: int) -> bool:
        """Records the delivery; true for one that is to be requeued."""
        self.attempts[body] = attempts
        if is_touched(body):
            self.touched.append(body)
        if is_requeued(body) and attempts == 1:
            self.requeued.append(body)
            return True
        self.finished.append(body)
        return False

    @property
    def is_complete(self) -> bool:
        return len(self.finished) >= len(ALL)

    def print(self) -> None:
        print(json.dumps(vars(self)))


async def run_pynsq(port: int, **settings: Any) -> Outcome:
    import nsq  # type: ignore[import-untyped]

    outcome = Outcome()
    done = asyncio.Event()
    address = f"127.0.0.1:{port}"

    def handle(message: Any) -> None:
        message.enable_async()
        body = message.body.decode()
        if is_touched(body):
            message.touch()
        if outcome.wants_requeue(body, message.attempts):
            message.requeue(backoff=False, delay=0)
        else:
            message.finish()
        if outcome.is_complete:
            done.set()

    if settings.get("tls_v1"):
        settings["tls_options"] = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": settings.pop("authority")}
    writer = nsq.Writer([address], **settings)
    while not writer.conns:
        await asyncio.sleep(0.02)

    async def sent(publish: Any, *arguments: Any) -> None:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answer(_: Any, data: Any) -> None:
            answered.set_result(data)

        publish(*arguments, callback=answer)
        assert await answered == b"OK"

    for body in SINGLES:
        await sent(writer.pub, TOPIC, body.encode())
    for batch in IN_BATCHES:
        await sent(writer.mpub, TOPIC, [body.encode() for body in batch])
    reader = nsq.Reader(
        TOPIC, CHANNEL, message_handler=handle, nsqd_tcp_addresses=[address], max_in_flight=50, **settings
    )
    for body in LATER:
        await sent(writer.dpub, TOPIC, DEFER_MS, body.encode())
    await done.wait()
    reader.close()
    return outcome


async def run_ansq(port: int, **settings: Any) -> Outcome:
    import ansq

    outcome = Outcome()
    addresses = [f"127.0.0.1:{port}"]
    writer: Any = await ansq.create_writer(nsqd_tcp_addresses=addresses)
    for body in SINGLES:
        assert (await writer.pub(topic=TOPIC, message=body)).is_ok
    for batch in IN_BATCHES:
        assert (await writer.mpub(TOPIC, *batch)).is_ok
    for body in LATER:
        assert (await writer.dpub(topic=TOPIC, message=body, delay_time=DEFER_MS)).is_ok
    reader = await ansq.create_reader(topic=TOPIC, channel=CHANNEL, nsqd_tcp_addresses=addresses)
    async for message in reader.messages():
        body = message.body.decode()
        if is_touched(body):
            await message.touch()
        if outcome.wants_requeue(body, message.attempts):
            await message.req(0)
        else:
            await message.fin()
        if outcome.is_complete:
            break
    await reader.close()
    await writer.close()
    return outcome


def run_gnsq(port: int, **settings: Any) -> Outcome:
    from gevent import monkey

    monkey.patch_all()
    import gevent
    import gnsq  # type: ignore[import-untyped]

    outcome = Outcome()
    address = f"127.0.0.1:{port}"
    if "auth_secret" in settings:
        settings["auth_secret"] = settings["auth_secret"].encode()
    # It cannot compress: it trips over the OK after the upgrade.
    producer = gnsq.Producer([address], auth_secret=settings.get("auth_secret"))
    producer.start()
    for body in SINGLES:
        assert producer.publish(TOPIC, body.encode()) == b"OK"
    for batch in IN_BATCHES:
        assert producer.multipublish(TOPIC, [body.encode() for body in batch]) == b"OK"
    for body in LATER:
        assert producer.publish(TOPIC, body.encode(), defer=DEFER_MS) == b"OK"

    def handle(consumer: Any, message: Any) -> None:
        message.enable_async()
        body = message.body.decode()
        if is_touched(body):
            message.touch()
        if outcome.wants_requeue(body, message.attempts):
            message.requeue(0, backoff=False)
        else:
            message.finish()
        if outcome.is_complete:
            consumer.close()

    consumer = gnsq.Consumer(TOPIC, CHANNEL, [address], max_in_flight=50, message_handler=handle, **settings)
    with gevent.Timeout(TIME_LIMIT_S):
        consumer.start()
    producer.close()
    return outcome


def run_in_process(library: str, port: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Run the program, and return its outcome."""
    command = [sys.executable, "-m", "tests.support.real_clients", library, str(port), json.dumps(settings)]
    program = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=90)
    assert program.returncode == 0, program.stderr.decode()
    return json.loads(program.stdout)


def main() -> None:
    library, port = sys.argv[1], int(sys.argv[2])
    settings = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    if library == "gnsq":
        run_gnsq(port, **settings).print()
        return
    run = {"pynsq": run_pynsq, "ansq": run_ansq}[library]
    asyncio.run(asyncio.wait_for(run(port, **settings), TIME_LIMIT_S)).print()


if __name__ == "__main__":
    main()
