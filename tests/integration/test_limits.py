"""Clients that mean harm, or are broken: floods, silence, bytes one at a time, answers that nobody reads.

Next to each, an honest publisher works on, and is not to notice.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from nsqd_py.runtime.logs.daemon_log import CLIENT_BURST
from tests.support import hostile_table
from tests.support.lookup_wire import LookupClient
from tests.support.network import Host
from tests.support.nsqd_process import NsqdProcess, ServerProcess, command_with, wait_until
from tests.support.wire import ERROR, MAGIC, OK, Client, Frame, fin, identify, int32, pub, rdy, sized, sub

TOO_MANY = Frame(ERROR, b"E_TOO_MANY_CONNECTIONS")
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
NOT_FOUND = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
DEADLINE_S = 40.0
WRITE_S = "nsqd_py.net.limits.WRITE_S"
# Clients that do not read are closed after 2 s on an idle machine; a busy one takes ten times as long.
PUSH_DEADLINE_S = 90.0
MB = 1_000_000
STUCK = 20
# What nine of ten publishes of an honest client may take while others misbehave: 0.2 ms alone, on an idle machine.
NEIGHBOUR_LIMIT_S = 0.5

pytestmark = pytest.mark.ours


class Crowd:
    """Plain sockets, that are closed at the end."""

    def __init__(self) -> None:
        self.socks: list[socket.socket] = []

    def connect(self, port: int, source: str = "127.0.0.1", receive_buffer_bytes: int = 0) -> socket.socket:
        sock = socket.socket()
        self.socks.append(sock)
        if receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.settimeout(DEADLINE_S)
        sock.bind((source, 0))
        sock.connect(("127.0.0.1", port))
        return sock

    def connect_path(self, path: Path) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        self.socks.append(sock)
        sock.connect(str(path))
        return sock

    def close(self) -> None:
        for sock in self.socks:
            sock.close()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    crowd = Crowd()
    yield crowd
    crowd.close()


def read_until_end(sock: socket.socket) -> bytes:
    """What comes before the connection is closed in good order."""
    return b"".join(iter(partial(sock.recv, 65536), b""))


def read_all(sock: socket.socket) -> bytes:
    """What comes before the connection is closed or reset."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(65536):
            data += part
    return data


def is_closed(sock: socket.socket) -> bool:
    """Closed by the other side; what it sent before is thrown away."""
    sock.setblocking(False)
    try:
        read_all(sock)
    except BlockingIOError:
        return False
    return True


def rss_bytes(process: ServerProcess) -> int:
    return psutil.Process(process.pid).memory_info().rss


class Neighbour:
    """An honest publisher, with the times that its publishes took.

    A time is the lesser of wall time and nsqd's CPU time, so that it does not depend on other programs.
    """

    def __init__(self, nsqd: NsqdProcess) -> None:
        self._nsqd = nsqd
        self._client = nsqd.connect()
        self._client.pub("honest", b"warm")
        self._times_s: list[float] = []

    def work(self) -> None:
        began_s, began_cpu_s = time.perf_counter(), self._nsqd.loop_cpu_s
        self._client.pub("honest", b"message")
        self._times_s.append(min(time.perf_counter() - began_s, self._nsqd.loop_cpu_s - began_cpu_s))

    @property
    def latency_s(self) -> float:
        """What nine of ten publishes took at most."""
        return sorted(self._times_s)[len(self._times_s) * 9 // 10]


# ---- how many connections


def test_an_address_gets_so_many_connections_and_others_theirs(make_nsqd, crowd):
    nsqd = make_nsqd("--max-connections-per-address=3")
    held = [crowd.connect(port, "127.0.0.2") for port in (nsqd.tcp_port, nsqd.tcp_port, nsqd.http_port)]
    held[2].sendall(PING)
    assert held[2].recv(4096).startswith(b"HTTP/1.1 200 ")
    refused = crowd.connect(nsqd.tcp_port, "127.0.0.2")
    assert read_all(refused) == sized(int32(ERROR) + TOO_MANY.data)
    answer = read_all(crowd.connect(nsqd.http_port, "127.0.0.2"))
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"Connection: close\r\n" in answer and answer.endswith(b'{"message":"TOO_MANY_CONNECTIONS"}')
    nsqd.connect().pub("t", b"from another address")
    held[0].close()

    def comes_in_again():
        again = crowd.connect(nsqd.http_port, "127.0.0.2")
        again.sendall(PING)
        return again.recv(4096).startswith(b"HTTP/1.1 200 ")

    wait_until(comes_in_again, what="a place to be free")


def test_a_flood_is_turned_away_and_the_others_do_not_notice(make_nsqd, crowd):
    nsqd = make_nsqd("--max-connections-per-address=20")
    neighbour = Neighbour(nsqd)
    sources = [f"127.0.0.{host}" for host in range(10, 15)]
    for number in range(1500):
        crowd.connect((nsqd.tcp_port, nsqd.http_port)[number % 2], sources[number % len(sources)])
        if number % 10 == 0:
            neighbour.work()
    kept = len(sources) * 20
    wait_until(
        lambda: sum(map(is_closed, crowd.socks)) == len(crowd.socks) - kept, what="the others to be closed"
    )
    assert neighbour.latency_s < NEIGHBOUR_LIMIT_S
    lines = [line for line in nsqd.log_text().splitlines() if "refused" in line]
    assert len(lines) <= 2 * CLIENT_BURST, lines


def test_who_has_spoken_already_hears_why_it_is_refused(make_nsqd, crowd):
    nsqd = make_nsqd("--max-connections=1")
    with nsqd.connect(client_id="first"):
        nsqd.signal(signal.SIGSTOP)
        late = [crowd.connect(port) for port in (nsqd.tcp_port, nsqd.http_port)]
        late[0].sendall(MAGIC + identify())
        late[1].sendall(PING)
        nsqd.signal(signal.SIGCONT)
        assert read_until_end(late[0]).endswith(TOO_MANY.data)
        assert read_until_end(late[1]).startswith(b"HTTP/1.1 503 ")


def test_all_connections_together_have_a_limit(make_nsqd, crowd):
    nsqd = make_nsqd("--max-connections=4")
    clients = [nsqd.connect(client_id=str(number)) for number in range(4)]
    with Client(nsqd.tcp_port) as late:
        assert late.rest() == [TOO_MANY]
    clients[0].pub("t", b"those who are in work on")
    clients[1].close()
    wait_until(nsqd.is_healthy, what="a place to be free")


def test_the_last_descriptors_are_for_files(tmp_path, crowd):
    few = Host("127.0.0.1", ("sh", "-c", 'ulimit -n 256 && exec "$0" "$@"'))
    with NsqdProcess(tmp_path / "nsqd", host=few).start() as nsqd:
        publisher = nsqd.connect()
        for _ in range(300):
            crowd.connect(nsqd.tcp_port)
        wait_until(lambda: any(map(is_closed, crowd.socks)), what="somebody to be refused")
        for number in range(5):
            publisher.pub(f"topic{number}", b"for which a file is needed")
        assert "Accept() failure" not in nsqd.log_text()


def test_nsqlookupd_has_the_same_limits(make_nsqlookupd, crowd):
    command = command_with("nsqlookupd", {"nsqd_py.net.limits.HANDSHAKE_S": 0.2})
    nsqlookupd = make_nsqlookupd("--max-connections-per-address=1", command=command)
    silent = crowd.connect(nsqlookupd.tcp_port, "127.0.0.2")
    assert (
        read_all(crowd.connect(nsqlookupd.tcp_port, "127.0.0.2")) == b"\x00\x00\x00\x16E_TOO_MANY_CONNECTIONS"
    )
    assert read_all(crowd.connect(nsqlookupd.http_port, "127.0.0.2")).startswith(b"HTTP/1.1 503 ")
    wait_until(lambda: is_closed(silent), what="the silent one to be closed")


# ---- who does not read


def push(socks: list[socket.socket], data: bytes, nsqd: NsqdProcess, neighbour: Neighbour) -> int:
    """Send to all without reading, until nsqd has closed them all; its most memory in the meantime."""
    most_bytes = 0
    deadline_s = time.monotonic() + PUSH_DEADLINE_S
    left = list(socks)
    for sock in left:
        sock.setblocking(False)
    while left:
        assert time.monotonic() < deadline_s, f"{len(left)} are still served"
        for sock in left[:]:
            try:
                sock.send(data)
            except BlockingIOError:
                pass
            except OSError:
                left.remove(sock)
        neighbour.work()
        most_bytes = max(most_bytes, rss_bytes(nsqd))
    return most_bytes


PIPELINES = {
    "failing FINs": ("nsqd.sock", MAGIC + sub("t", "c"), fin(b"0123456789abcdef") * 500),
    "publishes": ("nsqd.sock", MAGIC, pub("t", b"x") * 1000),
    "failing HTTP requests": ("http.sock", b"", NOT_FOUND * 300),
    "HTTP publishes": ("http.sock", b"", POST * 200),
    "statistics": ("http.sock", b"", b"GET /stats?format=json HTTP/1.1\r\nHost: x\r\n\r\n" * 100),
}


@pytest.mark.parametrize("what", PIPELINES)
def test_what_is_kept_for_clients_that_do_not_read_is_bounded(tmp_path, crowd, what):
    # Unix sockets hold little, so that much waits in nsqd itself.
    name, beginning, data = PIPELINES[what]
    command = command_with("nsqd", {WRITE_S: 0.5})
    flags = ("--mem-queue-size=100", "--log-level=info")
    paths = (f"--unix-socket={tmp_path}/nsqd.sock", f"--http-unix-socket={tmp_path}/http.sock")
    with NsqdProcess(tmp_path / "nsqd", *flags, *paths, command=command).start() as nsqd:
        for number in range(30):
            nsqd.create(f"topic_in_the_statistics_{number}")
        neighbour = Neighbour(nsqd)
        before_bytes = rss_bytes(nsqd)
        stuck = [crowd.connect_path(tmp_path / name) for _ in range(STUCK)]
        for sock in stuck:
            sock.sendall(beginning)
        most_bytes = push(stuck, data, nsqd, neighbour)
        assert (most_bytes - before_bytes) / STUCK < 2.5 * MB
        assert neighbour.latency_s < NEIGHBOUR_LIMIT_S


SLOW_READER_ATTEMPTS = 5
WRITE_TIMEOUT_S = 0.6
SLOW_READ_BYTES = 8192


def test_a_client_that_reads_slowly_is_kept(make_nsqd):
    """It takes something more often than the time-out; nsqd's socket has room again after a third of its buffer."""
    nsqd = make_nsqd(command=command_with("nsqd", {WRITE_S: WRITE_TIMEOUT_S}))
    publisher = nsqd.connect()
    for _ in range(4):
        publisher.mpub("t", [b"x" * 50_000] * 50)
    for _ in range(SLOW_READER_ATTEMPTS):
        with socket.socket() as sock:
            left_bytes, longest_pause_s = read_slowly(nsqd, sock, 200 * 50_000)
        if left_bytes <= 0:
            return
        # On a busy machine this program may be the one that stood still: then it says nothing of nsqd.
        assert longest_pause_s > WRITE_TIMEOUT_S / 2, f"it was closed before {left_bytes} bytes"
    pytest.fail(
        f"this program stood still for {longest_pause_s:.1f} s, in the last of {SLOW_READER_ATTEMPTS} attempts"
    )


def read_slowly(nsqd: NsqdProcess, sock: socket.socket, left_bytes: int) -> tuple[int, float]:
    """Read 400 kB/s for three time-outs, then the rest; return what did not come, and the longest pause in between."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    # The system tells nsqd of what was read once it is a segment or two: with those of loopback, once in 0.2 s.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
    sock.settimeout(DEADLINE_S)
    sock.connect(("127.0.0.1", nsqd.tcp_port))
    sock.sendall(MAGIC + sub("t", "c") + rdy(2500))
    began_s = latest_s = time.monotonic()
    longest_pause_s = 0.0
    while left_bytes > 0:
        try:
            received = sock.recv(SLOW_READ_BYTES)
        except ConnectionResetError:
            break
        if not received:
            break
        left_bytes -= len(received)
        now_s = time.monotonic()
        longest_pause_s, latest_s = max(longest_pause_s, now_s - latest_s), now_s
        if now_s < began_s + 3 * WRITE_TIMEOUT_S:
            select.select([], [], [], 0.02)
    return left_bytes, longest_pause_s


# ---- sizes


HUGE = 1 << 30
LARGEST_INTRODUCTION = 1 << 16
DECLARATIONS = {
    "PUB": ("tcp", MAGIC + b"PUB t\n" + int32(HUGE)),
    "MPUB": ("tcp", MAGIC + b"MPUB t\n" + int32(HUGE) + int32(HUGE // 8)),
    "a message of an MPUB": ("tcp", MAGIC + b"MPUB t\n" + int32(HUGE) + int32(1) + int32(HUGE - 8)),
    "DPUB": ("tcp", MAGIC + b"DPUB t 1\n" + int32(HUGE)),
    "IDENTIFY": ("tcp", MAGIC + b"IDENTIFY\n" + int32(LARGEST_INTRODUCTION)),
    "AUTH": ("tcp", MAGIC + b"AUTH\n" + int32(LARGEST_INTRODUCTION)),
    "a body": ("http", b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % HUGE),
    "a chunk": (
        "http",
        b"POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % HUGE,
    ),
    "a body that is not wanted": (
        "http",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % HUGE,
    ),
}
TOO_LARGE = DECLARATIONS | {
    "IDENTIFY": ("tcp", MAGIC + b"IDENTIFY\n" + int32(LARGEST_INTRODUCTION + 1)),
    "AUTH": ("tcp", MAGIC + b"AUTH\n" + int32(LARGEST_INTRODUCTION + 1)),
}


def port_of(nsqd: NsqdProcess, protocol: str) -> int:
    return nsqd.tcp_port if protocol == "tcp" else nsqd.http_port


def test_a_size_that_is_only_declared_takes_no_memory(make_nsqd, crowd):
    nsqd = make_nsqd(f"--max-body-size={HUGE + 8}", f"--max-msg-size={HUGE + 8}")
    Neighbour(nsqd).work()
    before_bytes = rss_bytes(nsqd)
    for protocol, beginning in DECLARATIONS.values():
        for _ in range(10):
            crowd.connect(port_of(nsqd, protocol)).sendall(beginning + sized(b"x") * 200)
    Neighbour(nsqd).work()
    assert rss_bytes(nsqd) - before_bytes < 5 * MB
    assert not any(map(is_closed, crowd.socks))


@pytest.mark.parametrize("what", ["PUB", "a body", "a head"])
def test_incomplete_requests_have_a_limit_together(make_nsqd, crowd, what):
    nsqd = make_nsqd("--mem-queue-bytes=0", f"--max-body-size={MB}")
    head = b"GET /" if what == "a head" else DECLARATIONS[what][1]
    head = head.replace(b"%d" % HUGE, b"%d" % MB).replace(int32(HUGE), int32(MB))
    with nsqd.connect() as small:
        small.send(pub("t", b"xx")[:-1])
        for _ in range(50):
            crowd.connect(nsqd.tcp_port if what == "PUB" else nsqd.http_port).sendall(head + b"x" * (MB - 1))
        wait_until(lambda: sum(map(is_closed, crowd.socks)) in (18, 19))  # the others hold 32 bodies
        small.send(b"x")
        assert small.frame() == OK


def test_a_size_above_the_limit_is_refused_at_once(nsqd, crowd):
    for what, (protocol, beginning) in TOO_LARGE.items():
        sock = crowd.connect(port_of(nsqd, protocol))
        if what == "a body that is not wanted":
            continue  # it is thrown away as it comes
        sock.sendall(beginning + (b"x" * 6 * MB if what == "a chunk" else b""))
        answer = read_all(sock)
        refusals = (b"HTTP/1.1 413 ",) if protocol == "http" else (b"E_BAD_BODY", b"E_BAD_MESSAGE")
        assert answer[0 if protocol == "http" else 8 :].startswith(refusals), what


def test_a_body_in_tiny_chunks_takes_about_its_size(make_nsqd, crowd):
    nsqd = make_nsqd()
    before_bytes = rss_bytes(nsqd)
    sock = crowd.connect(nsqd.http_port)
    sock.sendall(b"POST /mpub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    sock.sendall(b"2\r\nxy\r\n" * 1_000_000)
    wait_until(nsqd.is_healthy)
    assert rss_bytes(nsqd) - before_bytes < 25 * MB
    sock.sendall(b"0\r\n\r\n")
    assert sock.recv(4096).startswith(b"HTTP/1.1 413 ")  # as one message it is too big


def test_large_answers_of_nsqlookupd_that_nobody_reads(make_nsqlookupd, crowd):
    nsqlookupd = make_nsqlookupd()
    with LookupClient(nsqlookupd.tcp_port) as peer:
        peer.introduce()
        peer.register(*(f"{number:064}" for number in range(1000)))
        before_bytes = rss_bytes(nsqlookupd)
        for _ in range(20):
            # 37 MB of answers to what one read brings
            crowd.connect(nsqlookupd.http_port, receive_buffer_bytes=4096).sendall(
                b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n" * 560
            )
        wait_until(nsqlookupd.topics)
        assert rss_bytes(nsqlookupd) - before_bytes < 20 * 4 * MB


def test_long_texts_of_few_nsqds_are_answered_completely(make_nsqlookupd, crowd):
    nsqlookupd = make_nsqlookupd()
    texts = dict.fromkeys(
        ("hostname", "broadcast_address", "version", "topology_zone", "topology_region"), "\x1b" * 1000
    )
    for _ in range(50):
        crowd.connect(nsqlookupd.tcp_port).sendall(
            b"  V1" + hostile_table.identify_nsqd(**texts) + b"REGISTER t\n"
        )
    wait_until(lambda: len(nsqlookupd.lookup("t")) == 50)
    with LookupClient(nsqlookupd.tcp_port) as peer:
        peer.send(hostile_table.identify_nsqd(version="1" * 1001))
        assert peer.read().startswith(b"E_BAD_BODY")


def test_nsqlookupd_takes_no_memory_for_what_is_declared(make_nsqlookupd, crowd):
    nsqlookupd = make_nsqlookupd()
    nsqlookupd.topics()
    before_bytes = rss_bytes(nsqlookupd)
    for _ in range(50):
        crowd.connect(nsqlookupd.tcp_port).sendall(b"  V1IDENTIFY\n" + int32(1 << 20) + b"{")
    nsqlookupd.topics()
    assert rss_bytes(nsqlookupd) - before_bytes < 5 * MB
    refused = crowd.connect(nsqlookupd.tcp_port)
    refused.sendall(b"  V1IDENTIFY\n" + int32((1 << 20) + 1))
    assert read_all(refused)[4:].startswith(b"E_BAD_BODY")
