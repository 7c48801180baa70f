"""A short soak passes, and writes its plot."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.nsqd_process import REPOSITORY


@pytest.mark.ours
@pytest.mark.slow
def test_a_short_soak_passes_and_writes_its_result(tmp_path):
    output = tmp_path / "soak"
    command = [sys.executable, "-m", "tests.soak", "--minutes=0.5", f"--output={output}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("soak passed: 0.5 minutes")
    statistics = json.loads(output.with_suffix(".json").read_text())
    assert statistics["lost"] == 0
    assert statistics["acknowledged"] > 1000
