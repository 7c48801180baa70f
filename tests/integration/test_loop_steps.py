"""The measurement that docs/security.md quotes."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.ours, pytest.mark.slow]  # it waits for ten seconds


def test_it_measures_the_longest_steps():
    command = [sys.executable, "-m", "bench.loop_steps", "--count=100"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    expected = "100 consumers of a channel leave at once", "100 requests of 10 connections come at once"
    for line, what in zip(ended.stdout.splitlines(), expected, strict=True):
        assert line.startswith(what)
        longest, *others = (float(step) for step in re.findall(r"\d+\.\d", line))
        assert longest > 0 and others == sorted(others, reverse=True)
