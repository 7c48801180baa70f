"""moto's S3 as a program that keeps the promises of S3: `python -m tests.support.moto_server HOST PORT`.

moto 5.2.5 has `If-None-Match: *` and `If-Match`, with the right answers (200, 412, and 404 where `If-Match` meets no
object). But it compares and writes in two steps, and its server has a thread for each connection: of 8 writers with one etag,
two won in 10 of 40 races. So this program lets one request in at a time. It also refuses an upload that ended early, which
moto stores.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

Environment = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class OneAtATime:
    """A WSGI application that gives another one whole requests, one after the other."""

    def __init__(self, application: Callable[[Environment, StartResponse], Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        is_chunked = environment.get("wsgi.input_terminated", False)  # as pyarrow sends objects
        size_bytes = -1 if is_chunked else int(environment.get("CONTENT_LENGTH") or 0)
        body = _read(environment["wsgi.input"], size_bytes)
        if body is None or len(body) < size_bytes:
            start_response("400 Bad Request", [("Content-Length", "0")])
            return []
        environment["wsgi.input"] = io.BytesIO(body)
        with self._lock:
            return list(self._application(environment, start_response))


def _read(stream: Any, size_bytes: int) -> bytes | None:
    try:
        return stream.read(size_bytes)
    except Exception:  # noqa: BLE001 - of werkzeug or of the socket: the client is gone
        return None


def main(host: str, port: str) -> None:
    application = DomainDispatcherApplication(create_backend_app)
    run_simple(host, int(port), OneAtATime(application), threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(*sys.argv[1:])
