"""The record of every action: a line in the log, an entry of the audit view, and a POST to --notification-http-endpoint."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from time import time
from typing import Any
from urllib.parse import quote as quote_url

import gevent
from gevent.queue import Full, Queue
from werkzeug.wrappers import Request

from nsqadmin_py.audit_trail import DONE, NOT_DONE, AuditEntry, AuditTrail
from nsqadmin_py.history.kept import KeptDocument
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.web.access import AccessRights, peer_of
from nsqadmin_py.webhook import Webhook, WebhookError
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs import Log

_MOST_WAITING = 1000
_OK = "ok"
_PLACES = ("topic", "channel", "node")


class AuditLog:
    """Writes actions to the log and to the audit trail, and POSTs a document of each to --notification-http-endpoint.

    The documents are sent one after the other. At most 1,000 wait; further ones are refused.
    """

    def __init__(self, options: NsqadminOptions, log: Log, access: AccessRights, trail: AuditTrail) -> None:
        self.trail = trail
        self.kept: KeptDocument | None = None  # where the trail is kept
        self._log = log
        self._access = access
        self._webhook = Webhook(options.notification_http_endpoint, options)
        self._waiting: Queue[dict[str, Any]] = Queue(_MOST_WAITING)
        self._greenlet: gevent.Greenlet[[], None] = gevent.spawn(self._send_all)

    def _send_all(self) -> None:
        while True:
            document = self._waiting.get()
            try:
                self._log.of_clients.info("POSTing notification to %s", self._webhook.place)
                self._webhook.post(document)
            except (WebhookError, ValueError) as error:
                self._log.of_clients.error("failed to POST notification - %s", error)
            except Exception as error:  # noqa: BLE001 - also after a bug, the next one must follow
                self._log.of_clients.error("failed to POST notification - %r", error)

    def record(self, request: Request, action: str, names: Mapping[str, str], state: str = DONE, result: str = _OK) -> AuditEntry:
        """Record an action and return its entry. Its line in the log has all values quoted against line breaks.

        No action of an identified user is left out of the log.

        names  topic, channel and node, and further arguments
        """
        is_verified = self._access.is_identified(request)
        user, address = self._access.name_for_log(request), peer_of(request.environ)
        places = {name: names.get(name, "") for name in _PLACES}
        details = {name: value for name, value in names.items() if value and name not in _PLACES}
        entry = AuditEntry(time(), action, user, is_verified, address, **places, details=details, state=state, result=result)
        log = self._log if is_verified else self._log.of_clients
        what = " ".join(f"{name}={_quoted(value)}" for name, value in names.items() if value)
        # A text for each action, because lines are limited by text: many of one action hide no other.
        log.info(f"AUDIT: {action} %s by=%s from=%s result=%s", what, _quoted(user), address, _quoted(result))
        self.trail.add(entry)
        if self.kept is not None:
            self.kept.changed()
        return entry

    def notify(self, request: Request, action: str, entry: AuditEntry) -> None:
        """Send a document about an entry later, with Go's name of its action. Log an error if too many wait already."""
        if not self._webhook:
            return
        entry = entry.shortened()
        notice: dict[str, Any] = {"action": action, "topic": entry.topic}
        notice |= {name: value for name, value in (("channel", entry.channel), ("node", entry.node)) if value}
        notice["timestamp"] = int(entry.time_s)
        if entry.user:
            notice["user"] = entry.user
        notice["remote_ip"] = entry.address
        notice["user_agent"] = request.headers.get("User-Agent", "")
        notice["url"] = _url_of(request)
        notice["via"] = socket.gethostname()
        # Go's nsqadmin sends what is above.
        notice["user_is_verified"] = entry.is_verified
        notice["target"] = entry.target
        notice["details"] = entry.details
        notice["result"] = entry.result
        notice["is_done"] = entry.state != NOT_DONE
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
