"""The longest steps of nsqd's event loop, in processor time, while many clients do the same thing at once.

    python -m bench.loop_steps                  2,000 consumers of a channel that leave; 500 requests on 50 connections
    python -m bench.loop_steps --count 500      as many of each, the requests in tens

While one step runs, no other client is served: docs/security.md says how long it may take. The numbers are processor time of
the loop's thread, so that a busy machine does not change them; the clients are processes of their own. Collections of
garbage are steps too.
"""

import argparse
import resource
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

from bench.server import Nsqd

_REPORT_EVERY_S = 0.25
_SETTLE_S = 1.5
_LONGEST = 5
_A_CONNECTION = 10  # requests that come together
_FIRST, _LAST = 2, -2  # priorities of libev


def serve(path: Path, words: list[str]) -> None:
    """Run nsqd in this process, and add a line to `path` for each report: its time, and its longest steps in ms."""
    import gevent
    import gevent.hub

    began_ns = 0
    steps_ns: list[int] = []

    def begin() -> None:
        nonlocal began_ns
        began_ns = time.thread_time_ns()

    def end() -> None:
        if began_ns:
            steps_ns.append(time.thread_time_ns() - began_ns)

    def report() -> None:
        while True:
            gevent.sleep(_REPORT_EVERY_S)
            longest = sorted(steps_ns, reverse=True)[:_LONGEST]
            steps_ns.clear()
            with path.open("a") as file:
                print(time.time(), *(f"{step_ns / 1e6:.1f}" for step_ns in longest), file=file)

    # libev calls the first watcher when it has waited, before all others, and the second one before it waits.
    loop = gevent.get_hub().loop
    watchers = loop.check(priority=_FIRST), loop.prepare(priority=_LAST)
    for watcher, call in zip(watchers, (begin, end), strict=True):
        watcher.start(call)
    gevent.spawn(report)
    sys.argv[1:] = words
    runpy.run_module("nsq_apps.nsqd", run_name="__main__")


def subscribe(port: int, count: int) -> None:
    """Connect consumers, say so, and wait to be killed: the kernel then closes all connections at once."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 100, 65_536),) * 2)
    consumers = []
    for _ in range(count):
        consumer = socket.create_connection(("127.0.0.1", port))
        consumer.sendall(b"  V2SUB t c\nRDY 1\n")
        consumers.append(consumer)
    for consumer in consumers:
        consumer.recv(100)
    _stand_ready()


def request(port: int, count: int) -> None:
    """Connect, wait for a line of input, and send all requests at once."""
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(count // _A_CONNECTION)]
    print("ready", flush=True)
    sys.stdin.readline()
    for client in clients:
        client.sendall(b"GET /stats?format=json HTTP/1.1\r\nHost: x\r\n\r\n" * _A_CONNECTION)
    _stand_ready()


def _stand_ready() -> None:
    print("ready", flush=True)
    sys.stdin.read()


def longest_after(path: Path, since_s: float) -> list[float]:
    """Return the longest steps in ms that were reported since then."""
    rows = [[float(word) for word in line.split()] for line in path.read_text().splitlines()]
    found = [steps for when, *steps in rows if when > since_s]
    return sorted(chain.from_iterable(found), reverse=True)[:_LONGEST]


def _measure(
    name: str, way: str, count: int, act: Callable[["subprocess.Popen[bytes]"], None], steps: Path, nsqd: Nsqd
) -> None:
    port = nsqd.tcp_port if way == "subscribe" else nsqd.http_port
    words = [sys.executable, "-m", __spec__.name, f"--{way}={port}", f"--count={count}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as clients:
        try:
            assert clients.stdout is not None
            clients.stdout.readline()
            time.sleep(_SETTLE_S)
            began_s = time.time()
            act(clients)
            time.sleep(_SETTLE_S + 2)
        finally:
            clients.kill()
    print(f"{name:60}", *(f"{step:6.1f}" for step in longest_after(steps, began_s)), "ms")


def _send_line(clients: "subprocess.Popen[bytes]") -> None:
    assert clients.stdin is not None
    clients.stdin.write(b"\n")
    clients.stdin.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.loop_steps", description="Measure the longest steps of nsqd's event loop."
    )
    parser.add_argument("--count", type=int, default=0, help="clients and requests (default: 2000, and 500)")
    for hidden in ("--serve", "--subscribe", "--request"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options, words = parser.parse_known_args()
    if options.serve:
        serve(Path(options.serve), words)
    elif options.subscribe:
        subscribe(int(options.subscribe), options.count)
    elif options.request:
        request(int(options.request), options.count)
    else:
        _measure_all(options.count)


def _measure_all(count: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # nsqd has it too
    with tempfile.TemporaryDirectory() as directory:
        steps = Path(directory) / "steps"
        command = [sys.executable, "-m", __spec__.name, f"--serve={steps}", "--log-level=error"]
        with Nsqd(command) as nsqd:
            consumers, requests = count or 2000, count or 500
            leave = f"{consumers} consumers of a channel leave at once"
            _measure(leave, "subscribe", consumers, lambda clients: clients.kill(), steps, nsqd)
            ask = f"{requests} requests of {requests // _A_CONNECTION} connections come at once"
            _measure(ask, "request", requests, _send_line, steps, nsqd)


if __name__ == "__main__":
    main()
