"""Requests that a reverse proxy passed on: the address of their connection is the proxy's, not the client's."""

from __future__ import annotations

from collections.abc import Container

# One of them is enough. RFC 9110 (Via), RFC 7239 (Forwarded), and what proxies sent before.
HEADERS = (
    b"forwarded",
    b"via",
    b"x-forwarded-by",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"x-forwarded-proto",
    b"x-forwarded-server",
    b"x-forwarded-user",
    b"x-real-ip",
)


def is_passed_on(fields: Container[bytes]) -> bool:
    """True if headers with these names, in lower case, show that a proxy passed the request on."""
    return any(name in fields for name in HEADERS)
