"""Spark's JVM as a child process, started by `spark-submit` as PySpark does it.

PySpark can start it too (`pyspark.java_gateway`), but keeps the process to itself until it answers, and a start that
is given up has to end with us. So it is started here and PySpark connects to it, by the environment variables that
`spark-submit` of a Python program sets for that.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkConf

_POLL_S = 0.02
# `cat` waits until this process closes the pipe, or is gone: a log that says why a start failed is still to be read.
_WITH_ITS_DIRECTORY = '"$@"; : > "$0/ended"; cat > /dev/null; rm -rf -- "$0"'
# What PythonGatewayServer writes: its port, the size of its secret, the secret.
_INFO = struct.Struct(">ii")


class JvmEnded(Exception):
    """It ended before it could be talked to; its log tells why."""


class Jvm:
    """Ends when it is told to, and when this process does: it reads from a pipe that is closed then.

    directory  where it leaves word of its port; log_path: what it and its Python processes write
    """

    def __init__(self, directory: Path, log_path: Path) -> None:
        self._info_path = directory / "gateway"
        self._log_path = log_path
        self._lock = threading.Lock()
        self._is_ended = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, conf: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """`environment` is added to that of this process. Raises OSError, JvmEnded."""
        settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        submit = [f"{environment['SPARK_HOME']}/bin/spark-submit", *settings, "pyspark-shell"]
        # The JVM ends when this process does, however that ends; the shell then removes what both have left.
        command = ["/bin/sh", "-c", _WITH_ITS_DIRECTORY, str(self._info_path.parent), *submit]
        told = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info_path)}
        with self._lock, self._log_path.open("ab") as log:
            if self._is_ended:
                raise JvmEnded
            # In a session of its own, the keys of the terminal do not reach it.
            self._process = subprocess.Popen(
                command, env={**os.environ, **environment, **told}, stdin=subprocess.PIPE, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def connect(self, conf: SparkConf) -> Any:
        """py4j's gateway to it, once it listens. Raises JvmEnded."""
        from pyspark.java_gateway import launch_gateway

        assert self._process is not None
        while not self._info_path.exists():
            if self._process.poll() is not None or self._info_path.with_name("ended").exists():
                raise JvmEnded
            threading.Event().wait(_POLL_S)
        info = self._info_path.read_bytes()
        port, size = _INFO.unpack_from(info)
        secret = info[_INFO.size : _INFO.size + size].decode()
        with changed_environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            return launch_gateway(conf)  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """At once, whatever it is doing."""
        with self._lock:
            self._is_ended = True
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@contextmanager
def changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    """This process's environment, while it is entered."""
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
