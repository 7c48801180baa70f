"""A server that speaks as much S3 as nsqd needs, over a directory, at a limited rate: `python -m bench.object_server DIR 125`.

It prints its port. The objects are files below DIR, as a store of `file://` has them. All that leaves it is limited together.
Uploads of large files, in parts, are refused.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from nsqd_py.objects.calls import Changed, Exists, Objects
from nsqd_py.objects.opening import open_objects

_PIECE_BYTES = 256 * 1024
_BURST_S = 0.02


class Rate:
    """Lets this many bytes a second pass, of all threads together. The lock guards when the next piece may leave."""

    def __init__(self, bytes_per_s: float) -> None:
        self.sent_bytes = 0
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._next_s = time.monotonic()

    def wait(self, size_bytes: int) -> None:
        """Return when these bytes may leave."""
        with self._lock:
            self.sent_bytes += size_bytes
            now_s = time.monotonic()
            self._next_s = max(self._next_s, now_s - _BURST_S) + size_bytes / self._bytes_per_s
            wait_s = self._next_s - now_s
        if wait_s > 0:
            time.sleep(wait_s)


class ObjectServer(ThreadingHTTPServer):
    """The objects of one directory, as a bucket of any name."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, directory: Path, bytes_per_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.directory = directory
        self.objects: Objects = open_objects(f"file://{directory.absolute()}")
        self.rate = Rate(bytes_per_s)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: ObjectServer

    def do_GET(self) -> None:
        name = self._name()
        if name == "-/sent":
            self._answer(200, str(self.server.rate.sent_bytes).encode())
        elif name:
            self._get(name)
        else:
            self._list()

    def _get(self, name: str) -> None:
        path = self.server.directory / name
        try:
            file = path.open("rb")
        except OSError:
            self._refuse(404, "NoSuchKey")
            return
        with file:
            size_bytes = os.fstat(file.fileno()).st_size
            start, end = self._range(size_bytes)
            is_part = "Range" in self.headers
            if is_part and start >= size_bytes:
                self._refuse(416, "InvalidRange")
                return
            self.send_response(206 if is_part else 200)
            self.send_header("ETag", self._tag(path))
            self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
            if is_part:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size_bytes}")
            self.send_header("Content-Length", str(end - start))
            self.end_headers()
            file.seek(start)
            while start < end:
                piece = file.read(min(_PIECE_BYTES, end - start))
                self.server.rate.wait(len(piece))
                self.wfile.write(piece)
                start += len(piece)

    def _range(self, size_bytes: int) -> tuple[int, int]:
        value = self.headers.get("Range", "bytes=0-").removeprefix("bytes=")
        first, _, last = value.partition("-")
        end = min(size_bytes, int(last) + 1) if last else size_bytes
        return int(first), end

    def _list(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        prefix = query.get("prefix", [""])[0]
        found = [
            f"<Contents><Key>{escape(one.name)}</Key><Size>{one.size_bytes}</Size><ETag>&quot;0&quot;</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for one in self.server.objects.list(prefix.rstrip("/"))
        ]
        head = '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><IsTruncated>false</IsTruncated>'
        self._answer(200, f"{head}{''.join(found)}</ListBucketResult>".encode())

    def do_PUT(self) -> None:
        name = self._name()
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if urlsplit(self.path).query:
            self._refuse(501, "NotImplemented")
            return
        try:
            self._put(name, data)
        except (Exists, Changed):
            self._refuse(412, "PreconditionFailed")
            return
        self._answer(200, b"", ETag=self._tag(self.server.directory / name))

    def _put(self, name: str, data: bytes) -> None:
        objects = self.server.objects
        tag = self.headers.get("If-Match")
        if tag is not None:
            _, version = objects.get(name)
            if tag != self._tag(self.server.directory / name):
                raise Changed(name)
            objects.swap(name, data, version)
        else:
            objects.create(name, data)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        if urlsplit(self.path).query != "delete":
            self._refuse(501, "NotImplemented")
            return
        names = [part.partition("</Key>")[0] for part in body.split("<Key>")[1:]]
        self.server.objects.delete(names)
        gone = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
        self._answer(200, f'<?xml version="1.0"?><DeleteResult>{gone}</DeleteResult>'.encode())

    def do_DELETE(self) -> None:
        self.server.objects.delete([self._name()])
        self._answer(204, b"")

    # ---- answers

    def _name(self) -> str:
        """Return the name of the object; empty for the bucket itself."""
        return unquote(urlsplit(self.path).path).strip("/").partition("/")[2]

    @staticmethod
    def _tag(path: Path) -> str:
        status = path.stat()
        return f'"{status.st_ino:x}-{status.st_mtime_ns:x}"'

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode())

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until the process is killed."""
    directory, mega_bytes_per_s = sys.argv[1:]
    server = ObjectServer(Path(directory), float(mega_bytes_per_s) * 1e6)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
