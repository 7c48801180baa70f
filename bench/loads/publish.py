"""Publishing to any server of `bench/peers`: throughput, latency at a fixed rate, memory of a backlog, and start-up."""

import time
from collections.abc import Callable
from contextlib import suppress

from bench import procfs
from bench.peers.protocol import PublisherProtocol
from bench.peers.setups import SETUPS, protocol_of
from bench.percentiles import percentile, summary_ms
from bench.publishing import publish, topic_names
from bench.run import Amount, Endpoint, LoadError, Run
from bench.workload import Publishing

_SETTLE_S = 1.0
_STARTS_WITHIN_S = 120.0
_TRY_AGAIN_AFTER_S = 0.005


def throughput(endpoint: Endpoint, amount: Amount) -> Run:
    """Return messages a second that a closed loop publishes."""
    publishing = Publishing.from_environment()
    watch, published = publish(
        endpoint.tcp_port, endpoint.pid, publishing.setup, publishing.workload, seconds=amount.seconds
    )
    return watch.rate(
        published.messages,
        server_cpu_us=watch.server_cpu_s / published.messages * 1e6,
        generator_cores=watch.client_cpu_s / watch.elapsed_s,
        server_cores=watch.server_cpu_s / watch.elapsed_s,
        first_messages_s=published.warm_up_s,
    )


def latency(endpoint: Endpoint, amount: Amount) -> Run:
    """Return the 99th percentile of the time from the instant at which a publish should leave to its answer, in ms."""
    publishing = Publishing.from_environment()
    watch, published = publish(
        endpoint.tcp_port, endpoint.pid, publishing.setup, publishing.workload, seconds=amount.seconds
    )
    summary = summary_ms(published.latencies_ns)
    return watch.run(
        summary["p99_ms"],
        published.messages,
        **summary,
        generator_late_p99_ms=percentile(sorted(published.lateness_ns), 0.99) / 1e6,
        server_cpu_us=watch.server_cpu_s / published.messages * 1e6,
    )


def backlog(endpoint: Endpoint, amount: Amount) -> Run:
    """Return the server's resident memory in MB while `amount.messages` wait."""
    publishing = Publishing.from_environment()
    empty_bytes = procfs.rss_bytes(endpoint.pid)
    watch, published = publish(
        endpoint.tcp_port, endpoint.pid, publishing.setup, publishing.workload, messages=amount.messages
    )
    time.sleep(_SETTLE_S)
    rss_bytes = procfs.rss_bytes(endpoint.pid)
    return watch.run(
        rss_bytes / 1e6,
        published.messages,
        empty_mb=empty_bytes / 1e6,
        bytes_per_message=(rss_bytes - empty_bytes) / published.messages,
    )


def start_up(endpoint: Endpoint, amount: Amount) -> Run:
    """Return the seconds from a start after SIGKILL, with a backlog of `amount.messages`, to the first answer."""
    publishing = Publishing.from_environment()
    protocol = protocol_of(SETUPS[publishing.setup])
    watch, published = publish(
        endpoint.tcp_port, endpoint.pid, publishing.setup, publishing.workload, messages=amount.messages
    )
    time.sleep(_SETTLE_S)
    server = endpoint.restart()
    watch.turn_to(server)
    _wait_for(lambda: _publish_one(protocol, server.tcp_port))
    watch.stop()
    return watch.run(watch.elapsed_s, published.messages, rss_mb=procfs.rss_bytes(server.pid) / 1e6)


def _wait_for(succeeds: Callable[[], None]) -> None:
    """Call it until it raises no OSError and no LoadError. Raises the error after `_STARTS_WITHIN_S`."""
    deadline_s = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline_s:
        with suppress(OSError, LoadError):
            succeeds()
            return
        time.sleep(_TRY_AGAIN_AFTER_S)
    succeeds()


def _publish_one(protocol: type[PublisherProtocol], port: int) -> None:
    counter, answers = protocol.counter(), protocol.answers(1)
    with protocol.connect(port) as sock:
        sock.sendall(protocol.request(sock, topic_names(1)[0], b"x", 1))
        while answers > 0:
            data = sock.recv(65536)
            if not data:
                raise LoadError("the server closed the connection")
            answers -= counter.feed(data)
