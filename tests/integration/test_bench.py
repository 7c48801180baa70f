"""`python -m bench` in small: two rows, with an nsqd of ours as the other one, from the servers to the record."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import record

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_rows_are_measured_recorded_and_drawn(tmp_path: Path) -> None:
    options = [
        "--only=^(pub-16|mpub-consumed)$",
        "--seconds=0.2",
        "--rounds=1",
        f"--results={tmp_path}",
        f"--peer-nsqd={sys.executable} -m nsq_apps.nsqd",
        f"--plot={tmp_path / 'plot.svg'}",
    ]
    command = [sys.executable, "-m", "bench", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr

    (path,) = tmp_path.glob("*.json")
    content = json.loads(path.read_text())
    assert {"cpu", "cores"} <= content["machine"].keys() and content["commit"]
    for row in content["results"]:
        assert row["runs"].keys() == {record.OURS, record.OTHER}
        assert min(record.ratios(row)) > 0
        assert min(row["runs"][record.OURS]["server_cpu_us"]) > 0
    assert content["results"][1]["runs"][record.OURS]["e2e_p99_us"][0] > 0
    assert "pub-16" in ended.stdout and (tmp_path / "plot.svg").read_text().startswith("<svg")
