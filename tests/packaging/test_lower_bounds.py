"""The oldest versions of the dependencies that setup.cfg allows: installed, and the programs run on them."""

from __future__ import annotations

import configparser
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nsqd_process import REPOSITORY

pytestmark = [pytest.mark.ours, pytest.mark.slow]

# Without pytest-xdist and all else that only a part of the tests needs.
TOOLS = ("pytest", "hypothesis", "psutil", "trustme", "bcrypt")
TRIED = (
    "tests/wire/test_http_fuzz.py",
    "tests/integration/test_http.py",
    "tests/integration/test_http_auth.py",
    "tests/integration/test_metrics.py",
    "tests/integration/test_nsqadmin_api.py",
    "tests/unit/test_settings.py",
    "tests/unit/test_stat_screen.py",
    "tests/unit/test_stats.py",
)


def lower_bounds(*extras: str) -> list[str]:
    """`name==version` of each dependency."""
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg", "utf-8")
    texts = [setup["options"]["install_requires"], *(setup["options.extras_require"][extra] for extra in extras)]
    found = []
    for requirement in "\n".join(texts).split():
        name, separator, version = requirement.partition(";")[0].partition(">=")
        if separator:
            found.append(f"{name}=={version.partition(',')[0]}")
    return found


def run(*command: str | Path, **environment: str) -> None:
    done = subprocess.run(
        [str(part) for part in command], cwd=REPOSITORY, capture_output=True, text=True, timeout=900,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{shlex.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def test_every_dependency_has_a_lower_bound() -> None:
    assert len(lower_bounds("admin")) >= 15


def test_the_programs_run_on_the_lower_bounds(tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path)
    python = tmp_path / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    constraints = tmp_path / "lower.txt"
    constraints.write_text("\n".join(lower_bounds("admin")))
    run(*pip, "--only-binary=:all:", "-r", constraints)
    run(*pip, "-c", constraints, *TOOLS, "pytest-xdist", "pyte")
    # Tests that want the machine alone take locks in the temporary directory, of which this test holds one.
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TRIED, PYTHONPATH="", TMPDIR=str(tmp_path))
