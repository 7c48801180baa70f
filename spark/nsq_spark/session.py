"""Spark, started as a library that does not speak: its JVM writes to a log file, and binds to loopback where it can.

    with quiet_session("local[2]") as spark:
        spark.range(10).count()

A start takes seconds, so `Session` makes it in a thread, and what calls it goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from nsq_spark.java import Java, bundled_home, find_java
from nsq_spark.jvm import Jvm, changed_environment
from nsq_spark.masters import is_local, is_local_cluster, is_on_loopback
from nsq_spark.shipping import import_folders, zip_packages

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

STOP_S = 1.5
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
_DRIVER_OPTIONS, _EXECUTOR_OPTIONS = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
_ERROR = re.compile(r"^(?:.*?\b[\w.$]+(?:Exception|Error): |Error: )(.+?)\s*$", re.MULTILINE)
# What a JVM that only hands bytes on does not earn back: to the first task it took 8.5 s of processor time with the
# optimising compiler and G1, 4.6 s without.
_LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Python processes take and free blocks of megabytes all the time. What malloc gives back to the kernel at once comes
# again page by page: that was a fifth of the processor time of a replay.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
# Arrow's Java looks at each value whether it is within bounds and is there at all; Spark has asked before.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


class SessionFailed(Exception):
    """Spark does not start; the text is one line that says why."""


class Session:
    """One start of Spark, from `begin` to `close`.

    master    as Spark knows it
    conf      what the user sets, which goes before what is set here
    is_light  the JVM only hands bytes on: it starts sooner, and computes more slowly

    Everything temporary, Spark's own files too, is in one directory that `close` removes.
    """

    def __init__(
        self, master: str, conf: Mapping[str, str] | None = None, *, is_light: bool = False, java: Java | None = None
    ) -> None:
        """Raises JavaNotFound."""
        self._master = master
        self._given = dict(conf or {})
        self._is_light = is_light
        self._java = java or find_java(os.environ)
        self._directory = Path(tempfile.mkdtemp(prefix="nsqd-py-spark-"))
        self._jvm = Jvm(self._directory, self.log_path)
        self._gateway: Any = None
        self._context: SparkContext | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def log_path(self) -> Path:
        return self._directory / "spark.log"

    def begin(self) -> None:
        """Start, without waiting for it."""
        self._thread.start()

    def has_started(self, timeout_s: float) -> bool:
        """Whether it has, or has failed, after at most so long."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def context(self) -> SparkContext:
        """Waits for it. Raises SessionFailed."""
        self._thread.join()
        if self._context is None:
            raise SessionFailed(self._why()) from self._error
        return self._context

    def close(self) -> None:
        """Ends Spark within seconds; also while it starts."""
        if not is_local(self._master):  # a cluster is told; of a local master nothing is left when its JVM has gone
            _run_for(STOP_S, self._stop_context)
        self._jvm.end()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
        self._forget()
        shutil.rmtree(self._directory, ignore_errors=True)

    # ---- starting

    def _start(self) -> None:
        try:
            self._launch()
        except Exception as error:  # noqa: BLE001 - py4j and pyspark have many, and whoever waits is told of any
            self._error = error

    def _launch(self) -> None:
        conf, environment = self._conf(), self._environment()
        self._jvm.start(conf, environment)
        from pyspark import SparkConf, SparkContext  # 0.3 s, in which the JVM starts

        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it speaks of connections that a stop cuts
        spark_conf = SparkConf(loadDefaults=False)
        spark_conf.setAll(list(conf.items()))
        with changed_environment({"PYSPARK_PYTHON": environment["PYSPARK_PYTHON"]}):
            self._gateway = self._jvm.connect(spark_conf)
            context = SparkContext(conf=spark_conf, gateway=self._gateway)
        # It listens to the JVM, and would say on standard error when that has gone.
        context._accumulatorServer.handle_error = _say_nothing  # type: ignore[method-assign]
        if not is_local(self._master):
            context.addPyFile(str(zip_packages(self._directory / "nsqd_py_packages.zip")))
        self._context = context

    def _conf(self) -> dict[str, str]:
        given = dict(self._given)
        own = {
            "spark.app.name": "nsqd-py",
            "spark.master": self._master,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(self._directory / "warehouse"),
        }
        if "SPARK_LOCAL_DIRS" not in os.environ:
            own["spark.local.dir"] = str(self._directory)
        own |= {f"spark.executorEnv.{name}": value for name, value in _MALLOC.items()}
        java = f"{_UNCHECKED} {_LIGHT}" if self._is_light else _UNCHECKED
        java_options = {
            _DRIVER_OPTIONS: (*self._places(), java, given.pop(_DRIVER_OPTIONS, "")),
            _EXECUTOR_OPTIONS: (java, given.pop(_EXECUTOR_OPTIONS, "")),
        }
        joined = {name: " ".join(filter(None, words)) for name, words in java_options.items() if any(words)}
        return {**own, **given, **joined}

    def _places(self) -> tuple[str, str]:
        """Options of the driver's Java: how it logs, and where its temporary files are."""
        log4j = self._directory / "log4j2.properties"
        log4j.write_text(_LOG4J)
        return f"-Dlog4j2.configurationFile={log4j.as_uri()}", f"-Djava.io.tmpdir={self._directory}"

    def _environment(self) -> dict[str, str]:
        java = self._java
        home = bundled_home(java, self._directory) if java.is_bundled else java.home
        environment = {
            "JAVA_HOME": str(home),
            "PATH": os.environ.get("PATH") or os.defpath,
            "SPARK_HOME": os.environ.get("SPARK_HOME") or self._spark_home(),
            "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", _LAUNCHER),
            "PYSPARK_PYTHON": self._python(),
            "PYTHONPATH": _python_path(),
        }
        if is_on_loopback(self._master):
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        return environment

    def _spark_home(self) -> str:
        """Where PySpark is. Workers of a local-cluster write there: they get a directory with links to it."""
        if not is_local_cluster(self._master):
            return _package_directory()
        home = self._directory / "spark"
        home.mkdir()
        for name in ("bin", "jars", "python"):
            (home / name).symlink_to(Path(_package_directory(), name))
        return str(home)

    def _python(self) -> str:
        """That of the executors."""
        return self._given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable

    def _why(self) -> str:
        log = self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""
        reason = reason_in(log) or str(self._error).strip().partition("\n")[0] or "no reason given"
        return f"Spark does not start on {self._master}: {reason}"

    # ---- ending

    def _stop_context(self) -> None:
        if self._context is not None:
            with contextlib.suppress(Exception):  # the JVM may be gone already
                self._context.stop()

    def _forget(self) -> None:
        """So that another session of this process gets a JVM of its own. One that was there before is left alone."""
        if self._gateway is None:
            return
        from pyspark import SparkContext

        if self._context is not None:
            self._stop_context()
            SparkContext._active_spark_context = None
        with contextlib.suppress(Exception):  # what is left of its connections
            self._gateway.shutdown()
        if SparkContext._gateway is self._gateway:
            SparkContext._gateway = SparkContext._jvm = None


def reason_in(log: str) -> str:
    """The last error that Spark and Java tell of, without the names of classes; else the last line."""
    errors = _ERROR.findall(log)
    if errors:
        return str(errors[-1])
    lines = log.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _say_nothing(request: object, client_address: object) -> None:
    pass


def _package_directory() -> str:
    """That of pyspark, found without the time that importing it takes."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations
    return spec.submodule_search_locations[0]


def _python_path() -> str:
    """Python processes that Spark starts import our packages as this one does, from a checkout too."""
    folders = [folder for folder in import_folders() if Path(folder).name not in ("site-packages", "dist-packages")]
    return os.pathsep.join(filter(None, (*folders, os.environ.get("PYTHONPATH", ""))))


def _run_for(limit_s: float, work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)


@contextlib.contextmanager
def quiet_context(master: str = "local[*]", conf: Mapping[str, str] | None = None) -> Iterator[SparkContext]:
    """A SparkContext, for what needs no tables. Raises JavaNotFound and SessionFailed."""
    with Session(master, conf) as session:
        yield session.context()


@contextlib.contextmanager
def quiet_session(master: str = "local[*]", conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A SparkSession. Raises JavaNotFound and SessionFailed."""
    from pyspark.sql import SparkSession

    with quiet_context(master, conf) as context:
        yield SparkSession(context)
