"""A web server for the pages: `web_sink.py FILE ADDRESS...` answers 200 and writes a line for each request."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_one_at_a_time = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        host, port = self.server.server_address[:2]
        with _one_at_a_time, open(sys.argv[1], "a") as file:
            print(self.command, f"{host}:{port}", self.path, file=file)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing: the file has it."""


for address in sys.argv[2:]:
    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Handler)
    threading.Thread(target=server.serve_forever).start()
print("serving", flush=True)
