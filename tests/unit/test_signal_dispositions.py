"""Tests send signals to programs; they pass also where the shell that starts pytest ignores these signals."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from tests.support.nsqd_process import REPOSITORY

pytestmark = pytest.mark.ours

ASK = "import signal; print([signal.getsignal(n).name for n in (signal.SIGHUP, signal.SIGQUIT)], signal.getsignal(2))"


def test_a_program_starts_with_the_default_dispositions() -> None:
    said = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=40, check=True).stdout
    assert said.startswith("['SIG_DFL', 'SIG_DFL'] <built-in function default_int_handler>")


def test_it_does_so_where_the_shell_ignores_signals() -> None:
    """`nohup make test &` in a script ignores all three."""
    inner = f"{__file__}::{test_a_program_starts_with_the_default_dispositions.__name__}"
    pytest_command = shlex.join([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inner])
    done = subprocess.run(
        ["/bin/sh", "-c", f"trap '' HUP INT QUIT; exec {pytest_command}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
