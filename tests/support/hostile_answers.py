"""A server that answers each GET with far more than anybody asked for, in one of several forms."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

MB = 1024 * 1024
_TOPIC = (
    '{"topic_name":"t%09d","channels":[],"depth":0,"backend_depth":0,"message_count":0,'
    '"paused":false,"e2e_processing_latency":{"count":0,"percentiles":null}}'
)
_CHANNEL = (
    '{"channel_name":"c%09d","depth":0,"backend_depth":0,"in_flight_count":0,"deferred_count":0,"message_count":0,'
    '"requeue_count":0,"timeout_count":0,"client_count":0,"clients":null,"paused":false}'
)


def _many(head: str, item: str, tail: str, size_bytes: int) -> bytes:
    count = size_bytes // (len(item) + 8)
    items = ",".join(item % number if "%" in item else item for number in range(count))
    return (head + items + tail).encode()


_HEAD = '{"version":"1.3.0","health":"OK","start_time":1,"topics":['
_ONE = _HEAD + '{"topic_name":"t","depth":0,"backend_depth":0,"message_count":0,"paused":false,"channels":['
# What is in each form, by its name.
FORMS: dict[str, Callable[[int], bytes]] = {
    "topics": lambda size: _many(_HEAD, _TOPIC, "]}", size),
    "channels of one topic": lambda size: _many(_ONE, _CHANNEL, "]}]}", size),
    "lists": lambda size: _many('{"topics":[', "[]", "]}", size * 3),
    "objects": lambda size: _many('{"topics":[', '{"":0}', "]}", size * 2),
    "beginnings of topics": lambda size: b'{"topics":[' + b'{"topic_name":' * (size // 14),
    "one text": lambda size: b'{"topics":"' + b"x" * size + b'"}',
    "producers": lambda size: _many(
        '{"producers":[', '{"broadcast_address":"h%d","http_port":1}', "]}", size
    ),
}


@contextlib.contextmanager
def answering(body: bytes, *, status: str = "200 OK", pause_s: float = 0.0) -> Iterator[str]:
    """Yield the address of a server in threads; it answers all that it is asked with `body`, after each byte with a pause."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(sock: socket.socket) -> None:
            with sock, contextlib.suppress(OSError):
                sock.recv(65536)
                sock.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
                sock.sendall(b"" if pause_s else body)
                for byte in body if pause_s else b"":
                    sock.sendall(bytes((byte,)))
                    time.sleep(pause_s)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
