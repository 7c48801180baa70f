"""Each test starts an example as its docstring says, next to a real nsqd of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from nsqd_py.testing.embedded import Nsqd
from tests.support.module_servers import delete_topics, module_embedded
from tests.support.nsqd_process import REPOSITORY, wait_until

EXAMPLES = REPOSITORY / "examples"
BIN = Path(sys.executable).parent


def importable_from(folder: Path) -> str:
    """Return a PYTHONPATH by which modules of this folder are found, too."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


class Example:
    """A running example. Its output is kept in a file."""

    def __init__(self, command: list[str | Path], directory: Path, environment: dict[str, str]) -> None:
        self.log = directory / "output"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=directory, env=os.environ | environment, stdout=output, stderr=output
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: str, timeout_s: float = 40.0) -> re.Match[str]:
        """Wait until the output has this pattern."""
        return wait_until(lambda: re.search(pattern, self.output()), timeout_s, f"{pattern!r} in {self.log}")

    def wait_for_end(self) -> int:
        return self._process.wait(40)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """End it as Ctrl-C does, and return its exit status. Fails if it does not end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self.wait_for_end()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"Ctrl-C does not end it:\n{self.output()}") from None

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would."""
        self._process.kill()
        self._process.wait()


class Start(Protocol):
    def __call__(self, *command: str | Path, **environment: str) -> Example: ...


# It delivers messages again soon after their consumer was killed.
module_nsqd = module_embedded("--msg-timeout=2s")


@pytest.fixture
def nsqd(module_nsqd) -> Iterator[Nsqd]:
    """The nsqd of the module, without topics."""
    yield module_nsqd
    delete_topics(module_nsqd)


@pytest.fixture
def start(nsqd, tmp_path) -> Iterator[Start]:
    """`start("name.py", "argument", VARIABLE="...")` starts an example, or a command, in a directory of its own."""
    running: list[Example] = []

    def start_example(*command: str | Path, **environment: str) -> Example:
        directory = tmp_path / f"run{len(running)}"
        directory.mkdir()
        name, *arguments = command
        program = [sys.executable, EXAMPLES / name] if Path(name).suffix == ".py" else [name]
        variables = {"NSQD_TCP_ADDRESS": nsqd.tcp_address, **environment}
        running.append(Example([*program, *arguments], directory, variables))
        return running[-1]

    yield start_example
    for example in running:
        example.end()
