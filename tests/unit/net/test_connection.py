"""Requests that a greenlet handles."""

from __future__ import annotations

import socket
from typing import Any

import gevent

from nsqd_py.net.http.connection import HttpConnection
from nsqd_py.net.http.router import Access, Route, Router
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.runtime.logs import Log
from nsqlookupd_py.http import LookupApi
from nsqlookupd_py.registry import Registry


def test_a_bug_in_the_answer_to_a_request_ends_its_connection() -> None:
    hub, log, no_hosts = gevent.get_hub(), Log("[test] "), None
    api = LookupApi(Registry(0, 0), lambda: 0, log, no_hosts, requires_tls=False)  # type: ignore[arg-type]
    broken: Any = Route("POST", "/x", lambda _: None, Access.STATISTICS)  # type: ignore[arg-type, return-value]
    ours, theirs = socket.socketpair()
    connection = HttpConnection(ours, "peer", hub.loop, LoopIteration(hub, log), log, api, Router([broken]))  # type: ignore[var-annotated]
    connection.on_data(b"POST /x HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
    with gevent.Timeout(40):
        while not connection.closed:
            gevent.sleep(0)
    theirs.close()
