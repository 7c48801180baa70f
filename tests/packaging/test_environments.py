"""The programs on the oldest versions of the dependencies that setup.cfg allows, and on every Python that it names."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nsqd_process import REPOSITORY

pytestmark = [pytest.mark.ours, pytest.mark.slow]

EXTRAS = ("admin", "auth", "gzip", "latency", "metrics", "regex", "tls")  # those of `all`
# Without pytest-xdist and all else that only a part of the tests needs.
TOOLS = ("pytest", "hypothesis", "psutil", "trustme", "bcrypt")
TRIED = (
    "tests/wire/test_http_fuzz.py",
    "tests/integration/test_http.py",
    "tests/integration/test_http_auth.py",
    "tests/integration/test_metrics.py",
    "tests/integration/test_nsqadmin_api.py",
    "tests/unit/settings/test_declaration.py",
    "tests/unit/tools/test_stat_screen.py",
    "tests/unit/stats/test_collect.py",
)


def lower_bounds(*extras: str) -> list[str]:
    """`name==version` of each dependency."""
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg", "utf-8")
    texts = [
        setup["options"]["install_requires"],
        *(setup["options.extras_require"][extra] for extra in extras),
    ]
    found = []
    for requirement in "\n".join(texts).split():
        name, separator, version = requirement.partition(";")[0].partition(">=")
        if separator:
            found.append(f"{name}=={version.partition(',')[0]}")
    return found


def run(*command: str | Path, **environment: str) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, (
        f"{shlex.join(map(str, command))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    )


def test_every_dependency_has_a_lower_bound():
    assert len(lower_bounds(*EXTRAS)) >= 15


def test_the_programs_run_on_the_lower_bounds(tmp_path):
    python, pip = new_environment(sys.executable, tmp_path)
    constraints = tmp_path / "lower.txt"
    constraints.write_text("\n".join(lower_bounds(*EXTRAS)))
    run(*pip, "--only-binary=:all:", "-r", constraints)
    run(*pip, "-c", constraints, *TOOLS, "pytest-xdist", "pyte")
    run_tests(python, tmp_path)


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_the_programs_run_on_later_pythons(version, tmp_path):
    interpreter = interpreter_of(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    python, pip = new_environment(interpreter, tmp_path)
    names = [bound.partition("==")[0] for bound in lower_bounds(*EXTRAS)]
    run(*pip, "--only-binary=:all:", *names, *TOOLS, "pytest-xdist", "pyte")
    run_tests(python, tmp_path)


def interpreter_of(version: str) -> str | None:
    """Return the path of a Python of this version, of the system or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")):
        # A shim of pyenv is there also where no such Python is chosen, and fails.
        if (
            candidate
            and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            return str(candidate)
    return None


def new_environment(interpreter: str, directory: Path) -> tuple[Path, tuple[str | Path, ...]]:
    """Return the Python of a new virtual environment, and the command that installs into it."""
    run(interpreter, "-m", "venv", directory)
    python = directory / "bin" / "python"
    return python, (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def run_tests(python: Path, directory: Path) -> None:
    """Run the tests on the checkout's files, which are not installed there.

    Tests that want the machine alone take locks in the temporary directory, of which this test holds one.
    """
    path = os.pathsep.join(str(REPOSITORY / folder) for folder in ("", "apps", "tools", "spark"))
    run(
        python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TRIED, PYTHONPATH=path, TMPDIR=str(directory)
    )
