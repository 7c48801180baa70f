"""The connection of an nsqd to nsqlookupd."""

from __future__ import annotations

import socket
from typing import Any

import gevent

from nsqd_py.net.loop_iteration import LoopIteration
from nsqlookupd_py.connection import Directory, PeerConnection
from nsqlookupd_py.registry import Registry
from tests.unit.fakes import FakeLog

_BODY = b'{"broadcast_address": "host", "tcp_port": 1, "http_port": 2, "version": "1"}'


def test_all_names_of_an_ephemeral_topic_go_if_the_connection_closes_in_the_middle_of_its_unregister() -> (
    None
):
    registry, hub, log = Registry(0, 0), gevent.get_hub(), FakeLog()
    ours, theirs = socket.socketpair()
    iteration: Any = LoopIteration(hub, log)  # type: ignore[arg-type]
    connection = PeerConnection(ours, "peer", hub.loop, iteration, log, Directory(registry, lambda: 0))  # type: ignore[arg-type]
    connection.on_data(b"  V1IDENTIFY\n" + len(_BODY).to_bytes(4, "big") + _BODY)
    peer = connection.identified
    assert peer is not None
    for number in range(5):
        registry.register(peer, "t#ephemeral", f"c{number}")
    connection.on_data(b"UNREGISTER t#ephemeral\n")
    assert registry.names
    connection.close("lost")
    theirs.close()
    with gevent.Timeout(40):
        while registry.names:
            gevent.sleep(0)
    assert not registry.registrations and not registry.unused
