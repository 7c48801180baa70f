"""An auth server in a thread of the test: it keeps what it is asked, and answers, fails, hangs or talks nonsense."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.support.nsqd_process import wait_until

HOST = "127.0.0.1"
BOTH = ("publish", "subscribe")
# Topic, channels, permissions.
Grant = tuple[str, tuple[str, ...], tuple[str, ...]]
EVERYTHING: Grant = (".*", (".*",), BOTH)


class Asked(NamedTuple):
    """One request. `values` are those of the query, or of the JSON of a POST: lists by name."""

    method: str
    path: str
    values: dict[str, list[str]]
    headers: dict[str, str]


def answer_of(
    *grants: Grant, ttl: int = 3600, identity: str = "me", url: str = "http://me.example/"
) -> dict[str, Any]:
    return {
        "ttl": ttl,
        "identity": identity,
        "identity_url": url,
        "authorizations": [
            {"topic": topic, "channels": list(channels), "permissions": list(permissions)}
            for topic, channels, permissions in grants
        ],
    }


class AuthServer:
    """`status` and `body` are what it answers to everybody; `body` is bytes, or JSON of anything else."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.status = 200
        self.body: Any = answer_of(EVERYTHING)
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.address = f"{HOST}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def grant(self, *grants: Grant, **fields: Any) -> None:
        self.status = 200
        self.body = answer_of(*grants, **fields)

    def refuse(self, status: int = 403, body: Any = b"") -> None:
        self.status = status
        self.body = body

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It takes requests and answers none of them until the end."""
        self.may_answer.clear()
        try:
            yield
        finally:
            self.may_answer.set()

    def wait_until_asked(self, times: int) -> None:
        wait_until(lambda: len(self.asked) >= times, what=f"{times} questions")

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(parse_qs(urlsplit(self.path).query, keep_blank_values=True))

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, values: dict[str, list[str]]) -> None:
                path = urlsplit(self.path).path
                server.asked.append(Asked(self.command, path, values, dict(self.headers)))
                server.may_answer.wait()
                body = server.body if isinstance(server.body, bytes) else json.dumps(server.body).encode()
                with suppress(OSError):  # whoever asked may be gone
                    self.send_response(server.status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        return Handler
