"""`python -m bench` in small: one row without peers, from the servers to the tables of the page."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import page, record

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_a_row_is_measured_recorded_and_shown_next_to_the_limit(tmp_path: Path) -> None:
    options = ["--quick", "--only=^latency$", "--seconds=0.2", "--no-peers", f"--results={tmp_path}"]
    command = [sys.executable, "-m", "bench", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    (path,) = tmp_path.glob("*-quick.json")
    (row,) = record.read(path)["results"]
    assert row["runs"].keys() == {"subject", "limit"}
    details = row["runs"]["subject"][0]["details"]
    assert 0 < details["p50_ms"] <= details["p99_ms"] <= details["max_ms"]
    assert "| 10,000 |" in page.parts(record.read_all(tmp_path))["latency"]
