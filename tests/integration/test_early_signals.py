"""SIGHUP and SIGUSR1 that arrive while a program still imports its modules take effect when it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.nsqd_process import REPOSITORY, wait_until

pytestmark = pytest.mark.ours

# Runs a command that sends itself a signal when it begins to import a module.
SCRIPT = """
import os, runpy, sys

module, number = sys.argv.pop(1), int(sys.argv.pop(1))

class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Sender())
runpy.run_module("nsq_apps", run_name="__main__")
"""
PORTS = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")
NSQADMIN_FLAGS = ("--http-address=127.0.0.1:0", "--lookupd-http-address=127.0.0.1:1")
# The first module that a command imports, and one when most of them are there.
MODULES = ("nsqd_py.settings.declaration", "gevent")

modules = pytest.mark.parametrize("module", MODULES)


@contextmanager
def starting(log: Path, command: str, module: str, number: signal.Signals, *flags: str) -> Iterator[subprocess.Popen]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, module, str(int(number)), command, *flags],
            cwd=REPOSITORY,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@modules
def test_a_drain_that_is_asked_for_early_happens(tmp_path: Path, module: str) -> None:
    log = tmp_path / "log"
    with starting(log, "nsqd", module, signal.SIGUSR1, f"--data-path={tmp_path}", *PORTS) as process:
        assert process.wait(40) == 0, log.read_text()
    text = log.read_text()
    assert text.index("TCP: listening") < text.index("NSQ: draining") < text.index("NSQ: drained")


@modules
@pytest.mark.parametrize(
    ("command", "flags", "reloaded"),
    [
        ("nsqd", PORTS, "NSQ: reloading"),
        ("nsqlookupd", PORTS, "NSQLOOKUPD: reloading"),
        ("nsqadmin", NSQADMIN_FLAGS, "NSQADMIN: reloading"),
    ],
)
def test_a_reload_that_is_asked_for_early_happens(
    tmp_path: Path, module: str, command: str, flags: tuple[str, ...], reloaded: str
) -> None:
    log = tmp_path / "log"
    if command == "nsqd":
        flags = (*flags, f"--data-path={tmp_path}")
    with starting(log, command, module, signal.SIGHUP, *flags) as process:
        wait_until(lambda: process.poll() is not None or reloaded in log.read_text(), 40, "the reload")
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
    assert log.read_text().count(reloaded) == 1


@modules
def test_nsq_to_file_survives_an_early_reopen(tmp_path: Path, module: str) -> None:
    log = tmp_path / "log"
    flags = ("--topic=orders", "--nsqd-tcp-address=127.0.0.1:1", f"--output-dir={tmp_path}")
    with starting(log, "nsq_to_file", module, signal.SIGHUP, *flags) as process:
        wait_until(lambda: process.poll() is not None or "127.0.0.1:1" in log.read_text(), 40, "a connection to fail")
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0


def test_a_signal_ends_a_check_of_data(tmp_path: Path) -> None:
    """--check-data reloads nothing: a terminal that closes ends it."""
    module = "nsqd_py.fsck.command"
    with starting(tmp_path / "log", "nsqd", module, signal.SIGHUP, f"--check-data={tmp_path}") as process:
        assert process.wait(40) == -signal.SIGHUP


def test_a_child_that_is_started_gets_all_signals() -> None:
    """`release` leaves nothing blocked."""
    script = (
        "from nsqd_py.runtime.command import *; import signal\n"
        "begin(RELOAD_AND_DRAIN); print(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))\n"
        "unblock_signals(); print(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["2", "0"], done.stderr
