"""Runs a program that may change threads after each step of the interpreter, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

INTERVAL_S = 1e-6
_DEADLINE_S = 120
_BEGINNING = f"import sys\nsys.setswitchinterval({INTERVAL_S})\n"


def run_hostile(program: str, *arguments: str) -> str:
    """Return what the program prints. Fails with its errors if it does not end well."""
    command = [sys.executable, "-c", _BEGINNING + program, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
