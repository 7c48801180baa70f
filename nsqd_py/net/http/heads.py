"""The head of a request: its relevant parts, and checks against what HTTP forbids."""

from __future__ import annotations

import re

from nsqd_py.net.http import browsers
from nsqd_py.net.http.answers import Reply, plain, refused_by_http

MAX_HEAD_BYTES = (1 << 20) + 4096  # Go's default, with its slack

_RELEVANT = {b"authorization", b"content-length", b"expect", b"host", b"transfer-encoding", *browsers.HEADERS}
# The first one counts, as in Go.
_MAY_BE_DOUBLED = {b"accept-language", b"authorization", b"referer", b"sec-fetch-mode", b"user-agent"}
_HOST = re.compile(rb"[A-Za-z0-9!$%&()*+,\-.:;='\[\]_~]*")
_VERSIONS = {"1.0", "1.1"}


class Refused(Exception):
    """The head is invalid or not supported. The connection sends `reply` and ends."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class Head:
    """The head of a request, which the parser fills.

    content_length  size of the body in bytes; 0 without that header
    fields          the relevant headers, by name in lower case
    """

    __slots__ = ("_doubled", "content_length", "fields", "keep_alive", "method", "size_bytes", "url", "version")

    def __init__(self) -> None:
        self.url = b""
        self.method = ""
        self.version = ""
        self.keep_alive = False
        self.size_bytes = 0
        self.content_length = 0
        self.fields: dict[bytes, bytes] = {}
        self._doubled = False

    def add(self, name: bytes, value: bytes) -> None:
        """Add a header. The parser has checked that a content length is a number below 2**64."""
        self.size_bytes += len(name) + len(value) + 4
        name = name.lower()
        if name in _RELEVANT:
            if name in self.fields:
                if name in _MAY_BE_DOUBLED:
                    return
                self._doubled = True
            self.fields[name] = value
            if name == b"content-length":
                self.content_length = int(value.lstrip(b"0 ") or b"0")  # int() raises for thousands of zeros

    @property
    def is_chunked(self) -> bool:
        return b"transfer-encoding" in self.fields

    @property
    def has_body(self) -> bool:
        return self.is_chunked or self.content_length > 0

    @property
    def expects_continue(self) -> bool:
        """True if the client sends the body only after 100 Continue."""
        return b"expect" in self.fields and self.has_body and self.version == "1.1"

    @property
    def is_plain(self) -> bool:
        """True if only URL and body matter for the answer, and Content-Length gives the body's size."""
        return (
            self.version == "1.1"
            and self.keep_alive
            and self.content_length > 0
            and not self.is_chunked
            and b"expect" not in self.fields
        )

    def check(self) -> None:
        """Raise Refused, with the answer of Go's HTTP server, if the head is invalid or not supported."""
        fields = self.fields
        if self.version == "0.9":  # also the parser's version of a request line without one
            raise Refused(refused_by_http(400))
        if self.version not in _VERSIONS:
            raise Refused(refused_by_http(505, "unsupported protocol version"))
        if self.size_bytes + len(self.url) > MAX_HEAD_BYTES:
            raise Refused(refused_by_http(431))
        if self._doubled:
            raise Refused(refused_by_http(400))
        if b"host" not in fields and self.version == "1.1" and self.method != "CONNECT":
            raise Refused(refused_by_http(400, "missing required Host header"))
        if _HOST.fullmatch(fields.get(b"host", b"")) is None:
            raise Refused(refused_by_http(400, "malformed Host header"))
        if fields.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise Refused(plain(501, "Unsupported transfer encoding"))
        if fields.get(b"expect", b"100-continue").lower() != b"100-continue":
            raise Refused(Reply(417))

    def without_upgrade(self) -> bytes:
        """Return the head's relevant parts as bytes, without `Upgrade`, at which the parser would stop."""
        lines = [f"{self.method} ".encode() + self.url + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in self.fields.items()]
        if not self.keep_alive:
            lines.append(b"Connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"
