"""Clients that ask for long answers and never read them."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack

import psutil
import pytest

from tests.support.nsqd_process import NsqdProcess

pytestmark = pytest.mark.ours

MB = 1024 * 1024
READERS = 60
# What the process may gain: the unread answers of one address, those at work, and what joining them takes.
MOST_GAINED_MB = 100


def rss_mb(nsqd: NsqdProcess) -> float:
    return float(psutil.Process(nsqd.pid).memory_info().rss) / MB


def ask_and_never_read(nsqd: NsqdProcess, path: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", nsqd.http_port))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 4)
    return client


@pytest.mark.parametrize(
    "path", ["/topic/read?topic=t&seq=0&max_bytes=99999999", "/channel/peek?topic=t&channel=c&n=1000"]
)
def test_answers_that_nobody_reads_take_bounded_memory(make_nsqd, path):
    nsqd = make_nsqd("--mem-queue-size=0")
    nsqd.post("/topic/create?topic=other")
    nsqd.post("/topic/create?topic=t")
    nsqd.post("/channel/create?topic=t&channel=c")
    with nsqd.connect() as client:
        for _ in range(24):
            client.pub("t", bytes(MB - 100))
    before = rss_mb(nsqd)
    with ExitStack() as stack:
        for _ in range(READERS):
            stack.enter_context(ask_and_never_read(nsqd, path))
        worst = 0.0
        for _ in range(40):
            assert nsqd.http("POST", "/pub?topic=other", b"x").status == 200
            worst = max(worst, rss_mb(nsqd))
    print(f"{path}: from {before:.0f} to {worst:.0f} MB")
    assert worst - before < MOST_GAINED_MB


def test_a_client_that_hangs_up_before_its_next_request_is_handled_is_no_bug(make_nsqd):
    nsqd = make_nsqd()
    nsqd.post("/topic/create?topic=t")
    with nsqd.connect() as client:
        for _ in range(8):
            client.pub("t", bytes(MB // 2))
    for _ in range(5):
        client = ask_and_never_read(nsqd, "/topic/read?topic=t&seq=0&max_bytes=3000000")
        # It gets the beginning of the first answer, and its next request waits.
        assert client.recv(1, socket.MSG_PEEK)
        time.sleep(0.2)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    nsqd.stop()
    assert "internal error" not in nsqd.log_text()
