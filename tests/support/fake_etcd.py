"""The part of etcd's JSON gateway that leases use, in memory, on a real socket; and odd answers in the place of it."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

GRANT, TXN, KEEPALIVE, RANGE = "lease/grant", "kv/txn", "lease/keepalive", "kv/range"
# Writes an answer to a connection, which is closed after it.
Answer = Callable[[Any], None]


class FakeEtcd:
    """Serves from `with` to its end. `odd` has, by path, what is answered in the place of etcd's own answer.

    A request with an odd answer is not carried out.
    """

    def __init__(self) -> None:
        self.odd: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.values: dict[str, dict[str, Any]] = {}
        self._leases: dict[str, tuple[int, float]] = {}
        self._revision = 1
        self._granted = 7586
        self._lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                path = self.path.removeprefix("/v3/")
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                fake.asked.append(path)
                with suppress(OSError):
                    fake.odd.get(path, ok(fake.answer(path, asked) if path not in fake.odd else None))(self.wfile)

            def log_message(self, format: str, *args: object) -> None:
                pass

        socketserver.ThreadingTCPServer.daemon_threads = True
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.odd.clear()
        self._server.shutdown()
        self._server.server_close()

    def end_lease(self) -> None:
        """Let all leases end, as those that their holders do not renew."""
        with self._lock:
            self._leases.clear()

    def note(self, name: str) -> dict[str, Any]:
        note: dict[str, Any] = json.loads(b64decode(self.values[f"nsqd-py/{name}/note"]["value"]))
        return note

    def answer(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._expire()
            header = {"cluster_id": "1", "revision": str(self._revision), "raft_term": "2"}
            answer: dict[str, Any] = getattr(self, "_" + path.replace("/", "_"))(asked, header)
            return answer if path == KEEPALIVE else {"header": header, **answer}

    def _expire(self) -> None:
        now_s = time.monotonic()
        self._leases = {name: lease for name, lease in self._leases.items() if lease[1] > now_s}
        for key, pair in list(self.values.items()):
            if pair.get("lease") and pair["lease"] not in self._leases:
                del self.values[key]

    def _lease_grant(self, asked: dict[str, Any], _: object) -> dict[str, Any]:
        self._granted += 1
        name, ttl_s = str(self._granted), asked["TTL"]
        self._leases[name] = ttl_s, time.monotonic() + ttl_s
        return {"ID": name, "TTL": str(ttl_s)}

    def _lease_keepalive(self, asked: dict[str, Any], header: dict[str, str]) -> dict[str, Any]:
        result = {"header": header, "ID": asked["ID"]}
        if asked["ID"] in self._leases:
            ttl_s, _ = self._leases[asked["ID"]]
            self._leases[asked["ID"]] = ttl_s, time.monotonic() + ttl_s
            result["TTL"] = str(ttl_s)
        return {"result": result}

    def _lease_revoke(self, asked: dict[str, Any], _: object) -> dict[str, Any]:
        self._leases.pop(asked["ID"], None)
        self._expire()
        return {}

    def _kv_range(self, asked: dict[str, Any], _: object) -> dict[str, Any]:
        pair = self.values.get(b64decode(asked["key"]).decode())
        return {"kvs": [pair], "count": "1"} if pair is not None else {}

    def _kv_txn(self, asked: dict[str, Any], header: dict[str, str]) -> dict[str, Any]:
        for compare in asked["compare"]:
            pair = self.values.get(b64decode(compare["key"]).decode(), {})
            field = "create_revision" if compare["target"] == "CREATE" else "mod_revision"
            if int(pair.get(field, 0)) != int(compare[field]):
                return {"responses": []}
        put = asked["success"][0]["request_put"]
        self._revision += 1
        header["revision"] = str(self._revision)
        key = b64decode(put["key"]).decode()
        created = self.values.get(key, {}).get("create_revision", str(self._revision))
        self.values[key] = put | {"create_revision": created, "mod_revision": str(self._revision), "version": "1"}
        return {"succeeded": True, "responses": [{"response_put": {"header": header}}]}


def ok(document: Any) -> Answer:
    return body(json.dumps(document).encode())


def body(content: bytes, *headers: bytes, status: bytes = b"200 OK") -> Answer:
    """Return an answer with this body, and its length unless a header says something about that."""
    lines = [b"HTTP/1.1 " + status, *headers]
    if not any(line.lower().startswith((b"content-length", b"transfer-encoding")) for line in headers):
        lines.append(b"Content-Length: %d" % len(content))
    return raw(b"\r\n".join([*lines, b"", content]))


def raw(content: bytes) -> Answer:
    return lambda file: file.write(content)


def _drip(file: Any) -> None:
    """Send a byte every 50 ms, which no pause between bytes ends."""
    file.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        file.write(b" ")
        time.sleep(0.05)


def _flood(file: Any) -> None:
    file.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(700):
        file.write(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")


def _continues(file: Any) -> None:
    for _ in range(100_000):
        file.write(b"HTTP/1.1 100 Continue\r\n\r\n")


_LENGTH = b"Content-Length: "
_JSON = (
    b"null",
    b"true",
    b"1",
    b'"x"',
    b"[]",
    b"[1]",
    b"{}",
    b"",
    b" ",
    b"NaN",
    b'{"result":NaN}',
    b"[" * 60_000,
    b"{" * 60_000,
    b'{"result":null}',
    b'{"result":[]}',
    b'{"result":{}}',
    b'{"result":"x"}',
    b'{"error":{"grpc_code":5}}',
    b'{"kvs":[5]}',
    b'{"kvs":5}',
    b'{"kvs":[]}',
    b'{"header":{"revision":"5"},"kvs":[{}]}',
    b'{"header":[],"kvs":[]}',
    b'{"header":{"revision":"5"},"kvs":[null],"count":"1"}',
    b'{"header":{"revision":"5"},"count":"1"}',
    b'{"header":{"revision":"x"},"succeeded":true}',
    b'{"header":{},"succeeded":true}',
    b'{"succeeded":true}',
    b'{"header":{"revision":"5"},"succeeded":"true"}',
    b'{"header":{"revision":"-5"},"succeeded":true}',
    b'{"header":{"revision":1e400},"succeeded":1}',
    b"\xff\xfe\x00",
    b"\x1f\x8b\x08" + bytes(99),
    *(
        form % (identity, ttl)
        for form in (b'{"ID":%b,"TTL":%b}', b'{"result":{"ID":%b,"TTL":%b}}')
        for identity, ttl in [
            (b'"7587"', b'"x"'),
            (b'"7587"', b'"-5"'),
            (b'"7587"', b"-5"),
            (b'"7587"', b"%d" % 10**40),
            (b'"7587"', b"2.5"),
            (b'"7587"', b"true"),
            (b'"7587"', b'"1"'),
            (b'"7587"', b"[]"),
            (b'"7587"', b'{"TTL":"5"}'),
            (b"[]", b'"5"'),
            (b'"%d"' % 10**30, b'"5"'),
            (b"null", b'"5"'),
            (b'"0"', b'"5"'),
            (b'"7587"', '"\u0665"'.encode()),
        ]
    ),
)

ODD: dict[str, Answer] = {
    **{content[:50].decode("latin-1"): body(content) for content in _JSON},
    "closed at once": raw(b""),
    "closed within the head": raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "no HTTP": raw(b"SSH-2.0-x\r\n"),
    "status x": raw(b"HTTP/1.1 x OK\r\n\r\n"),
    "HTTP/9": raw(b"HTTP/9.9 200 OK\r\n\r\n{}"),
    "long": body(b"{}", _LENGTH + b"1000"),
    "short": body(b'{"result":{}}', _LENGTH + b"3"),
    "negative": body(b"{}", _LENGTH + b"-2"),
    "no length": body(b"{}", _LENGTH + b"x"),
    "chunks": body(b"zz\r\n{}", b"Transfer-Encoding: chunked"),
    "cut chunk": body(b"5\r\n{}", b"Transfer-Encoding: chunked"),
    "redirect": body(b"", b"Location: http://127.0.0.1:1/", status=b"302 Found"),
    "gone": body(b"", status=b"410 Gone"),
    "503": body(b'{"error":"etcdserver: no leader","code":14}', status=b"503 Service Unavailable"),
    "1000 headers": body(b"{}", *[b"A: b"] * 1000),
    "odd header": body(b"{}", b"\xff\x00: \xff", b": x", b"\x01"),
    "gzip": body(b"\x1f\x8b\x08\x00" + bytes(20), b"Content-Encoding: gzip"),
    "drip": _drip,
    "700 MB": _flood,
    "700 MB announced": body(b"{}", _LENGTH + b"734003200"),
    "continues": _continues,
}
