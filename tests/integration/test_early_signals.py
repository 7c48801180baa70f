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
from tests.support.sweeps import sweep
from tests.support.tool_process import run_script

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
# The first module that a command imports, and one when most of them are there.
MODULES = ("nsqd_py.settings.declaration", "gevent")

modules = pytest.mark.parametrize("module", MODULES)


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "log"


@contextmanager
def starting(
    log: Path, command: str, module: str, number: signal.Signals, *flags: str
) -> Iterator[subprocess.Popen]:
    words = [sys.executable, "-c", SCRIPT, module, str(int(number)), command, *flags]
    with (
        log.open("wb") as output,
        subprocess.Popen(words, cwd=REPOSITORY, stdout=output, stderr=output) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def reloads(log: Path, command: str, module: str, sign: str, *flags: str) -> None:
    """A SIGHUP at that module does not end it: its log says this, and it goes on until it is told to stop."""
    with starting(log, command, module, signal.SIGHUP, *flags) as process:
        wait_until(lambda: process.poll() is not None or sign in log.read_text(), what=sign)
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0


@modules
def test_a_drain_that_is_asked_for_early_happens(log, tmp_path, module):
    with starting(log, "nsqd", module, signal.SIGUSR1, f"--data-path={tmp_path}", *PORTS) as process:
        assert process.wait(40) == 0, log.read_text()
    text = log.read_text()
    assert text.index("TCP: listening") < text.index("NSQ: draining") < text.index("NSQ: drained")


RELOADS = {
    "nsqd": (*PORTS, "--data-path={}"),
    "nsqlookupd": PORTS,
    "nsqadmin": ("--http-address=127.0.0.1:0", "--lookupd-http-address=127.0.0.1:1"),
}


@pytest.mark.parametrize(("command", "module"), sweep(RELOADS, MODULES))
def test_a_reload_that_is_asked_for_early_happens(log, tmp_path, module, command):
    sign = f"{command.upper().replace('NSQD', 'NSQ')}: reloading"
    reloads(log, command, module, sign, *(flag.format(tmp_path) for flag in RELOADS[command]))
    assert log.read_text().count(sign) == 1


@modules
def test_nsq_to_file_survives_an_early_reopen(log, tmp_path, module):
    flags = ("--topic=orders", "--nsqd-tcp-address=127.0.0.1:1", f"--output-dir={tmp_path}")
    reloads(log, "nsq_to_file", module, "127.0.0.1:1", *flags)


def test_a_signal_ends_a_check_of_data(log, tmp_path):
    """--check-data reloads nothing: a terminal that closes ends it."""
    with starting(log, "nsqd", "nsqd_py.fsck.command", signal.SIGHUP, f"--check-data={tmp_path}") as process:
        assert process.wait(40) == -signal.SIGHUP


def test_a_child_that_is_started_gets_all_signals():
    """`release` leaves nothing blocked."""
    done = run_script("""
from nsqd_py.runtime.command import *; import signal
begin(RELOAD_AND_DRAIN); print(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
unblock_signals(); print(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
""")
    assert done.stdout.split() == ["2", "0"], done.stderr


@pytest.mark.parametrize("module", ["nsqd_py.settings.declaration", "gevent", "click"])
@pytest.mark.parametrize("command", ["nsqd", "nsqlookupd", "nsqadmin", "nsq_to_file", "nsq_tail", "nsq_stat"])
def test_an_early_interrupt_ends_a_start_without_a_traceback(log, command, module):
    flags = {
        "nsqadmin": ("--lookupd-http-address=127.0.0.1:1", "--http-address=127.0.0.1:0"),
        "nsq_to_file": ("--topic=t", "--nsqd-tcp-address=127.0.0.1:1"),
        "nsq_tail": ("--topic=t", "--nsqd-tcp-address=127.0.0.1:1"),
        "nsq_stat": ("--nsqd-http-address=127.0.0.1:1",),
    }
    with starting(log, command, module, signal.SIGINT, *flags.get(command, PORTS)) as process:
        assert process.wait(40) in (-signal.SIGINT, 1)
    assert log.read_text() == ""
