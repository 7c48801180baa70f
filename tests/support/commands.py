"""Runs commands in this process: no start of an interpreter for each."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from nsq_apps import tools
from nsqd_py.runtime.command import unblock_signals

Run = Callable[..., subprocess.CompletedProcess[str]]


def main_of(name: str) -> Callable[[list[str]], Any]:
    """Return the function of a command: a daemon has a module, a tool a function in one."""
    main: Callable[[list[str]], Any] = getattr(tools, name, None) or importlib.import_module(f"nsq_apps.{name}").main
    return main


def runner(capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command `name` with flags until it ends by itself."""

    def run(name: str, *flags: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        try:
            status = main_of(name)(list(flags))
        except SystemExit as end:
            status = end.code
        finally:
            unblock_signals()
        return subprocess.CompletedProcess(flags, status, *capfd.readouterr())

    return run
