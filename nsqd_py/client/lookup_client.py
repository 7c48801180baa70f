"""Asking nsqlookupds for nsqds, on gevent: each question waits in the greenlet that asks."""

from __future__ import annotations

from typing import Any

from nsqd_py.client.lookup import BadLookupAnswer, LookupFailed, lookup_headers, lookup_url, nodes_url, nsqds_in
from nsqd_py.client.options import ClientOptions
from nsqd_py.net.http.client import BadStatus, HttpClient, HttpClientError, parse_url
from nsqd_py.protocol.strangers import not_lookupd_http

_NOT_FOUND = 404


class LookupClient:
    """Asks with the limits and the secret of the options. Every method raises LookupFailed."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        limit_s = options.lookupd_poll_timeout_s or None
        self._plain = HttpClient(limit_s, limit_s, headers=lookup_headers(options))
        self._secure: HttpClient | None = None

    def lookup(self, address: str, topic: str) -> tuple[str, ...]:
        """The nsqds that have the topic, as this nsqlookupd knows it; none for a topic that it does not know."""
        return self._nsqds(address, lookup_url(address, topic))

    def nodes(self, address: str) -> tuple[str, ...]:
        """All nsqds that this nsqlookupd knows."""
        return self._nsqds(address, nodes_url(address))

    def _nsqds(self, address: str, url: str) -> tuple[str, ...]:
        try:
            return nsqds_in(self._ask(url))
        except BadStatus as error:
            if error.status == _NOT_FOUND:
                wrong_port = not_lookupd_http(error.body)
                if wrong_port:
                    raise LookupFailed(f"{address}: {wrong_port}") from error
                return ()
            raise LookupFailed(f"{address}: {error}") from error
        except (HttpClientError, BadLookupAnswer, OSError) as error:
            raise LookupFailed(f"{address}: {error}") from error

    def _ask(self, url: str) -> Any:
        parsed = parse_url(url)
        client = self._secure_client() if parsed.is_secure else self._plain
        return client.ask(parsed)

    def _secure_client(self) -> HttpClient:
        """Raises OSError for files of TLS that are no good."""
        if self._secure is None:
            from gevent import ssl  # only where TLS is asked for: it is slow to import

            from nsqd_py.client.tls import client_context

            context = client_context(self._options, ssl.SSLContext)
            limit_s = self._options.lookupd_poll_timeout_s or None
            self._secure = HttpClient(limit_s, limit_s, tls=context, headers=lookup_headers(self._options))
        return self._secure
