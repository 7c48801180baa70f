"""A web server in threads of the test: it keeps what it is sent, and answers as it is notified."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.support.nsqd_process import wait_until

HOST = "127.0.0.1"


class Asked(NamedTuple):
    """One request; `target` is path and query, names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class Reply(NamedTuple):
    """An answer. `hang`: only when the server is asked to go on; `cut`: none, the connection is closed."""

    status: int = 200
    headers: Mapping[str, str] = {}
    hang: bool = False
    cut: bool = False
    close: bool = False
    body: bytes = b""


OK = Reply()
HANG = Reply(hang=True)
CUT = Reply(cut=True)


class WebServer:
    """`reply` is asked for each answer. With `with`, it is closed at the end."""

    def __init__(
        self, reply: Callable[[Asked], Reply] = lambda _: OK, tls: ssl.SSLContext | None = None, port: int = 0
    ) -> None:
        self.reply = reply
        self.asked: list[Asked] = []
        self.connection_count = 0
        self.may_go_on = threading.Event()
        self._server = ThreadingHTTPServer((HOST, port), self._handler())
        self._server.daemon_threads = True
        self._server.request_queue_size = 128
        self._server.socket.listen(128)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://{HOST}:{self.port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.go_on()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def bodies(self) -> list[bytes]:
        return [asked.body for asked in list(self.asked)]

    def go_on(self) -> None:
        """Answer whoever hangs, and do not let hang any more."""
        self.may_go_on.set()

    def wait_until_asked(self, times: int) -> None:
        wait_until(lambda: len(self.asked) >= times, what=f"{times} requests, there are {len(self.asked)}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def setup(self) -> None:
                super().setup()
                server.connection_count += 1

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", "0")))
                asked = Asked(self.command, self.path, headers, body)
                server.asked.append(asked)
                reply = server.reply(asked)
                if reply.hang:
                    server.may_go_on.wait()
                self.close_connection = self.close_connection or reply.cut or reply.close
                if not reply.cut:
                    with suppress(OSError):  # whoever asked may be gone
                        self._send(reply)

            def _send(self, reply: Reply) -> None:
                self.send_response(reply.status)
                self.send_header("Content-Length", str(len(reply.body)))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        return Handler
