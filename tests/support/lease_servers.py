"""The parts of Consul and of Kubernetes that leases use, in memory and over HTTP. Time is an argument."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

HOST = "127.0.0.1"
# method, path, query, body -> status and JSON
Answer = Callable[[str, str, str, bytes], tuple[int, Any]]


@contextmanager
def serving(answer: Answer) -> Iterator[int]:
    """Yield the port of a web server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = answer(self.command, parts.path, parts.query, body)
            sent = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_PUT = do_POST = _handle

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Consul:
    """Sessions, one key that they lock, and the key of its note."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.entry: dict[str, Any] | None = None
        self.note: dict[str, Any] | None = None
        self._index = 0

    def end_all(self) -> None:
        """Let all sessions end, as those that nobody has renewed."""
        self.sessions.clear()
        self.entry = None

    def answer(self, method: str, path: str, query: str, body: bytes) -> tuple[int, Any]:
        self._index += 1
        if path == "/v1/session/create":
            self.sessions.add(f"session-{self._index}")
            return 200, {"ID": f"session-{self._index}"}
        if path.startswith("/v1/session/"):
            verb, session = path.split("/")[3:]
            if session not in self.sessions:
                return 404, f"Session id '{session}' not found"
            if verb == "destroy":
                self.sessions.discard(session)
                if self.entry and self.entry["Session"] == session:
                    self.entry = None
            return 200, verb == "destroy" or [{"ID": session}]
        if path == "/v1/txn":
            check, put = (operation["KV"] for operation in json.loads(body))
            if not self.entry or self.entry["Session"] != check["Session"]:
                return 409, {"Errors": []}
            self.note = {"Value": put["Value"]}
            return 200, {"Results": []}
        assert path.startswith("/v1/kv/nsqd-py/")
        if path.endswith("/note"):
            return (404, "") if self.note is None else (200, [self.note])
        if method == "GET":
            return (404, "") if self.entry is None else (200, [self.entry])
        session = query.removeprefix("acquire=")
        if session not in self.sessions or self.entry is not None:
            return 200, False
        self.entry = {"Session": session, "Value": b64encode(body).decode(), "CreateIndex": self._index}
        return 200, True


class Kubernetes:
    """One Lease object, whose changes need its newest version."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self._version = 0

    def answer(self, method: str, path: str, query: str, body: bytes) -> tuple[int, Any]:
        assert path.startswith("/apis/coordination.k8s.io/v1/namespaces/queues/leases"), path
        if method == "GET":
            return (404, {}) if self.lease is None else (200, self.lease)
        sent = json.loads(body)
        has = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if sent["metadata"].get("resourceVersion") != has:
            return 409, {"reason": "Conflict"}
        self._version += 1
        sent["metadata"]["resourceVersion"] = str(self._version)
        self.lease = sent
        return 201 if method == "POST" else 200, sent
