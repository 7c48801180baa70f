"""A server with the XML API of Google Cloud Storage, as far as a store uses it: conditional writes, and uploads in parts.

Its rules are those of https://cloud.google.com/storage/docs/xml-api/overview: `x-goog-if-generation-match: 0` writes only a
new object, any other number only over this generation, and 412 says that it is another one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_DATE = "Mon, 02 Nov 2026 10:00:00 GMT"
_ISO_DATE = "2026-11-02T10:00:00.000Z"
_NUMBERS = count()


@dataclass
class _Bucket:
    """The objects with their generations, and the uploads whose parts are coming."""

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)


class CloudStorage(ThreadingHTTPServer):
    """A running server; `endpoint` is its URL."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.buckets: dict[str, _Bucket] = {}
        self.generations = count(1)
        self.lock = threading.Lock()

    def make_bucket(self) -> str:
        """Make a new bucket, and return its URL."""
        name = f"bucket{next(_NUMBERS)}"
        self.buckets[name] = _Bucket()
        return f"gs://{name}"


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CloudStorage

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        bucket_name, _, name = url.path.removeprefix("/").partition("/")
        query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        with self.server.lock:
            bucket = self.server.buckets.get(bucket_name)
            if bucket is None:
                self._refuse(404, "NoSuchBucket", "The specified bucket does not exist.")
            elif not name:
                self._list(bucket, query)
            elif "uploads" in query or "uploadId" in query:
                self._upload(bucket, unquote(name), query, body)
            elif self.command == "PUT":
                self._put(bucket, unquote(name), body)
            elif self.command == "DELETE":
                self._delete(bucket, unquote(name))
            else:
                self._get(bucket, unquote(name))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    # ---- one object

    def _get(self, bucket: _Bucket, name: str) -> None:
        if name not in bucket.objects:
            self._refuse(404, "NoSuchKey", "The specified key does not exist.")
            return
        data, generation = bucket.objects[name]
        headers = {"Last-Modified": _DATE, **_identity(generation)}
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, data, headers)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first)
        if start >= len(data):
            self._refuse(416, "InvalidRange", "The requested range cannot be satisfied.")
            return
        end = min(int(last or len(data)) + 1, len(data))
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._answer(206, data[start:end], headers)

    def _put(self, bucket: _Bucket, name: str, data: bytes) -> None:
        wanted = self.headers.get("x-goog-if-generation-match")
        present = bucket.objects[name][1] if name in bucket.objects else 0
        if wanted is not None and int(wanted) != present:
            self._refuse(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")
            return
        self._answer(200, b"", self._stored(bucket, name, data))

    def _delete(self, bucket: _Bucket, name: str) -> None:
        if bucket.objects.pop(name, None) is None:
            self._refuse(404, "NoSuchKey", "The specified key does not exist.")
            return
        self._answer(204, b"", {})

    def _stored(self, bucket: _Bucket, name: str, data: bytes) -> dict[str, str]:
        generation = next(self.server.generations)
        bucket.objects[name] = data, generation
        return _identity(generation)

    # ---- an upload in parts

    def _upload(self, bucket: _Bucket, name: str, query: dict[str, str], body: bytes) -> None:
        if "uploads" in query:
            number = str(next(self.server.generations))
            bucket.uploads[number] = {}
            self._xml(
                f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            )
            return
        number = query["uploadId"]
        if self.command == "DELETE":
            bucket.uploads.pop(number, None)
            self._answer(204, b"", {})
        elif self.command == "PUT":
            bucket.uploads[number][int(query["partNumber"])] = body
            self._answer(200, b"", {"ETag": f'"part{query["partNumber"]}"'})
        else:
            parts = bucket.uploads.pop(number)
            headers = self._stored(bucket, name, b"".join(parts[part] for part in sorted(parts)))
            etag = headers["ETag"]
            self._xml(
                f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>", headers
            )

    # ---- lists

    def _list(self, bucket: _Bucket, query: dict[str, str]) -> None:
        names = sorted(name for name in bucket.objects if name.startswith(query.get("prefix", "")))
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(bucket.objects[name][0])}</Size>"
            f"<LastModified>{_ISO_DATE}</LastModified><ETag>e</ETag></Contents>"
            for name in names
        )
        self._xml(f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")

    # ---- answers

    def _refuse(self, status: int, code: str, message: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        self._answer(status, text.encode(), {})

    def _xml(self, text: str, headers: dict[str, str] | None = None) -> None:
        self._answer(200, f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode(), headers or {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _identity(generation: int) -> dict[str, str]:
    return {"ETag": f'"e{generation}"', "x-goog-generation": str(generation)}


def environment_of(endpoint: str, directory: Path) -> dict[str, str]:
    """Return the credentials for such a server, in a file as those of a service account."""
    account = {
        "gcs_base_url": endpoint,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    path = directory / "account.json"
    path.write_text(json.dumps(account))
    return {"GOOGLE_SERVICE_ACCOUNT": str(path)}


@contextmanager
def cloud_storage() -> Iterator[CloudStorage]:
    """Run a server in a thread."""
    with CloudStorage() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
