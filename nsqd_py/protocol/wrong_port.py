"""Error messages for a connection to the wrong port, by the first bytes of the answer. Pure."""

from __future__ import annotations

from struct import pack

_NSQD_TCP = "nsqd's TCP address (port 4150 by default)"
_HTTP = "an HTTP address (port 4151 of nsqd, 4161 of nsqlookupd by default)"
_LOOKUPD_TCP = "nsqlookupd's TCP address (port 4160 by default)"
_REFUSAL = b"E_BAD_PROTOCOL"
_TLS_ALERT = b"\x15\x03"


def not_nsqd_tcp(size: int, kind: int) -> str:
    """Return which server sends these first eight bytes instead of a frame of nsqd; empty if unknown."""
    head = pack(">ii", size, kind)
    if head.startswith(b"HTTP/"):
        return f"this is an HTTP port; give {_NSQD_TCP}"
    if head[4:] == _REFUSAL[:4]:
        return f"this is the TCP port of nsqlookupd; give {_NSQD_TCP}"
    if head.startswith(_TLS_ALERT):
        return f"this port takes TLS only, such as an HTTPS port; give {_NSQD_TCP}"
    return ""


def not_lookupd_tcp(data: bytes) -> str:
    """Return which server sends these first bytes instead of nsqlookupd's protocol; empty if unknown."""
    if data.startswith(b"HTTP/"):
        return f"this is an HTTP port; give {_LOOKUPD_TCP}"
    if data[8:].startswith(_REFUSAL):  # behind the size and type of nsqd's frame
        return f"this is the TCP port of nsqd; give {_LOOKUPD_TCP}"
    return ""


def not_http(line: str) -> str:
    """Return why this first line is not HTTP."""
    if _REFUSAL.decode() in line:
        return f"this is the TCP port of nsqd or nsqlookupd; give {_HTTP}"
    return f"the answer is not HTTP: {line[:80]!r}"


def not_lookupd_http(body: bytes) -> str:
    """Return why a 404 is not from nsqlookupd, which names what it does not find; empty if it may be."""
    if b'"NOT_FOUND"' in body:
        return "this HTTP port is not nsqlookupd's; give nsqlookupd's HTTP address (port 4161 by default)"
    return ""
