"""Request and reply: a caller publishes a request, and waits for the reply on a topic that only it reads.

Start:  python examples/request_reply.py serve
Try:    python examples/request_reply.py call 3 4

The topic of replies is ephemeral: nsqd deletes it when the caller has gone. A later reply would create it again, so a
server answers no request whose time is over. Several servers share the requests.
"""

import json
import os
import sys
import time
import uuid
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from nsqd_py.client import Consumer, Message, Producer

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
REQUESTS = "sums"


class Caller:
    """Sends requests and matches the replies to them. Threads may share it."""

    def __init__(self) -> None:
        self._reply_to = f"replies-{uuid.uuid4().hex}#ephemeral"
        self._waiting: dict[str, Future[Any]] = {}
        self._producer = Producer(NSQD)
        self._consumer = Consumer(self._reply_to, "caller#ephemeral", self._on_reply, nsqd_tcp_addresses=NSQD)
        self._consumer.start()

    def call(self, arguments: Any, timeout_s: float = 10.0) -> Any:
        """Return the reply. Raises TimeoutError."""
        request_id = uuid.uuid4().hex
        future = self._waiting[request_id] = Future()
        request = {
            "id": request_id,
            "reply_to": self._reply_to,
            "until_s": time.time() + timeout_s,
            "arguments": arguments,
        }
        try:
            self._producer.publish(REQUESTS, json.dumps(request).encode())
            return future.result(timeout_s)
        finally:
            del self._waiting[request_id]

    def close(self) -> None:
        self._consumer.stop()
        self._producer.close()

    def _on_reply(self, message: Message) -> None:
        reply = json.loads(message.body)
        future = self._waiting.get(reply["id"])
        if future is not None and not future.done():  # a late or a second reply has no caller
            future.set_result(reply["result"])


def serve() -> None:
    producer = Producer(NSQD)

    def handle(message: Message) -> None:
        request = json.loads(message.body)
        if time.time() > request["until_s"]:
            return
        reply = {"id": request["id"], "result": sum(request["arguments"])}
        producer.publish(request["reply_to"], json.dumps(reply).encode())

    with (
        suppress(KeyboardInterrupt),
        Consumer(
            REQUESTS, "servers", handle, nsqd_tcp_addresses=NSQD, max_in_flight=10, concurrency=4
        ) as consumer,
    ):
        consumer.wait()


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        caller = Caller()
        print(caller.call([int(word) for word in sys.argv[2:]]))
        caller.close()


if __name__ == "__main__":
    main()
