"""POSTs JSON documents to a URL, one after the other in the background."""

from __future__ import annotations

from typing import Any

import gevent
import orjson
from gevent.queue import Full, Queue

from nsqadmin_py.options import NsqadminOptions
from nsqd_py.net.http.client import BadStatus, HttpClient, HttpClientError, limit_s, parse_url
from nsqd_py.runtime.logs import Log

_MOST_WAITING = 1000


class Notifications:
    """Sends documents to `endpoint`; to none if it is empty. At most 1,000 wait, and further ones are refused."""

    def __init__(self, endpoint: str, options: NsqadminOptions, log: Log) -> None:
        self.endpoint = endpoint
        self._log = log
        self._client = HttpClient(
            limit_s(options.http_client_connect_timeout_ns), limit_s(options.http_client_request_timeout_ns)
        )
        self._waiting: Queue[dict[str, Any]] = Queue(_MOST_WAITING)
        self._greenlet: gevent.Greenlet[[], None] | None = None

    def send(self, document: dict[str, Any]) -> None:
        """Send a document later. Log an error if too many wait already."""
        if not self.endpoint:
            return
        try:
            self._waiting.put_nowait(document)
        except Full:
            self._log.of_clients.error("failed to POST notification - %d of them wait already", _MOST_WAITING)
            return
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._send_all)

    def _send_all(self) -> None:
        while True:
            document = self._waiting.get()
            self._log.of_clients.info("POSTing notification to %s", parse_url(self.endpoint).place)
            body = orjson.dumps(document)
            try:
                self._client.exchange("POST", parse_url(self.endpoint), body, {"Content-Type": "application/json"})
            except BadStatus:
                pass  # The endpoint has received it.
            except HttpClientError as error:
                self._log.of_clients.error("failed to POST notification - %s", error)

    def close(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
