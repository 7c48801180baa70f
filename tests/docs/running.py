"""Running all blocks of a page, in order."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.docs.blocks import Block
from tests.docs.machine import Machine
from tests.docs.output import same_output
from tests.docs.shell import Failed, Running, Shell
from tests.support.nsqd_process import REPOSITORY

DEADLINE_S = 60.0


class Page:
    """The blocks of a page on their machine; `cwd` is the fresh directory in which a reader begins.

    What they leave running ends with `with`.
    """

    def __init__(
        self, machine: Machine, blocks: Sequence[Block], cwd: Path, deadline_s: float = DEADLINE_S
    ) -> None:
        self._machine = machine
        self._blocks = blocks
        self._cwd = cwd
        self._deadline_s = deadline_s
        self._shells: list[Shell] = []
        self._repeating: tuple[Running, Block] | None = None  # begun, and the next block is repeated
        self.output = ""  # of the last block that was run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what was left running."""
        for shell in self._shells:
            shell.close()

    def run(self) -> None:
        """Raises Failed for the first block that does not do what the page says."""
        front = self._open_shell()
        for block in self._blocks:
            if block.kind == "run":
                self._run(front, block)
            elif block.kind == "output":
                self._compare(block)
            elif block.kind == "from":
                check_quoted(block)

    def _open_shell(self) -> Shell:
        self._shells.append(Shell(self._machine, f"shell-{len(self._shells)}", self._cwd))
        return self._shells[-1]

    def _run(self, front: Shell, block: Block) -> None:
        if self._repeating is not None:
            self._repeat(front, block, *self._repeating)
        elif "repeat-next" in block.words:
            self._repeating = self._open_shell().start(block), block
        elif "background" in block.words:
            running = self._open_shell().start(block)
            self._wait_until(running, block)
            self.output = running.output
        else:
            running = front.start(block)
            if block.words:
                self._wait_until(running, block)
                running.end_with(block.words.get("then", ""))
            self.output = running.finish(self._deadline_s, bool(block.words))

    def _repeat(self, front: Shell, block: Block, behind: Running, before: Block) -> None:
        """Run a block again and again until it shows in the one before."""

        def once() -> bool:
            self.output = front.start(block).finish(self._deadline_s)
            return self._is_reached(behind, before)

        self._repeating = None
        behind.wait_for(once, f"{before.words} in it", self._deadline_s)
        behind.end_with("")
        behind.finish(self._deadline_s, may_be_interrupted=True)

    def _wait_until(self, running: Running, block: Block) -> None:
        running.wait_for(lambda: self._is_reached(running, block), f"{block.words}", self._deadline_s)

    def _is_reached(self, running: Running, block: Block) -> bool:
        text = self._machine.text(block.words.get("until", ""))
        if not re.search(text, running.output, re.MULTILINE):
            return False
        command = block.words.get("until-command")
        return command is None or self.shell_status(command) == 0

    def shell_status(self, command: str) -> int:
        """Return the status of a command in another terminal."""
        quiet = subprocess.DEVNULL
        line = ["bash", "--norc", "-c", self._machine.text(command)]
        return self._machine.popen(line, self._cwd, stdin=quiet, stdout=quiet, stderr=quiet).wait(
            self._deadline_s
        )

    def _compare(self, block: Block) -> None:
        if not same_output(self._machine.text(block.code), self.output):
            raise Failed(f"{block.place}: the page shows\n{block.code}--- it printed\n{self.output}")


def check_quoted(block: Block) -> None:
    """Raises Failed if the lines of the block are not in the file that its comment names; indentation may differ."""
    wanted = [line.strip() for line in block.code.splitlines() if line.strip()]
    there = [
        line.strip() for line in (REPOSITORY / block.text).read_text("utf-8").splitlines() if line.strip()
    ]
    starts = range(len(there) - len(wanted) + 1)
    if not any(there[start : start + len(wanted)] == wanted for start in starts):
        raise Failed(f"{block.place}: not to be found in {block.text}:\n{block.code}")
