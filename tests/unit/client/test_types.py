"""What type checkers see of programs that use the client, or `nsqd_py.work`: nothing in a good one, each mistake in a bad one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nsqd_py.client import options
from nsqd_py.client.keywords import ClientSettings
from tests.support.nsqd_process import REPOSITORY

PROGRAMS = REPOSITORY / "tests" / "data"
# How strict pyright is. Keywords of the client have the type Any where go-nsq has many.
PYRIGHT_MODES = {"client_types": "standard", "work_types": "strict"}
CHECKERS = {
    "mypy": ["-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={REPOSITORY / '.mypy_cache'}"],
    "pyright": ["-m", "basedpyright", "--level=error", f"--pythonpath={sys.executable}"],
}


def marked(path: Path) -> set[int]:
    """Return the lines that are marked as wrong."""
    lines = path.read_text("utf-8").splitlines()
    return {number for number, line in enumerate(lines, start=1) if line.endswith("# wrong")}


@pytest.mark.parametrize("folder", PYRIGHT_MODES)
@pytest.mark.parametrize("checker", ["mypy", pytest.param("pyright", marks=pytest.mark.slow)])
def test_a_type_checker_sees_each_mistake(checker: str, folder: str, tmp_path: Path) -> None:
    pytest.importorskip(CHECKERS[checker][1])
    for name in ("good.py", "bad.py"):
        shutil.copy(PROGRAMS / folder / name, tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": PYRIGHT_MODES[folder], "extraPaths": [str(REPOSITORY)]})
    )
    command = [sys.executable, *CHECKERS[checker], "."]
    environment = {**os.environ, "MYPYPATH": str(REPOSITORY)}
    checked = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    found = re.findall(r"(good|bad)\.py:(\d+):(?:\d+ -)? error", checked.stdout)
    assert [number for name, number in found if name == "good"] == [], checked.stdout
    assert {int(number) for name, number in found if name == "bad"} == marked(PROGRAMS / folder / "bad.py"), (
        checked.stdout
    )


def test_every_setting_has_a_type() -> None:
    assert ClientSettings.__annotations__.keys() == options._BY_NAME.keys()
