"""The part of etcd's JSON gateway that leases use, in memory, on a real socket; and odd answers in the place of it.

It counts revisions as etcd does: each transaction that changes something has one, which is the `mod_revision` of all keys
that it writes. A key that is written again keeps its `create_revision`, and loses its lease unless the write names one.
"""

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
TIME_TO_LIVE = "lease/timetolive"
# Writes an answer to a connection, which is closed after it.
Answer = Callable[[Any], None]
# A key with its value, its revisions and its lease, in the words of etcd's JSON.
Pair = dict[str, Any]

# What a transaction can compare, with the value of a key that does not exist.
_TARGETS = {
    "CREATE": ("create_revision", 0),
    "MOD": ("mod_revision", 0),
    "LEASE": ("lease", 0),
    "VALUE": ("value", None),
}


class FakeEtcd:
    """Serves from `with` to its end. `odd` has, by path, what is answered in the place of etcd's own answer.

    A request with an odd answer is not carried out.
    """

    def __init__(self) -> None:
        self.odd: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.values: dict[str, Pair] = {}
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
                    fake.odd.get(path, ok(fake.answer(path, asked) if path not in fake.odd else None))(
                        self.wfile
                    )

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

    def url(self, name: str) -> str:
        return f"etcd://{self.address}/{name}"

    def end_lease(self) -> None:
        """Revoke all leases."""
        with self._lock:
            self._leases.clear()

    def note(self, name: str) -> dict[str, Any]:
        return json.loads(b64decode(self.values[f"nsqd-py/{name}/note"]["value"]))

    def answer(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._expire()
            answer: dict[str, Any] = getattr(self, "_" + path.replace("/", "_"))(asked)
            return answer if path == KEEPALIVE else {"header": self._header(), **answer}

    def _header(self) -> dict[str, str]:
        return {"cluster_id": "1", "revision": str(self._revision), "raft_term": "2"}

    # ---- leases

    def _expire(self) -> None:
        now_s = time.monotonic()
        self._leases = {name: lease for name, lease in self._leases.items() if lease[1] > now_s}
        ended = [
            key for key, pair in self.values.items() if "lease" in pair and pair["lease"] not in self._leases
        ]
        for key in ended:
            self._revision += 1
            del self.values[key]

    def _lease_grant(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._granted += 1
        name, ttl_s = str(self._granted), int(asked["TTL"])
        self._leases[name] = ttl_s, time.monotonic() + ttl_s
        return {"ID": name, "TTL": str(ttl_s)}

    def _lease_keepalive(self, asked: dict[str, Any]) -> dict[str, Any]:
        result = {"header": self._header(), "ID": asked["ID"]}
        if asked["ID"] in self._leases:
            ttl_s, _ = self._leases[asked["ID"]]
            self._leases[asked["ID"]] = ttl_s, time.monotonic() + ttl_s
            result["TTL"] = str(ttl_s)
        return {"result": result}

    def _lease_revoke(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._leases.pop(str(asked["ID"]), None)
        self._expire()
        return {}

    def _lease_timetolive(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = str(asked["ID"])
        if name not in self._leases:
            return {"ID": name, "TTL": "-1"}
        ttl_s, ends_s = self._leases[name]
        remaining_s = int(ends_s - time.monotonic())  # rounded down, and left out if it is 0
        return {"ID": name, "grantedTTL": str(ttl_s)} | ({"TTL": str(remaining_s)} if remaining_s else {})

    # ---- keys

    def _kv_range(self, asked: dict[str, Any]) -> dict[str, Any]:
        pair = self.values.get(_text(asked["key"]))
        return {"kvs": [pair], "count": "1"} if pair is not None else {}

    def _kv_put(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._carry_out([{"request_put": asked}])[0]["response_put"]

    def _kv_deleterange(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._carry_out([{"request_delete_range": asked}])[0]["response_delete_range"]

    def _kv_txn(self, asked: dict[str, Any]) -> dict[str, Any]:
        has_succeeded = all(map(self._holds, asked.get("compare", [])))
        responses = self._carry_out(asked.get("success" if has_succeeded else "failure", []))
        return ({"succeeded": True} if has_succeeded else {}) | (
            {"responses": responses} if responses else {}
        )

    def _holds(self, compare: dict[str, Any]) -> bool:
        assert compare["result"] == "EQUAL"
        field, of_nothing = _TARGETS[compare["target"]]
        found = self.values.get(_text(compare["key"]), {}).get(field, of_nothing)
        if field == "value":
            return bool(found == compare[field])
        return int(found) == int(compare[field])

    def _carry_out(self, operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Carry out the operations of one transaction, which have one revision together."""
        revision = self._revision + 1
        answers = [
            {name.replace("request", "response"): getattr(self, "_" + name)(asked, revision)}
            for operation in operations
            for name, asked in operation.items()
        ]
        for answer in answers:
            for response in answer.values():
                response["header"] = {"revision": str(self._revision)}
        return answers

    def _request_range(self, asked: dict[str, Any], _: int) -> dict[str, Any]:
        return self._kv_range(asked)

    def _request_put(self, asked: dict[str, Any], revision: int) -> dict[str, Any]:
        self._revision = revision
        key, lease = _text(asked["key"]), str(asked.get("lease", 0))
        assert lease == "0" or lease in self._leases, "etcdserver: requested lease not found"
        before = self.values.get(key, {"create_revision": str(revision), "version": "0"})
        self.values[key] = {
            "key": asked["key"],
            "value": asked["value"],
            "create_revision": before["create_revision"],
            "mod_revision": str(revision),
            "version": str(int(before["version"]) + 1),
        }
        if lease != "0":
            self.values[key]["lease"] = lease
        return {}

    def _request_delete_range(self, asked: dict[str, Any], revision: int) -> dict[str, Any]:
        first, end = _text(asked["key"]), _text(asked["range_end"]) if "range_end" in asked else ""
        deleted = [key for key in self.values if key == first or first <= key < end]
        for key in deleted:
            self._revision = revision
            del self.values[key]
        return {"deleted": str(len(deleted))} if deleted else {}


def _text(encoded: str) -> str:
    return b64decode(encoded).decode()


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
