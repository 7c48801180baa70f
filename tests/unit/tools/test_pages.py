"""The examples of each tool are understood."""

from __future__ import annotations

import shlex

import pytest

from nsq_apps.manual import programs
from nsqd_py.settings.program import Program

tools = pytest.mark.parametrize("program", list(programs()), ids=lambda program: program.command)


@tools
def test_its_examples_are_understood(program: Program) -> None:
    assert len(program.examples) >= 2
    for _, line, *_ in program.examples:
        words = shlex.split(line)
        start = words.index(program.command) + 1
        ends = [index for index, word in enumerate(words) if index >= start and word[0] in "|<>&"]
        assert program.read(words[start : min(ends, default=len(words))])
