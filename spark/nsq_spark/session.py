"""Start Spark as a quiet library: its JVM writes to a log file, and listens on loopback where that is possible.

    with quiet_session("local[2]") as spark:
        spark.range(10).count()

A start takes seconds. `SparkStart` therefore starts Spark in a thread, and its caller goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self
from zipfile import ZIP_DEFLATED, ZipFile

from nsq_spark.class_archive import class_archive
from nsq_spark.java import Java, bundled_home, find_java

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PACKAGES = ("nsqd_py", "nsq_spark", "nsq_tools", "pyspark_nsq")
_STOP_S = 1.5
_KILLS = 15
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
# PySpark runs this in place of Spark's own spark-submit. The JVM ends when this process does, however that ends; it
# exits with 0 then, and what both have left is removed. After a failure the log is still to be read.
_SUBMIT = """\
#!/bin/sh
export {exports}
echo $$ > {directory}/pid
"$SPARK_HOME/bin/spark-submit" "$@" && {{ {afterwards}; rm -rf {directory}; }}
"""
# Keeps the archive of classes that the JVM has written; it takes its place in one step.
_KEEP = "if [ -s {new} ]; then cp {new} {kept}.$$ && mv -f {kept}.$$ {kept}; fi"
_DRIVER_OPTIONS, _EXECUTOR_OPTIONS = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
_ERROR = re.compile(r"^(?:.*?\b[\w.$]+(?:Exception|Error): |Error: )(.+?)\s*$", re.MULTILINE)
# What `spark-replay` asks of its JVM. All its classes come from Spark's own files: to verify them takes an eighth of a
# start. LIGHT is for a JVM that only hands bytes on, or computes little. Until its first task, with Spark SQL, a replay
# takes 7.8 s of processor time; 8.6 s with verification, 9.8 s with COMPUTING, and 13 s with Java's defaults. For a
# predicate over 2 million messages it takes 17.0, 18.0, 15.9 and 21.4 s: COMPUTING leaves only the hottest code to the
# optimising compiler.
_JVM = "-XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
LIGHT = f"{_JVM} -XX:TieredStopAtLevel=1"
COMPUTING = f"{_JVM} -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
# Python processes allocate and free blocks of megabytes all the time. What malloc returns to the kernel is mapped again
# page by page: that was a fifth of the processor time of a replay.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
# Arrow's Java checks the bounds and the null bit of each value; Spark has checked before.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

_LOCAL = re.compile(r"local(?:\[(?P<threads>\d+|\*)(?:, *\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ *(?P<workers>\d+) *, *(?P<cores>\d+) *, *\d+ *\]")
_LOOPBACK = re.compile(r"spark://(?:127\.[\d.]+|localhost|\[::1\]):\d+")
_REMOTE = re.compile(r"(spark|k8s|yarn)(://.+)?")


class SessionFailed(Exception):
    """Spark did not start; the text is one line that gives the reason."""


# ---- masters


def is_master(text: str) -> bool:
    """True if the text can be the URL of a Spark master."""
    return any(pattern.fullmatch(text) for pattern in (_LOCAL, _LOCAL_CLUSTER, _REMOTE))


def is_local(master: str) -> bool:
    """True if tasks are threads of the driver, so that their Python processes see the driver's files."""
    return _LOCAL.fullmatch(master) is not None


def is_local_cluster(master: str) -> bool:
    """True if the driver starts workers on its machine."""
    return _LOCAL_CLUSTER.fullmatch(master) is not None


def is_on_loopback(master: str) -> bool:
    """True if all of Spark runs on this machine."""
    return any(pattern.fullmatch(master) for pattern in (_LOCAL, _LOCAL_CLUSTER, _LOOPBACK))


def known_slots(master: str, cores: int) -> int | None:
    """Return how many tasks run at a time on a machine with `cores` cores; None if only the cluster knows."""
    if match := _LOCAL.fullmatch(master):
        threads = match["threads"] or "1"
        return cores if threads == "*" else int(threads)
    if match := _LOCAL_CLUSTER.fullmatch(master):
        return int(match["workers"]) * int(match["cores"])
    return None


# ---- sessions


class SparkStart:
    """One start of Spark, while it is entered; `close` ends it too.

    master        URL of the Spark master
    conf          the user's settings; they override those that are set here
    java_options  of the driver and the executors, such as LIGHT
    is_recorded   keep the classes of this JVM for later starts, if no archive of them is there: see `class_archive`

    All temporary files, Spark's own too, are in one directory, which `close` removes.
    """

    def __init__(
        self,
        master: str,
        conf: Mapping[str, str] | None = None,
        *,
        java_options: str = "",
        java: Java | None = None,
        is_recorded: bool = False,
    ) -> None:
        """Raises JavaNotFound."""
        self._master = master
        self._given = dict(conf or {})
        self._java_options = java_options
        self._java = java or find_java(os.environ)
        self._directory = Path(tempfile.mkdtemp(prefix="nsqd-py-spark-"))
        self._log_path = self._directory / "spark.log"
        self._home = Path(os.environ.get("SPARK_HOME") or _folder_of("pyspark"))
        self._classes = class_archive(self._java, self._home) if is_local(master) else None
        self._new_classes = self._directory / "classes.jsa"
        self._is_recorded = is_recorded and self._classes is not None and not self._classes.exists()
        self._gateway: Any = None
        self._context: SparkContext | None = None
        self._error: Exception | None = None
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._is_recorded and self._context is not None:
            self._let_go()
        else:
            self.close()

    def has_started(self, timeout_s: float) -> bool:
        """True if the start has succeeded or failed within `timeout_s` seconds."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def context(self) -> SparkContext:
        """Return the SparkContext, once Spark has started. Raises SessionFailed."""
        self._thread.join()
        if self._context is None:
            log = self._log_path.read_text("utf-8", "replace") if self._log_path.exists() else ""
            reason = reason_in(log) or str(self._error).strip().partition("\n")[0] or "no reason given"
            raise SessionFailed(f"Spark does not start on {self._master}: {reason}") from self._error
        return self._context

    def close(self) -> None:
        """End Spark within seconds, also while it starts."""
        if not is_local(self._master):  # a cluster has to be told; a local master ends with its JVM
            stopping = threading.Thread(target=self._stop_context, daemon=True)
            stopping.start()
            stopping.join(_STOP_S)
        self._is_closed.set()
        for _ in range(_KILLS):  # there may not be a process yet
            self._kill()
            if self.has_started(_STOP_S / _KILLS):
                break
        self._forget()
        if process := getattr(self._gateway, "proc", None):
            process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _let_go(self) -> None:
        """Let the JVM end by itself: it writes the archive of its classes, and the directory is removed after that."""
        self._forget()
        self._gateway.proc.stdin.close()

    # ---- starting

    def _start(self) -> None:
        try:
            self._launch()
        except Exception as error:  # noqa: BLE001 - py4j and PySpark raise many kinds; `context` reports all of them
            self._error = error

    def _launch(self) -> None:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs connections that a stop cuts
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(self._conf().items()))
        home = self._write_submit()
        if self._is_closed.is_set():
            return
        with self._log_path.open("ab") as log, _environment(SPARK_HOME=str(home), PYSPARK_PYTHON=self._python()):
            # In a session of its own, the JVM does not get the signals of the terminal's keys.
            pipes = {"stdout": log, "stderr": log, "start_new_session": True}
            self._gateway = launch_gateway(conf, pipes)  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=self._gateway)
        # Its server for accumulators would print a traceback when the JVM has ended.
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
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
            **{f"spark.executorEnv.{name}": value for name, value in _MALLOC.items()},
        }
        if "SPARK_LOCAL_DIRS" not in os.environ:
            own["spark.local.dir"] = str(self._directory)
        log4j = self._directory / "log4j2.properties"
        log4j.write_text(_LOG4J)
        java = f"{_UNCHECKED} {self._java_options}"
        driver = f"-Dlog4j2.configurationFile={log4j.as_uri()} -Djava.io.tmpdir={self._directory} {java}"
        if self._is_recorded:
            driver += f" -XX:ArchiveClassesAtExit={self._new_classes}"
        elif self._classes is not None and self._classes.exists():
            driver += f" -XX:SharedArchiveFile={self._classes}"
        options = {
            _DRIVER_OPTIONS: f"{driver} {given.pop(_DRIVER_OPTIONS, '')}".strip(),
            _EXECUTOR_OPTIONS: f"{java} {given.pop(_EXECUTOR_OPTIONS, '')}".strip(),
        }
        return {**own, **given, **options}

    def _write_submit(self) -> Path:
        """Return a SPARK_HOME whose spark-submit starts Spark's own in the right environment."""
        home = self._directory / "spark"
        (home / "bin").mkdir(parents=True)
        real = self._home
        if is_local_cluster(self._master):  # its workers write into their SPARK_HOME
            real = home / "real"
            real.mkdir()
            for entry in self._home.iterdir():
                if entry.name != "work":
                    (real / entry.name).symlink_to(entry)
        java = bundled_home(self._java, self._directory) if self._java.is_bundled else self._java.home
        exports = {
            "JAVA_HOME": str(java),
            "PATH": os.environ.get("PATH") or os.defpath,
            "SPARK_HOME": str(real),
            "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", f"{LIGHT} -Xshare:auto"),
            "PYSPARK_PYTHON": self._python(),
            "PYTHONPATH": _python_path(),
            **({"SPARK_LOCAL_IP": "127.0.0.1"} if is_on_loopback(self._master) else {}),
        }
        words = " ".join(f"{name}={quote(value)}" for name, value in exports.items())
        submit = home / "bin" / "spark-submit"
        new, kept, directory = (quote(str(path)) for path in (self._new_classes, self._classes, self._directory))
        afterwards = _KEEP.format(new=new, kept=kept) if self._is_recorded else ":"
        submit.write_text(_SUBMIT.format(exports=words, directory=directory, afterwards=afterwards))
        submit.chmod(0o755)
        return home

    def _python(self) -> str:
        """Return the Python of the executors."""
        return self._given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable

    # ---- ending

    def _kill(self) -> None:
        """End the JVM and all processes that it has started, at once."""
        with contextlib.suppress(OSError, ValueError):  # not started yet, or ended
            os.killpg(int((self._directory / "pid").read_text()), signal.SIGKILL)

    def _stop_context(self) -> None:
        if self._context is not None:
            with contextlib.suppress(Exception):  # the JVM may have ended already
                self._context.stop()

    def _forget(self) -> None:
        """Let another session of this process start its own JVM. A gateway that was there before stays."""
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
    """Return the last error in a log of Spark and Java, without the names of classes; else its last line."""
    errors = _ERROR.findall(log)
    if errors:
        return str(errors[-1])
    lines = log.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def zip_packages(path: Path) -> Path:
    """Write our packages to a new zip file, as Spark's `addPyFile` takes it, and return its path."""
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for package in PACKAGES:
            folder = _folder_of(package)
            for module in sorted(folder.rglob("*.py")):
                archive.write(module, module.relative_to(folder.parent))
    return path


@contextlib.contextmanager
def quiet_session(master: str = "local[*]", conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Yield a SparkSession. Raises JavaNotFound and SessionFailed."""
    with SparkStart(master, conf) as session:
        context = session.context()
        from pyspark.sql import SparkSession

        yield SparkSession(context)


@contextlib.contextmanager
def _environment(**changes: str) -> Iterator[None]:
    """Change the environment of this process while the context is entered."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
