"""The time until a lost nsqd serves again from its store: `python -m bench.restoring`, which docs/performance.md quotes.

    python -m bench.restoring                    10 GB, of which a tenth is not finished, then 10 GB that are not finished at all
    python -m bench.restoring --gigabytes 1      less
    python -m bench.restoring --only burst       one row; this one is not among those that run by default

An nsqd with a store in a directory gets messages of 16 KB as fast as it takes them. When the store has all of them, and a
base with most (in `burst`: at once, so that much is only in rounds), the nsqd is killed, and its disk is gone. Another one
starts with an empty data path and `--restore-from`, and reads the same objects from a server of S3 that sends 125 MB/s
(`object_server.py`). Measured from its start: /ping answers; the first message
is delivered; its greatest memory until then, and how much the server has sent.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.client import connect, expect_ok, request
from bench.server import OURS, free_ports

_BODY_BYTES = 16_000
_BATCH = 64
_TOPIC, _CHANNEL = "restoring", "channel"
_RATE_MB_S = 125.0
_DEADLINE_S = 400.0
_POLL_S = 0.01
_PUBLISHERS = 2
# A base is due after 64 MiB.
_QUIET_BYTES = 100e6
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


class Row(NamedTuple):
    """What is in the store.

    unfinished  the part of the messages that no channel has finished; the others are retained
    is_quiet    True if the store has had a base since the last message
    """

    unfinished: float
    is_quiet: bool = True


_ROWS = {"retained": Row(0.1), "unfinished": Row(1.0), "burst": Row(1.0, is_quiet=False)}
_BY_DEFAULT = ("retained", "unfinished")


class Process:
    """An nsqd with a data path of its own; ended by `kill`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.tcp_port, self.http_port = free_ports(2)
        self.directory = directory
        directory.mkdir()
        words = [
            *OURS,
            f"--tcp-address=127.0.0.1:{self.tcp_port}",
            f"--http-address=127.0.0.1:{self.http_port}",
            "--broadcast-address=127.0.0.1",
            f"--data-path={directory}",
            *flags,
        ]
        self._log_path = directory.with_suffix(".log")
        self.began_s = time.monotonic()
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | _CREDENTIALS
            )

    def post(self, path: str) -> None:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.http_port}{path}", method="POST")
        urllib.request.urlopen(asked, timeout=60).close()

    def statistics(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.http_port}/stats?format=json&topic={_TOPIC}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def is_alive(self) -> bool:
        """True if /ping answers. Raises RuntimeError if the process has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(self._log_path.read_text()[-2000:])
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/ping", timeout=60).close()
        except OSError:
            return False
        return True

    def peak_rss_mb(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1000

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return when it is true. Raises TimeoutError."""
    ends_s = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > ends_s:
            raise TimeoutError(what)
        time.sleep(_POLL_S)


# ---- the store


def publish(nsqd: Process, size_bytes: int) -> None:
    """Publish messages of this size in all, each of which has other bytes."""
    socks = [connect(nsqd.tcp_port) for _ in range(_PUBLISHERS)]
    block = os.urandom(_BODY_BYTES * _PUBLISHERS)
    commands = [request(_TOPIC, block[at * 5000 :][:_BODY_BYTES], _BATCH) for at in range(_PUBLISHERS)]
    batch_count = max(1, size_bytes // (_BATCH * _BODY_BYTES))
    for number in range(batch_count):
        sock = socks[number % _PUBLISHERS]
        if number >= _PUBLISHERS:
            expect_ok(sock)
        sock.sendall(commands[number % _PUBLISHERS])
    for sock in socks[:batch_count]:
        expect_ok(sock)
        sock.close()


def has_all(nsqd: Process) -> bool:
    found = nsqd.statistics()["store"]
    return bool(found["state"] == "storing" and not found["lag_ms"] and not found["lag_bytes"])


def round_bytes(store: Path) -> int:
    """Return the size of the rounds that a restoration reads."""
    base = json.loads((store / "head.json").read_text())["base"]
    return sum(path.stat().st_size for path in (store / "rounds").glob("[!.]*") if int(path.name, 16) >= base)


def make_store(folder: Path, size_bytes: int, row: Row) -> Path:
    """Write a store; return its directory."""
    store = folder / "store"
    flags = (f"--store=file://{store}", f"--retention-bytes={2 * size_bytes}", "--sync-every=100000")
    nsqd = Process(folder / "lost", *flags, "--sync-timeout=60s")
    try:
        wait_until(nsqd.is_alive, "nsqd")
        nsqd.post(f"/topic/create?topic={_TOPIC}")
        nsqd.post(f"/channel/create?topic={_TOPIC}&channel={_CHANNEL}")
        if row.unfinished < 1:
            publish(nsqd, int(size_bytes * (1 - row.unfinished)))
            nsqd.post(f"/channel/empty?topic={_TOPIC}&channel={_CHANNEL}")
        publish(nsqd, int(size_bytes * row.unfinished))

        wait_until(lambda: has_all(nsqd), "the store")
        if row.is_quiet:
            wait_until(lambda: round_bytes(store) < _QUIET_BYTES, "a base")
    finally:
        nsqd.kill()
    shutil.rmtree(nsqd.directory)
    return store


# ---- the restoration


def first_message_s(nsqd: Process) -> float:
    """Return when a message was delivered."""
    with connect(nsqd.tcp_port, heartbeat_ms=60_000) as sock:
        sock.settimeout(_DEADLINE_S)
        sock.sendall(f"SUB {_TOPIC} {_CHANNEL}\n".encode())
        expect_ok(sock)
        sock.sendall(b"RDY 1\n")
        received = 0
        while received < _BODY_BYTES:
            received += len(sock.recv(65536))
    return time.monotonic()


def sent_mb(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/b/-/sent", timeout=60) as answer:
        return int(answer.read()) / 1e6


def measure(gigabytes: float, name: str) -> None:
    """Print a row."""
    with tempfile.TemporaryDirectory(prefix="nsqd-bench-restoring-") as path:
        folder = Path(path)
        began_s = time.monotonic()
        store = make_store(folder, int(gigabytes * 1e9), _ROWS[name])
        made_s = time.monotonic() - began_s
        size_gb = sum(file.stat().st_size for file in store.rglob("*") if file.is_file()) / 1e9
        words = [sys.executable, "-m", "bench.object_server", str(store), str(_RATE_MB_S)]
        server = subprocess.Popen(words, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            url = "s3://bucket"
            nsqd = Process(
                folder / "new",
                f"--store={url}",
                f"--restore-from={url}",
                f"--store-endpoint=http://127.0.0.1:{port}",
                f"--retention-bytes={int(2 * gigabytes * 1e9)}",
            )
            try:
                wait_until(nsqd.is_alive, "the restoration")
                ping_s = time.monotonic() - nsqd.began_s
                sent = sent_mb(port)
                message_s = first_message_s(nsqd) - nsqd.began_s
                peak_mb = nsqd.peak_rss_mb()
                depth = nsqd.statistics()["topics"][0]["channels"][0]["depth"]
            finally:
                nsqd.kill()
        finally:
            server.kill()
            server.wait()
    print(
        f"{name:12} {gigabytes:g} GB (store of {size_gb:.1f} GB, made in {made_s:.0f} s): /ping after {ping_s:.1f} s, first "
        f"message after {message_s:.1f} s; {depth:,} messages to deliver, {sent:.0f} MB were sent, peak RSS {peak_mb:.0f} MB",
        flush=True,
    )


def main() -> None:
    """Measure the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--only", choices=sorted(_ROWS))
    options = parser.parse_args()
    names = [options.only] if options.only else _BY_DEFAULT
    for name in names:
        measure(options.gigabytes, name)


if __name__ == "__main__":
    main()
