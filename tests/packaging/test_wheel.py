"""The sdist and the wheel: what is in them, and that the commands run from an installed wheel.

The wheel is built from the sdist, and installed into an empty environment outside the checkout. The packages that
it depends on are those of the environment that runs the tests, so nothing is downloaded.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest

from nsqd_py.version import NSQ_VERSION, PROJECT_VERSION
from tests.support.nsqd_process import REPOSITORY

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("wheel")]

# Each package, and the folder of the checkout that it is in.
PACKAGES = {
    "nsqd_py": "",
    "nsqlookupd_py": "",
    "nsqadmin_py": "",
    "nsq_apps": "apps",
    "nsq_tools": "tools",
    "nsq_spark": "spark",
    "pyspark_nsq": "spark",
}
NOT_INSTALLED = ("tests", "bench")
# Folders that many projects have, and that installed packages must not be called.
FOLDERS_OF_A_PROJECT = ("apps", "tools", "spark", "tests", "contrib", "docs")
# Without PYTHONPATH: modules there may have the names of those that setuptools imports.
ISOLATED = (sys.executable, "-I")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


class Installed(NamedTuple):
    """An environment that holds the wheel, and a directory of some project in which its commands are run."""

    bin: Path
    project: Path

    @property
    def environment(self) -> dict[str, str]:
        """PATH and PYTHONPATH as in the shell of somebody who works on that project."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NSQ"))}
        return kept | {"PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONPATH": str(self.project)}

    def run(self, *command: str, stdin: str = "") -> str:
        """Return what a command prints. It must end with 0."""
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout


def files_of_the_checkout() -> list[str]:
    """Return the files that git knows, or would add."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("not a checkout of git")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split(
        "\0"
    )
    return [name for name in names if name and (REPOSITORY / name).is_file()]


def build(what: str, source: Path, target: Path, **environment: str) -> Path:
    """Return the file that the build backend makes of a source tree."""
    target.mkdir()
    command = [*ISOLATED, "-c", BUILD, what, str(target)]
    variables = os.environ | {"DISTUTILS_DEBUG": "1"} | environment  # an error comes with its traceback
    done = subprocess.run(command, cwd=source, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    pytest.importorskip("setuptools")
    pytest.importorskip("wheel")
    directory = tmp_path_factory.mktemp("sdist")
    for name in files_of_the_checkout():
        if not name.startswith(NOT_INSTALLED):
            (directory / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, directory / "source" / name)
    return build("build_sdist", directory / "source", directory / "dist")


def build_wheel(sdist: Path, directory: Path, **environment: str) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    return build(
        "build_wheel", directory / sdist.name.removesuffix(".tar.gz"), directory / "dist", **environment
    )


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"{dist_info()}/METADATA").decode())


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Installed:
    pytest.importorskip("pip")
    return install(wheel, tmp_path_factory.mktemp("installed"))


def test_man_finds_a_page_for_each_command(installed):
    """`man` looks next to the directories of PATH."""
    pages = sorted((installed.bin.parent / "share/man/man1").iterdir())
    commands = {
        path.name for path in installed.bin.iterdir() if path.name.startswith(("nsq", "to-nsq", "spark-"))
    }
    assert {page.stem for page in pages} == commands - {"to-nsq-py"}
    for page in pages:
        assert page.read_text("utf-8").startswith(f'.TH "{page.stem.upper()}" 1 ')
    if shutil.which("man") and shutil.which("groff"):
        shown = installed.run("man", "--pager=cat", "nsq-tail")
        assert "--topic string" in shown
        complaints = subprocess.run(
            ["groff", "-man", "-ww", "-z", *pages], capture_output=True, text=True, timeout=60
        )
        assert complaints.stderr == ""


def install(wheel: Path, directory: Path) -> Installed:
    python = directory / "venv/bin/python"
    subprocess.run([*ISOLATED, "-m", "venv", "--without-pip", directory / "venv"], check=True, timeout=60)
    (site_packages,) = (directory / "venv/lib").glob("python3*/site-packages")
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages / "shared.pth").write_text(f"import sys; sys.path += {shared!r}\n")
    pip = (*ISOLATED, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-compile", wheel], check=True, timeout=120)
    for name in FOLDERS_OF_A_PROJECT:
        (directory / "project" / name).mkdir(parents=True)
        (directory / "project" / name / "__init__.py").write_text(
            "raise ImportError('the package of another project')"
        )
    return Installed(python.parent, directory / "project")


def dist_info() -> str:
    return f"nsqd_py-{PROJECT_VERSION}.dist-info"


def commands() -> list[str]:
    """Return the commands that setup.cfg declares."""
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg", "utf-8")
    scripts = setup["options"]["scripts"].split()
    entries = setup["options.entry_points"]["console_scripts"].strip().splitlines()
    return [Path(script).name for script in scripts] + [entry.partition("=")[0].strip() for entry in entries]


# ---- what is in them


def test_the_names_that_an_installation_adds(names):
    tops = {name.partition("/")[0] for name in names}
    assert tops == {*PACKAGES, dist_info(), f"nsqd_py-{PROJECT_VERSION}.data"}


def test_every_module_is_in_the_wheel(names):
    tracked = files_of_the_checkout()
    for package, folder in PACKAGES.items():
        prefix = f"{folder}/" if folder else ""
        # Also nsqadmin's page, and what marks a package as typed.
        expected = {name.removeprefix(prefix) for name in tracked if name.startswith(f"{prefix}{package}/")}
        found = {name for name in names if name.startswith(f"{package}/")}
        assert {name for name in found if not name.startswith("nsqd_py/contrib/")} == expected
        assert f"{package}/py.typed" in found


def test_the_sdist_has_what_a_distribution_packages(sdist):
    with tarfile.open(sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "setup.py", "setup.cfg", "pyproject.toml"} <= found
    assert {
        "apps/bin/to-nsq",
        "docs/operations.md",
        "contrib/systemd/nsqd.service",
        "examples/flask_app.py",
    } <= found
    assert not any(name.endswith(".pyc") for name in found)


def test_the_metadata(metadata):
    assert (metadata["Name"], metadata["Version"]) == ("nsqd-py", PROJECT_VERSION)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).strip() == (REPOSITORY / "README.md").read_text("utf-8").strip()
    assert (metadata["License"], metadata["License-File"], metadata["Requires-Python"]) == (
        "MIT",
        "LICENSE",
        ">=3.11",
    )
    assert all(", https://" in url for url in metadata.get_all("Project-URL", [])), "a label and an address"
    classifiers = set(metadata.get_all("Classifier", []))
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= classifiers
    assert {"Operating System :: POSIX", "Typing :: Typed"} <= classifiers
    assert set(metadata.get_all("Provides-Extra", [])) >= {"admin", "all", "parquet", "spark", "java", "dev"}


# ---- installed


def test_every_command_runs_beside_packages_named_apps_tools_and_spark(installed):
    assert len(commands()) >= 11
    version = installed.run(
        "python", "-c", "import importlib.metadata as m; print(m.version('nsqd-py'))"
    ).strip()
    for command in commands():
        assert (installed.bin / command).exists()
        program = re.escape(
            {"to-nsq-py": "to_nsq"}.get(command, command.removesuffix("-py").replace("-", "_"))
        )
        reported = installed.run(command, "--version").strip()
        built = re.escape(f"v{NSQ_VERSION} (built w/nsqd-py-{version}-python3.")
        assert re.fullmatch(rf"({program}|{program.replace('_', '-')}) {built}\S+\)", reported), reported
        assert "--version" in installed.run(command, "--help")


def test_it_is_the_wheel_that_runs(installed):
    packages = [name for name in PACKAGES if name != "pyspark_nsq"]  # which imports pyspark
    ask = "\n".join(f"import {name}; print({name}.__file__)" for name in packages)
    paths = installed.run("python", "-c", ask).split()
    assert len(paths) == len(packages)
    assert all(path.startswith(str(installed.bin.parent)) for path in paths), paths


def test_an_embedded_cluster_and_the_commands_pass_messages(installed):
    code = """
import subprocess, nsqd_py
with nsqd_py.embedded(nsqds=1, lookupd=True) as cluster:
    words = ["--topic=orders", f"--nsqd-tcp-address={cluster.nsqds[0].tcp_address}"]
    subprocess.run(["to-nsq", *words], input=b"first\\nsecond\\n", check=True)
    cluster.nsqds[0].wait_for_depth("orders", 2, timeout_s=40)
    subprocess.run(["nsq-tail", *words, "--channel=me", "--n=2"], check=True)
    print(cluster.lookupd.get("/topics")["topics"])
"""
    assert installed.run("python", "-c", code) == "first\nsecond\n['orders']\n"


def test_units_dashboards_and_examples_are_found_after_an_installation(installed):
    paths = [Path(line) for line in installed.run("python", "-m", "nsq_apps.contrib").splitlines()]
    names = ("grafana", "integrations", "prometheus", "systemd")
    folders = [REPOSITORY / "contrib" / name for name in names]
    expected = [path for folder in folders for path in sorted(folder.iterdir())]
    assert [path.name for path in paths] == [path.name for path in expected]
    assert all(path.is_relative_to(installed.bin.parent) for path in paths)
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in expected]
    unit = installed.run("python", "-m", "nsq_apps.contrib", "systemd/nsqd.service")
    assert unit == (REPOSITORY / "contrib/systemd/nsqd.service").read_text("utf-8")


# ---- with compiled modules


def modules_to_compile() -> set[str]:
    """Return the paths that setup.py declares."""
    (folders,) = re.findall(
        r"^COMPILED = (\{.*?^\})", (REPOSITORY / "setup.py").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return {
        f"{folder}/{name}" for folder, names in ast.literal_eval(folders).items() for name in names.split()
    }


def test_modules_to_compile_are_there_and_nothing_refers_to_their_objects_weakly():
    """On Python 3.11, mypyc frees a weak reference to an object of a generic class that it compiled, which others hold."""
    assert all((REPOSITORY / f"{module}.py").is_file() for module in modules_to_compile())
    servers = [
        path for folder in ("nsqd_py", "nsqlookupd_py") for path in (REPOSITORY / folder).rglob("*.py")
    ]
    weak = {path.relative_to(REPOSITORY).parts[1] for path in servers if "weakref" in path.read_text("utf-8")}
    assert weak == {"celery", "client", "testing"}


@pytest.mark.slow
def test_a_wheel_with_compiled_modules(sdist, tmp_path):
    """It has the sources too, for tracebacks."""
    pytest.importorskip("mypyc")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler, which mypyc needs")
    wheel = build_wheel(sdist, tmp_path, NSQD_COMPILED="1")
    assert wheel.name.startswith(f"nsqd_py-{PROJECT_VERSION}-cp3")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    compiled = {name.partition(".")[0] for name in names if name.endswith(".so")}
    assert compiled == modules_to_compile() | {"nsqd_py__mypyc"}
    assert {f"{module}.py" for module in modules_to_compile()} <= names
    installed = install(wheel, tmp_path)
    assert installed.run("nsqd-py", "--version").endswith("-compiled)\n")
    test_it_is_the_wheel_that_runs(installed)
    test_an_embedded_cluster_and_the_commands_pass_messages(installed)
