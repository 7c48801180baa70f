"""`make run`: nsqlookupd and nsqd start together, find each other, and stop together."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.nsqd_process import REPOSITORY, wait_until

pytestmark = pytest.mark.ours


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Local:
    """contrib/run-local.sh on free ports."""

    def __init__(self, directory: Path) -> None:
        lookupd_tcp, self.lookupd_http, nsqd_tcp, self.nsqd_http = free_ports(4)
        (directory / "bin").mkdir()
        for name in ("nsqd", "nsqlookupd"):
            command = directory / "bin" / f"{name}-py"
            command.write_text(f'#!/bin/sh\ncd {REPOSITORY}\nexec {sys.executable} -m apps.{name} "$@"\n')
            command.chmod(0o755)
        flags = {
            "NSQLOOKUPD_FLAGS": f"--tcp-address=127.0.0.1:{lookupd_tcp} --http-address=127.0.0.1:{self.lookupd_http}",
            "NSQD_FLAGS": f"--tcp-address=127.0.0.1:{nsqd_tcp} --http-address=127.0.0.1:{self.nsqd_http}",
            "NSQLOOKUPD_TCP_ADDRESS": f"127.0.0.1:{lookupd_tcp}",
        }
        self.log = directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [REPOSITORY / "contrib/run-local.sh", directory / "bin", directory / "data"],
                env=os.environ | flags, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def lookup(self, topic: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.lookupd_http}/lookup?topic={topic}", timeout=5) as got:
                return json.loads(got.read())
        except OSError:
            return None

    def publish(self, topic: str) -> bool:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{self.nsqd_http}/pub?topic={topic}", b"hello")
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.read() == b"OK"
        except OSError:
            return False


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    if not shutil.which("bash"):
        pytest.skip("contrib/run-local.sh is a script for bash")
    local = Local(tmp_path)
    yield local
    if local.process.poll() is None:
        local.process.send_signal(signal.SIGTERM)
        local.process.wait(20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_they_start_find_each_other_and_stop(local: Local, number: signal.Signals) -> None:
    wait_until(lambda: local.publish("greetings"), 20, "nsqd to take a message")
    found = wait_until(lambda: (local.lookup("greetings") or {}).get("producers"), 20, "nsqlookupd to know the topic")
    assert [producer["http_port"] for producer in found] == [local.nsqd_http]
    local.process.send_signal(number)
    assert local.process.wait(20) == 0
    text = local.log.read_text()
    assert "NSQ: bye" in text
    assert "NSQLOOKUPD: bye" in text
    assert local.lookup("greetings") is None


def test_when_one_ends_so_does_the_other(local: Local) -> None:
    wait_until(lambda: local.publish("greetings"), 20, "nsqd to take a message")
    children = psutil.Process(local.process.pid).children()
    (nsqlookupd,) = [child for child in children if "apps.nsqlookupd" in child.cmdline()]
    nsqlookupd.kill()
    assert local.process.wait(20) == 128 + signal.SIGKILL
    assert "NSQ: bye" in local.log.read_text()
