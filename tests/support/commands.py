"""Runs commands in this process: no start of an interpreter for each."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click
import pytest
from click.testing import CliRunner

from nsqd_py.runtime.command import unblock_signals

Run = Callable[..., subprocess.CompletedProcess[str]]


def main_of(name: str) -> Callable[[list[str]], Any]:
    """Return the main function of a command."""
    main: Callable[[list[str]], Any] = importlib.import_module(f"nsq_apps.{name}").main

    def call(arguments: list[str]) -> Any:
        try:
            return main(arguments)
        finally:
            unblock_signals()  # one that fails leaves them blocked, and the programs that later tests start inherit that

    return call


class _Command(click.Command):
    """A command in the form that click's runner takes."""

    def main(self, args: Sequence[str], **extra: Any) -> NoReturn:
        sys.exit(main_of(str(self.name))(args))


def runner(capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command `name` with flags until it ends by itself."""

    def run(name: str, *flags: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        result = CliRunner().invoke(_Command(name), flags, catch_exceptions=False)
        out, err = capfd.readouterr()  # log lines are written without sys.stderr
        return subprocess.CompletedProcess(flags, result.exit_code, result.stdout + out, result.stderr + err)

    return run
