"""The record of every action: a line in the log, an entry of the audit view, and a notification by HTTP."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from time import time
from typing import Any
from urllib.parse import quote as quote_url

import gevent
from gevent.queue import Full, Queue
from werkzeug.wrappers import Request

from nsqadmin_py.audit_trail import NOT_DONE, AuditEntry, AuditTrail
from nsqadmin_py.history.file import HistoryFile
from nsqadmin_py.history.saved import SavedDocument
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.web.access import AccessRights, peer_of
from nsqadmin_py.webhook import Webhook, WebhookError
from nsqd_py.cluster.values import fields_of
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs.daemon_log import Log

_MOST_WAITING = 1000
_SUBJECT = ("topic", "channel", "node")
# Keys of notifications that are omitted if they are empty.
_OMITTED = ("channel", "node", "user")


class AuditLog:
    """Writes actions to the log and to the audit trail, and sends notifications of them.

    It POSTs a document of each to --notification-http-endpoint. The documents are sent one after the other.
    At most 1,000 wait; further ones are refused.
    """

    def __init__(self, options: NsqadminOptions, log: Log, access: AccessRights, file: HistoryFile) -> None:
        """The trail is saved next to `file`."""
        self.trail = AuditTrail()
        self._saved = SavedDocument(file, ".audit", self.trail.dump)
        self._log = log
        self._access = access
        self._webhook = Webhook(options.notification_http_endpoint, options)
        self._waiting: Queue[dict[str, Any]] = Queue(_MOST_WAITING)
        self._greenlet: gevent.Greenlet[[], None] = gevent.spawn(self._send_all)

    def open(self) -> None:
        """Load the trail of the last run. Call it after the file is open."""
        self.trail.load(self._saved.open())

    def close(self) -> None:
        """Call it before the file is closed."""
        self._greenlet.kill(block=False)
        self._saved.close()

    def _send_all(self) -> None:
        while True:
            document = self._waiting.get()
            try:
                self._log.of_clients.info("POSTing notification to %s", self._webhook.origin)
                self._webhook.post(document)
            except (WebhookError, ValueError) as error:
                self._log.of_clients.error("failed to POST notification - %s", error)
            except Exception as error:  # noqa: BLE001 - also after a bug, the next one must follow
                self._log.of_clients.error("failed to POST notification - %r", error)

    def record(
        self, request: Request, action: str, names: Mapping[str, str], state: str, result: str
    ) -> AuditEntry:
        """Record an action and return its entry.

        Its line in the log has all values quoted against line breaks. No action of an identified user is left
        out of the log.

        names  topic, channel and node, and further arguments
        """
        given = {name: value for name, value in names.items() if value}
        entry = AuditEntry(
            time(),
            action,
            self._access.name_for_log(request),
            self._access.is_identified(request),
            peer_of(request.environ),
            **{name: given.get(name, "") for name in _SUBJECT},
            details={name: value for name, value in given.items() if name not in _SUBJECT},
            state=state,
            result=result,
        )
        log = self._log if entry.is_verified else self._log.of_clients
        what = " ".join(f"{name}={_quoted(value)}" for name, value in given.items())
        # A text for each action, because lines are limited by text: many of one action hide no other.
        text = f"AUDIT: {action} %s by=%s from=%s result=%s"
        log.info(text, what, _quoted(entry.user), entry.address, _quoted(result))
        self.trail.add(entry)
        self._saved.changed()
        return entry

    def notify(self, request: Request, action: str, entry: AuditEntry) -> None:
        """Send a document about an entry later, with Go's name of its action.

        Log an error if too many wait already.
        """
        if not self._webhook:
            return
        entry = entry.shortened()
        notice: dict[str, Any] = {
            "action": action,
            **fields_of(entry, *_SUBJECT),
            "timestamp": int(entry.time_s),
            "user": entry.user,
            "remote_ip": entry.address,
            "user_agent": request.headers.get("User-Agent", ""),
            "url": _url_of(request),
            "via": socket.gethostname(),
            # Go's nsqadmin sends what is above.
            "user_is_verified": entry.is_verified,
            **fields_of(entry, "target", "details", "result"),
            "is_done": entry.state != NOT_DONE,
        }
        try:
            self._waiting.put_nowait(
                {name: notice[name] for name in notice if notice[name] or name not in _OMITTED}
            )
        except Full:
            self._log.of_clients.error("failed to POST notification - %d of them wait already", _MOST_WAITING)


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"))


def _url_of(request: Request) -> str:
    is_secure = "https" in (request.scheme, request.headers.get("X-Scheme"))
    scheme = "https" if is_secure else "http"
    query = request.query_string.decode("latin-1")
    url = f"{scheme}://{request.headers.get('Host', '')}{quote_url(request.path, safe='$&+,/:;=@')}"
    return f"{url}?{query}" if query else url
