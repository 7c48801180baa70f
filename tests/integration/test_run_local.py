"""`make run`: nsqlookupd, nsqd and nsqadmin start together, find each other, and stop together."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.network import free_ports
from tests.support.nsqd_process import REPOSITORY, wait_until

pytestmark = pytest.mark.ours

PROGRAMS = ("nsqlookupd", "nsqd", "nsqadmin")


def flags_of(tcp: int, http: int) -> str:
    return f"--tcp-address=127.0.0.1:{tcp} --http-address=127.0.0.1:{http} --log-level=info"


class Local:
    """contrib/run-local.sh on free ports."""

    def __init__(self, directory: Path, admin_http: int = 0) -> None:
        lookupd_tcp, self.lookupd_http, nsqd_tcp, self.nsqd_http, free = free_ports(5)
        self.admin_http = admin_http or free
        (directory / "bin").mkdir()
        for name in PROGRAMS:
            command = directory / "bin" / f"{name}-py"
            command.write_text(f'#!/bin/sh\ncd {REPOSITORY}\nexec {sys.executable} -m nsq_apps.{name} "$@"\n')
            command.chmod(0o755)
        flags = {
            "NSQLOOKUPD_FLAGS": flags_of(lookupd_tcp, self.lookupd_http),
            "NSQD_FLAGS": flags_of(nsqd_tcp, self.nsqd_http),
            "NSQADMIN_FLAGS": f"--http-address=127.0.0.1:{self.admin_http} --poll-interval=250ms",
            "NSQLOOKUPD_TCP_ADDRESS": f"127.0.0.1:{lookupd_tcp}",
            "NSQLOOKUPD_HTTP_ADDRESS": f"127.0.0.1:{self.lookupd_http}",
        }
        self.log = directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [REPOSITORY / "contrib/run-local.sh", directory / "bin", directory / "data"],
                env=os.environ | flags,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def lookup(self, topic: str) -> Any:
        return asked(self.lookupd_http, f"/lookup?topic={topic}")

    def seen(self, topic: str) -> Any:
        """What nsqadmin knows of it."""
        return asked(self.admin_http, f"/api/v2/topics/{topic}")

    def publish(self, topic: str) -> bool:
        return asked(self.nsqd_http, f"/pub?topic={topic}", b"hello") == b"OK"


def asked(port: int, path: str, body: bytes | None = None) -> Any:
    """The answer, as JSON if it is that; None without one."""
    with (
        suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=40) as answer,
    ):
        text = answer.read()
        return text if text == b"OK" else json.loads(text)


@contextmanager
def running(directory: Path, admin_http: int = 0) -> Iterator[Local]:
    if not shutil.which("bash"):
        pytest.skip("contrib/run-local.sh is a script for bash")
    local = Local(directory, admin_http)
    try:
        yield local
    finally:
        if local.process.poll() is None:
            local.process.send_signal(signal.SIGTERM)
            local.process.wait(40)


@pytest.fixture
def local(tmp_path) -> Iterator[Local]:
    with running(tmp_path) as local:
        yield local


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_they_start_find_each_other_and_stop(local, number):
    wait_until(lambda: local.publish("greetings"), 40, "nsqd to take a message")
    found = wait_until(
        lambda: (local.lookup("greetings") or {}).get("producers"), 40, "nsqlookupd to know the topic"
    )
    assert [producer["http_port"] for producer in found] == [local.nsqd_http]
    wait_until(lambda: (local.seen("greetings") or {}).get("depth"), 40, "nsqadmin to see the message")
    pid_file = local.log.parent / "data" / "nsqd.pid"
    assert int(pid_file.read_text()) == process_of(local, "nsqd").pid
    begin = len(local.log.read_text())  # nsqd may have been there before nsqlookupd, and said so
    local.process.send_signal(number)
    assert local.process.wait(40) == 0
    text = local.log.read_text()[begin:]
    assert [text.count(f"{name}: bye") for name in ("NSQ", "NSQLOOKUPD", "NSQADMIN")] == [1, 1, 1]
    assert not re.search("Ended by itself|WARNING|ERROR", text)  # none missed another
    assert local.lookup("greetings") is None
    assert not pid_file.exists()
    assert (local.log.parent / "data" / "nsqadmin-history.db").stat().st_size > 0


def process_of(local: Local, name: str) -> psutil.Process | None:
    children = psutil.Process(local.process.pid).children()
    return next((child for child in children if f"nsq_apps.{name}" in child.cmdline()), None)


def wait_until_old_enough(local: Local) -> None:
    """Until nsqd runs for more than two seconds: one that ends sooner would end again and again, and is not restarted."""
    wait_until(lambda: local.publish("greetings"), 40, "nsqd to take a message")
    wait_until(lambda: local.seen("greetings"), 40, "nsqadmin to see it")
    nsqd = process_of(local, "nsqd")
    wait_until(lambda: time.time() - nsqd.create_time() > 3, what="nsqd to be old enough")


def test_a_program_that_is_killed_is_started_again(local):
    """One that is stopped goes on."""
    wait_until_old_enough(local)
    first = {name: process_of(local, name) for name in PROGRAMS}
    for act in (psutil.Process.suspend, psutil.Process.resume):
        for process in first.values():
            act(process)
        since_s = time.monotonic()
        wait_until(lambda: time.monotonic() - since_s > 0.5, what="nothing to happen")  # noqa: B023
    victim = first["nsqd"]
    victim.kill()
    wait_until(lambda: not victim.is_running() and local.publish("again"), 40, "nsqd to take messages again")
    stats = asked(local.nsqd_http, "/stats?format=json")
    assert {topic["topic_name"]: topic["depth"] for topic in stats["topics"]} == {"greetings": 1, "again": 1}
    wait_until(lambda: (local.lookup("again") or {}).get("producers"), 40, "nsqlookupd to know the new topic")
    assert {name for name in PROGRAMS if process_of(local, name) == first[name]} == {"nsqlookupd", "nsqadmin"}
    text = local.log.read_text()
    assert ": bye" not in text
    assert "A signal ended nsqd (status 137); it is started again." in text
    local.process.send_signal(signal.SIGTERM)
    assert local.process.wait(40) == 0
    assert local.log.read_text().count(": bye") == len(PROGRAMS)


def test_a_port_that_is_taken_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken, running(tmp_path, taken.getsockname()[1]) as local:
        assert local.process.wait(40) == 1
    text = local.log.read_text()
    assert f"listen (127.0.0.1:{local.admin_http}) failed - Address already in use\n" in text
    assert "Ended by itself: nsqadmin (status 1)" in text
    assert local.lookup("greetings") is None
