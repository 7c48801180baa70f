"""A terminal in which the blocks of a page are run: a bash that keeps its variables from one block to the next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.docs.blocks import Block
from tests.docs.machine import Machine

# Reads paths of scripts and runs each in this shell; what a command that failed was is noted next to it. `trap : INT`
# keeps the shell itself alive when Ctrl-C ends what it runs.
_LOOP = r"""
trap : INT
set -o pipefail -o errtrace
while IFS= read -r -u 3 __script; do
    read -r -u 3 __in; read -r -u 3 __out
    trap 'echo "status $?: $BASH_COMMAND" >> "$__script.failed"' ERR
    { . "$__script"; } < "$__in" >> "$__out" 2>&1 3<&-
    trap - ERR
    : > "$__script.done"
done
"""
_TURN_S = 0.05
_COLUMNS, _LINES = 120, 40
_SHOWN_CHARACTERS = 3000  # of the output of a block that failed: the end
INTERRUPTED = 128 + signal.SIGINT


class Failed(AssertionError):
    """A block did not do what the page says."""


class Shell:
    """One bash. Blocks are given to it one at a time."""

    def __init__(self, machine: Machine, name: str, cwd: Path) -> None:
        self._machine = machine
        self._cwd = cwd
        self._directory = machine.directory / "blocks" / name
        self._directory.mkdir(parents=True)
        # For all its blocks: it becomes the shell's controlling terminal, which must not be hung up.
        self._terminal = Terminal()
        orders, self._orders = os.pipe()
        # The pipe is number 3 in the shell, whatever its number is here.
        self._bash = machine.popen(
            ["bash", "--norc", "-c", f"exec 3<&{orders}; {_LOOP}"],
            cwd,
            pass_fds=[orders],
            stdin=subprocess.DEVNULL,
        )
        os.close(orders)

    def start(self, block: Block) -> Running:
        """Begin with a block."""
        script = self._directory / f"line-{block.line}-{time.monotonic_ns()}.sh"
        code = self._machine.text(block.code)
        if block.language == "python":
            file = self._cwd / _name_of(code)
            file.write_text(code)
            code = f"python {file.name}\n"
        script.write_text(code)
        # Python writes to a file in large pieces; on a terminal the output is seen at once.
        is_seen = "then" in block.words or (block.language == "python" and "until" in block.words)
        running = Running(block, script, self._bash, self._terminal if is_seen else None)
        os.write(self._orders, f"{script}\n{running.input}\n{running.destination}\n".encode())
        return running

    def close(self) -> None:
        """Kill the shell, and what it left running: contrib/run-local.sh has process groups of its own."""
        os.close(self._orders)
        with contextlib.suppress(psutil.NoSuchProcess):
            shell = psutil.Process(self._bash.pid)
            for process in (*shell.children(recursive=True), shell):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._bash.wait()
        self._terminal.close()


def _name_of(code: str) -> str:
    """Return the name of the file: the comment in its first line, where that is one."""
    first = code.partition("\n")[0].removeprefix("# ")
    return first if first.endswith(".py") and " " not in first else "example.py"


class Running:
    """A block that was begun."""

    def __init__(
        self, block: Block, script: Path, bash: subprocess.Popen[bytes], terminal: Terminal | None
    ) -> None:
        self._block = block
        self._script = script
        self._bash = bash
        self._file = script.with_suffix(".output")
        self._file.touch()
        self._terminal = terminal
        self.input = terminal.path if terminal else "/dev/null"
        self.destination = terminal.path if terminal else str(self._file)

    @property
    def output(self) -> str:
        if self._terminal is not None:
            with self._file.open("ab") as file:
                file.write(self._terminal.take())
        return self._file.read_text("utf-8", "replace")

    @property
    def has_ended(self) -> bool:
        return self._script.with_suffix(".sh.done").exists() or self._bash.poll() is not None

    def wait_for(self, condition: Callable[[], bool], what: str, deadline_s: float) -> None:
        """Wait until it is true. Raises Failed at the deadline, and if the block ends before."""
        deadline = time.monotonic() + deadline_s
        while not condition():
            if self.has_ended and not condition():
                raise self.failed(f"it ended before {what}")
            if time.monotonic() > deadline:
                raise self.failed(f"waited {deadline_s} s for {what}")
            self.output  # noqa: B018 - a terminal is read, so that the program can write on
            time.sleep(_TURN_S)

    def finish(self, deadline_s: float, may_be_interrupted: bool = False) -> str:
        """Return what it printed, when it has ended. Raises Failed if a command in it failed."""
        self.wait_for(lambda: self.has_ended, "its end", deadline_s)
        if self._bash.poll() is not None:
            raise self.failed(f"the shell ended with {self._bash.returncode}")
        failed = self._script.with_suffix(".sh.failed")
        lines = failed.read_text().splitlines() if failed.exists() else []
        interrupted = f"status {INTERRUPTED}: "
        if bad := [line for line in lines if not (may_be_interrupted and line.startswith(interrupted))]:
            raise self.failed("; ".join(bad))
        return self.output

    def end_with(self, keys: str) -> None:
        """Type the keys; without any, press Ctrl-C."""
        if self._terminal is not None and keys:
            self._terminal.type(keys)
        else:
            os.killpg(self._bash.pid, signal.SIGINT)

    def failed(self, why: str) -> Failed:
        printed = "\n".join(line for line in self.output.splitlines() if line.strip())[-_SHOWN_CHARACTERS:]
        return Failed(
            f"{self._block.place}: {why}\n--- it ran\n{self._script.read_text()}--- it printed\n{printed}"
        )


class Terminal:
    """A pseudo-terminal."""

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        self.path = os.ttyname(self._theirs)

    def take(self) -> bytes:
        """Return what was written to it since the last time."""
        data = b""
        while select.select([self._ours], [], [], 0)[0]:
            data += os.read(self._ours, 65536)
        return data

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def close(self) -> None:
        os.close(self._ours)
        os.close(self._theirs)
