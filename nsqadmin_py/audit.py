"""The record of every action: a line in the log, and a POST to --notification-http-endpoint."""

from __future__ import annotations

import socket
from time import time
from typing import Any
from urllib.parse import quote as quote_url

import gevent
import orjson
from gevent.queue import Full, Queue
from werkzeug.wrappers import Request

from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.web.access import AccessRights, basic_user, peer_of
from nsqd_py.net.http.client import BadStatus, http_client, parse_url
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs import Log

_MOST_WAITING = 1000


class AuditLog:
    """Writes actions to the log, and POSTs a document of each to --notification-http-endpoint, one after the other.

    At most 1,000 documents wait; further ones are refused.
    """

    def __init__(self, options: NsqadminOptions, log: Log, access: AccessRights) -> None:
        self._log = log
        self._access = access
        self._endpoint = options.notification_http_endpoint
        self._client = http_client(options)
        self._waiting: Queue[dict[str, Any]] = Queue(_MOST_WAITING)
        self._greenlet: gevent.Greenlet[[], None] = gevent.spawn(self._send_all)

    def _send_all(self) -> None:
        while True:
            document = self._waiting.get()
            try:
                url = parse_url(self._endpoint)
                self._log.of_clients.info("POSTing notification to %s", url.place)
                self._client.exchange("POST", url, orjson.dumps(document), {"Content-Type": "application/json"})
            except BadStatus:
                pass  # The endpoint has received it.
            except Exception as error:  # noqa: BLE001 - also after a bug, the next one must follow
                self._log.of_clients.error("failed to POST notification - %s", error)

    def record(self, request: Request, action: str, result: str, **names: str) -> None:
        """Log one line: the action, the user, the address and the result. Values are quoted against line breaks.

        No action of an identified user is left out.
        """
        log = self._log if self._access.is_identified(request) else self._log.of_clients
        what = " ".join(f"{name}={_quoted(value)}" for name, value in names.items() if value)
        # A text for each action, because lines are limited by text: many of one action hide no other.
        log.info(
            f"AUDIT: {action} %s by=%s from=%s result=%s",
            what,
            _quoted(self._access.name_for_log(request)),
            peer_of(request.environ),
            _quoted(result),
        )

    def notify(self, request: Request, action: str, topic: str, channel: str = "", node: str = "") -> None:
        """Send a document later. Log an error if too many wait already."""
        if not self._endpoint:
            return
        notice: dict[str, Any] = {"action": action, "topic": topic}
        notice |= {name: value for name, value in (("channel", channel), ("node", node)) if value}
        notice["timestamp"] = int(time())
        if basic_user(request):
            notice["user"] = basic_user(request)
        notice["remote_ip"] = peer_of(request.environ)
        notice["user_agent"] = request.headers.get("User-Agent", "")
        notice["url"] = _url_of(request)
        notice["via"] = socket.gethostname()
        try:
            self._waiting.put_nowait(notice)
        except Full:
            self._log.of_clients.error("failed to POST notification - %d of them wait already", _MOST_WAITING)

    def close(self) -> None:
        self._greenlet.kill(block=False)


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"))


def _url_of(request: Request) -> str:
    is_secure = request.scheme == "https" or request.headers.get("X-Scheme") == "https"
    query = request.query_string.decode("latin-1")
    url = f"{'https' if is_secure else 'http'}://{request.headers.get('Host', '')}" + quote_url(request.path, safe="$&+,/:;=@")
    return f"{url}?{query}" if query else url
