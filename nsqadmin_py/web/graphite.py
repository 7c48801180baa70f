"""Passes /render on to Graphite, for browsers that cannot reach it: with --proxy-graphite."""

from __future__ import annotations

from dataclasses import replace

from werkzeug.wrappers import Request, Response

from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.web.access import Access
from nsqadmin_py.web.answers import Refusal
from nsqd_py.net.http.client import BadStatus, HttpClient, HttpClientError, limit_s, parse_url
from nsqd_py.runtime.logs import Log

_TYPES = ((b"\x89PNG", "image/png"), (b"[", "application/json"), (b"{", "application/json"), (b"<svg", "image/svg+xml"))


class GraphiteProxy:
    def __init__(self, options: NsqadminOptions, access: Access, log: Log) -> None:
        url = parse_url(options.graphite_url)
        self._url = url
        self._access = access
        self._log = log
        self._client = HttpClient(
            limit_s(options.http_client_connect_timeout_ns), limit_s(options.http_client_request_timeout_ns)
        )

    def render(self, request: Request) -> Response:
        self._access.check_sees_all(request)
        query = request.query_string.decode("latin-1")
        url = parse_url(f"{self._url.place}/render" + (f"?{query}" if query else ""))
        try:
            # The client's login is for nsqadmin; that of Graphite is in --graphite-url.
            body = self._client.exchange("GET", replace(url, login=self._url.login))
        except BadStatus as error:
            return Response(error.body, error.status, {"Content-Type": "text/plain; charset=utf-8"})
        except HttpClientError as error:
            self._log.of_clients.error("graphite request failed - %s", error)
            raise Refusal(502, f"UPSTREAM_ERROR: {error}") from error
        return Response(body, 200, {"Content-Type": _type_of(body), "Cache-Control": "no-store"})


def _type_of(body: bytes) -> str:
    return next((kind for begin, kind in _TYPES if body.startswith(begin)), "text/plain; charset=utf-8")
