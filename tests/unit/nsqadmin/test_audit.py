"""Notifications of actions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gevent
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from nsqadmin_py.audit import AuditLog
from nsqadmin_py.audit_trail import AuditEntry
from nsqadmin_py.history.file import HistoryFile
from nsqadmin_py.options import NSQADMIN
from nsqadmin_py.web.access import AccessRights


def test_a_notification_that_cannot_be_sent_does_not_end_the_others() -> None:
    errors: list[object] = []
    log: Any = SimpleNamespace(info=print, error=lambda *line: errors.append(line))
    log.of_clients = log
    options: Any = NSQADMIN.read(["--nsqd-http-address=127.0.0.1:1", "--notification-http-endpoint=http://["])
    audit_log = AuditLog(options, log, AccessRights(options, None), HistoryFile("", log))
    request = Request(EnvironBuilder(environ_base={"REMOTE_ADDR": "127.0.0.1"}).get_environ())
    for number in (1, 2):
        audit_log.notify(request, "create_topic", AuditEntry(1.0, "create", topic="t"))
        with gevent.Timeout(40):
            while len(errors) < number:
                gevent.sleep(0.001)
    audit_log.close()
