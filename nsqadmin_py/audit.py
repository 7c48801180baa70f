"""The record of every action: a line in the log, and a POST to --notification-http-endpoint."""

from __future__ import annotations

import socket
from time import time
from typing import Any
from urllib.parse import quote as quote_url

from werkzeug.wrappers import Request

from nsqadmin_py.history.marks import Marks
from nsqadmin_py.notifications import Notifications
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.web.access import Access, basic_user, peer_of
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs import Log


class AuditLog:
    """Writes actions to the log, and sends a notification of each."""

    def __init__(self, options: NsqadminOptions, log: Log, access: Access, marks: Marks) -> None:
        self._log = log
        self._marks = marks
        self._access = access
        self._notifications = Notifications(options.notification_http_endpoint, options, log)

    def record_done(self, request: Request, action: str, result: str, **names: str) -> None:
        """Log an action that has been done, on some nsqds at least, and mark it in charts."""
        self._marks.note_action(action, time(), names, self._access.name_for_log(request))
        self.record(request, action, result, **names)

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
        if not self._notifications.endpoint:
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
        self._notifications.send(notice)

    def close(self) -> None:
        self._notifications.close()


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"))


def _url_of(request: Request) -> str:
    is_secure = request.scheme == "https" or request.headers.get("X-Scheme") == "https"
    query = request.query_string.decode("latin-1")
    url = f"{'https' if is_secure else 'http'}://{request.headers.get('Host', '')}{quote_url(request.path)}"
    return f"{url}?{query}" if query else url
