"""How a daemon's process ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal
import gevent
from nsqd_py.runtime.process import StopSignals

def send(number):
    os.kill(os.getpid(), number)
    gevent.sleep(0.05)

with StopSignals() as signals:
    {begin}
    signals.wait()
    print("asked to stop", flush=True)
    {after}
print("ended tidily", flush=True)
"""


@pytest.mark.parametrize(
    ("begin", "after", "status", "lines"),
    [
        ("send(signal.SIGTERM)", "", 0, ["asked to stop", "ended tidily"]),
        ("send(signal.SIGINT)", "", 0, ["asked to stop", "ended tidily"]),
        ("send(signal.SIGTERM)", "send(signal.SIGINT)", 1, ["asked to stop"]),
        (
            "send(signal.SIGTERM)",
            "pass\nos.kill(os.getpid(), signal.SIGTERM)",
            0,
            ["asked to stop", "ended tidily"],
        ),
        ("signals.stop()", "send(signal.SIGTERM)", 0, ["asked to stop", "ended tidily"]),
        (
            "signals.stop()\n    with signals.cutting(0.01): gevent.sleep(3600)",
            "",
            0,
            ["asked to stop", "ended tidily"],
        ),
        ("signals.stop()", "send(signal.SIGTERM); send(signal.SIGTERM)", 1, ["asked to stop"]),
    ],
)
def test_the_second_signal_ends_the_process_at_once(
    begin: str, after: str, status: int, lines: list[str]
) -> None:
    script = SCRIPT.format(begin=begin, after=after)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=40, check=False
    )
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (status, lines, "")
