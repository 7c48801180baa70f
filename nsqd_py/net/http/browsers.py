"""Requests that a web page made a browser send: from another site, or to a host name that is not ours.

A page of any site can send requests to a daemon that only its reader's browser can reach. With a host name of the
page's owner that resolves to the daemon's address (DNS rebinding), it can also read the answers. All three daemons ask
`refusal` about each request. Programs do not send the headers by which a browser is recognized.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from nsqd_py.net.addresses import ip_version, split_address

# Chromium sends no Sec-Fetch headers and no Referer from http:// pages, and Firefox lets a page choose its User-Agent,
# but not omit Accept-Language.
HEADERS = (b"accept-language", b"origin", b"referer", b"sec-fetch-mode", b"sec-fetch-site", b"user-agent")
CROSS_SITE = "CROSS_SITE_REQUEST"

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_OWN_SITES = (b"same-origin", b"none")
_HOST = r"(?:\[([0-9a-f:.]+)\]|([^\[\]:/@?#]+))(?::[0-9]*)?"
_DOMAIN = r"\.?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_AUTHORITY = rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)"


class KnownHosts:
    """The host names of a daemon. One that begins with a dot stands for a domain and all names in it."""

    def __init__(self, names: Iterable[str]) -> None:
        plain = {name.lower().rstrip(".") for name in names} - {""}
        self._names = {name for name in plain if not name.startswith(".")} | {"localhost"}
        self._endings = tuple(name for name in plain if name.startswith("."))

    @classmethod
    def of(cls, options: Any) -> KnownHosts:
        """Return the hosts of a daemon with these options: of this machine, of its addresses, and the allowed ones."""
        addresses = (options.http_address, getattr(options, "https_address", ""))
        bound = [host for host, _ in filter(None, map(split_address, addresses))]
        own = [os.uname().nodename, getattr(options, "broadcast_address", "")]
        return cls([*own, *bound, *options.http_allowed_hosts])

    def knows(self, authority: str) -> bool:
        """True for `host` or `host:port` with a known name or any IP address: no foreign domain resolves to those."""
        found = re.fullmatch(_HOST, authority.lower())
        if found is None:
            return False
        name = (found[1] or found[2]).removesuffix(".")
        if name in self._names:
            return True
        return f".{name}".endswith(self._endings) or ip_version(name) != 0


def check_hosts(names: tuple[str, ...]) -> str | None:
    """Return the problem with a value of --http-allowed-hosts; None if there is none."""
    bad = next((name for name in names if re.fullmatch(_DOMAIN, name.lower()) is None), None)
    if bad is None:
        return None
    return f"must be a host name without a port, or a domain such as .example.com, not {bad!r}"


def refusal(method: str, url: bytes, fields: dict[bytes, bytes], hosts: KnownHosts) -> str | None:
    """Return the message of the 403 for a browser's request that may be the work of a foreign page, or None.

    fields: the headers `HEADERS` and `host`, by name in lower case.
    """
    if not is_of_browser(fields):
        return None
    host = fields.get(b"host", b"")
    absolute = re.match(_AUTHORITY, url)
    for authority in (host, absolute[1] if absolute is not None else host):
        name = authority.decode("latin-1")
        if not hosts.knows(name):
            return (
                f"HOST_NOT_ALLOWED: {name!a} is no known name of this server; --http-allowed-hosts can add it"
            )
    if method not in _SAFE_METHODS and is_cross_site(fields):
        return CROSS_SITE
    return None


def is_of_browser(fields: dict[bytes, bytes]) -> bool:
    """True if a browser sent these headers.

    Not browsers: Node's `fetch`, which sends Sec-Fetch-Mode without Sec-Fetch-Site, and PowerShell, a "Mozilla" too.
    """
    if b"origin" in fields or b"referer" in fields or b"sec-fetch-site" in fields:
        return True
    if b"accept-language" in fields and b"sec-fetch-mode" not in fields:
        return True
    agent = fields.get(b"user-agent", b"")
    return (
        agent.startswith(b"Mozilla/") and b" PowerShell/" not in agent and b" WindowsPowerShell/" not in agent
    )


def is_cross_site(fields: dict[bytes, bytes]) -> bool:
    """True if a browser says that a page of another site sent the request.

    Chromium sends `Sec-Fetch-Site` only to https:// and to this machine; then `Origin` decides, or without it `Referer`.
    For a request of the same origin they do not count: a proxy may have changed `Host`.
    """
    site = fields.get(b"sec-fetch-site", b"none").lower()
    if site not in _OWN_SITES:
        return True
    if site == b"same-origin":
        return False
    host = fields.get(b"host", b"").lower()
    origin = fields.get(b"origin")
    if origin is not None:
        return origin.partition(b"://")[2].lower() != host
    referer = fields.get(b"referer")
    if not referer:
        return False
    found = re.match(_AUTHORITY, referer)
    return found is None or found[1].lower() != host
