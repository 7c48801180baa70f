"""A store that speaks as much of S3 as reading takes, and remembers what was asked of it; and buckets of moto's."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape


class S3Store(ThreadingHTTPServer):
    """`objects`: by `bucket/key`; `requests`: `(bucket, access key)` of each."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: set[tuple[str, str]] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def s3_store(objects: dict[str, bytes]) -> Iterator[S3Store]:
    store = S3Store()
    store.objects |= objects
    thread = threading.Thread(target=store.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield store
    finally:
        store.shutdown()
        thread.join()
        store.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Store

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._object()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if given.get("list-type") == "2":
            self._list(unquote(parts.path).strip("/"), given.get("prefix", ""))
        else:
            self._object()

    def _note(self) -> str:
        path = unquote(urlsplit(self.path).path).strip("/")
        signed = self.headers.get("Authorization", "").partition("Credential=")[2]
        self.server.requests.add((path.partition("/")[0], signed.partition("/")[0]))
        return path

    def _object(self) -> None:
        path = self._note()
        data = self.server.objects.get(path)
        if "/" not in path:
            is_there = any(name.startswith(f"{path}/") for name in self.server.objects)
            self._answer(200 if is_there else 404, b"")
            return
        if data is None:
            self._answer(404, b"")
            return
        span = self.headers.get("Range", "").removeprefix("bytes=")
        if not span:
            self._answer(200, data)
            return
        first, _, last = span.partition("-")
        end = min(int(last or len(data)), len(data) - 1)
        self._answer(206, data[int(first) : end + 1], f"bytes {first}-{end}/{len(data)}")

    def _list(self, bucket: str, prefix: str) -> None:
        self._note()
        begin = f"{bucket}/{prefix}"
        found = {
            path[len(bucket) + 1 :]: data
            for path, data in self.server.objects.items()
            if path.startswith(begin)
        }
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(found.items())
        )
        text = f"<?xml version='1.0'?><ListBucketResult><KeyCount>{len(found)}</KeyCount>{contents}</ListBucketResult>"
        self._answer(200, text.encode(), kind="application/xml")

    def _answer(
        self, status: int, data: bytes, content_range: str = "", kind: str = "binary/octet-stream"
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", kind)
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def environment_of(endpoint: str) -> dict[str, str]:
    """What pyarrow and Delta read."""
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }


def make_bucket(endpoint: str) -> str:
    """Return the URL of a new one."""
    name = f"bucket-{secrets.token_hex(8)}"
    with urlopen(Request(f"{endpoint}/{name}", method="PUT")):
        return f"s3://{name}"
