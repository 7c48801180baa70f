"""What a statsd receives."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.nsqd_process import MakeNsqd, NsqdProcess

DEADLINE_S = 40.0
PACKET_BYTES = 200


class Sink:
    """A statsd that keeps what it receives."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def receive_until(self, pattern: str) -> str:
        """All lines since this was last asked, when one of them matches."""
        self._socket.settimeout(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        text = ""
        while not re.search(pattern, text, re.MULTILINE):
            assert time.monotonic() < deadline, f"no {pattern!r} in\n{text}"
            packet = self._socket.recv(65536)
            self.packets.append(packet)
            text += packet.decode()
        return text

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.close()


def start(make_nsqd: MakeNsqd, sink: Sink, *flags: str) -> NsqdProcess:
    return make_nsqd(f"--statsd-address={sink.address}", f"--statsd-udp-packet-size={PACKET_BYTES}", *flags)


def test_counters_gauges_and_memory_arrive(make_nsqd, sink):
    # Go's nsqd needs more than the second that it leaves unused.
    nsqd = start(make_nsqd, sink, "--statsd-interval=1100ms", "--statsd-prefix=a.%s.b")
    nsqd.create("t", "c")
    nsqd.create("e#ephemeral", "c")
    with nsqd.connect() as client:
        client.pub("t", b"1", b"22")
        prefix = f"a.127_0_0_1_{nsqd.http_port}.b."
        text = sink.receive_until(
            rf"^{re.escape(prefix)}topic\.t\.message_count:2\|c$[^$]*mem\.gc_runs:\d+\|c$"
        )
        lines = text.splitlines()
        assert all(line.startswith(prefix) for line in lines)
        for line in (
            "topic.t.message_bytes:3|c",
            "topic.t.channel.c.depth:2|g",
            "topic.t.channel.c.message_count:2|c",
            "topic.e#ephemeral.channel.c.clients:0|g",
        ):
            assert prefix + line in lines
        assert any(
            re.fullmatch(rf"{re.escape(prefix)}mem\.heap_in_use_bytes:\d{{6,}}\|g", line) for line in lines
        )
        client.pub("t", b"333")
        sink.receive_until(rf"^{re.escape(prefix)}topic\.t\.message_count:1\|c$")
    assert all(packet.endswith(b"\n") and len(packet) <= PACKET_BYTES for packet in sink.packets)
    assert max(map(len, sink.packets)) > PACKET_BYTES - 60
    assert f"STATSD: pushing stats to {sink.address}" in nsqd.log_text()


def test_what_is_not_wanted_is_left_out(make_nsqd, sink):
    nsqd = start(
        make_nsqd,
        sink,
        "--statsd-interval=1100ms",
        "--statsd-mem-stats=false",
        "--statsd-exclude-ephemeral",
        "--statsd-prefix=",
    )
    nsqd.create("t", "c", "d#ephemeral")
    nsqd.create("e#ephemeral", "c")
    text = sink.receive_until(r"^topic\.t\.channel\.c\.clients:0\|g$")
    text += sink.receive_until(r"^topic\.t\.channel\.c\.clients:0\|g$")
    assert "ephemeral" not in text
    assert "mem." not in text
