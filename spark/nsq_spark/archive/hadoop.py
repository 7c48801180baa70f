"""Hadoop's own file systems (hdfs, viewfs, what a company has added), in a Java that this process starts.

Executors work in Python processes that cannot reach the JVM of Spark, so each that needs Hadoop starts a small JVM
with the classes of Spark (`$SPARK_HOME/jars`, or those of the package pyspark), SPARK_DIST_CLASSPATH and the
configuration in HADOOP_CONF_DIR. It starts in seconds, reads some 20 MB/s, and ends with the process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from xml.etree import ElementTree

import pyarrow.fs as pafs

from nsq_spark.archive.errors import ArchiveError

_HEAP = "-Xmx256m"
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class HadoopFile:
    """An open file; see `nsq_spark.archive.storage.File`."""

    def __init__(self, jvm: Any, stream: Any, size_bytes: int) -> None:
        self._jvm = jvm
        self._stream = stream
        self._size_bytes = size_bytes
        where = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
        self._passage = tempfile.NamedTemporaryFile(prefix="nsq-hadoop-", dir=where or None)  # noqa: SIM115 - `close`

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read_at(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self._size_bytes - offset))
        if not size:
            return b""
        # Bytes through py4j are base64: 2 MB/s. Through a local file they are 100 times as fast.
        with _os_errors():
            self._stream.seek(offset)
            out = self._jvm.java.io.FileOutputStream(self._passage.name)
            try:
                self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(self._stream, out, size, False)
            finally:
                out.close()
        return os.pread(self._passage.fileno(), size, 0)

    def close(self) -> None:
        self._passage.close()
        with _os_errors():
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HadoopFiles:
    """A file system of Hadoop with those methods of pyarrow's that `Storage` calls. They raise OSError."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        """Raises ArchiveError where no Java can be started, and OSError."""
        self._jvm = _gateway(os.getpid()).jvm
        with _os_errors():
            settings = self._jvm.org.apache.hadoop.conf.Configuration()
            for name, value in options.items():
                settings.set(name, value)
            self._files = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(self._jvm.java.net.URI(uri), settings)

    def open_file(self, path: str) -> HadoopFile:
        with _os_errors():
            place = self._path(path)
            return HadoopFile(self._jvm, self._files.open(place), self._files.getFileStatus(place).getLen())

    def get_file_info(self, what: Any) -> Any:
        """Of a path; or of all that a FileSelector chooses, in a list."""
        if isinstance(what, str):
            try:
                with _os_errors():
                    return _info(what, self._files.getFileStatus(self._path(what)))
            except FileNotFoundError:
                return pafs.FileInfo(what, pafs.FileType.NotFound)
        return list(self._below(what.base_dir, recursive=what.recursive))

    def _below(self, directory: str, *, recursive: bool) -> Iterator[pafs.FileInfo]:
        try:
            with _os_errors():
                found = list(self._files.listStatus(self._path(directory)))
        except FileNotFoundError:
            return
        for status in found:
            info = _info(f"{directory.rstrip('/')}/{status.getPath().getName()}", status)
            yield info
            if recursive and info.type == pafs.FileType.Directory:
                yield from self._below(info.path, recursive=True)

    def _path(self, path: str) -> Any:
        # As parts: a colon in a name would be read as the end of a scheme.
        return self._jvm.org.apache.hadoop.fs.Path(None, None, path)


def _info(path: str, status: Any) -> pafs.FileInfo:
    kind = pafs.FileType.Directory if status.isDirectory() else pafs.FileType.File
    return pafs.FileInfo(path, kind, size=status.getLen(), mtime_ns=status.getModificationTime() * 1_000_000)


@contextmanager
def _os_errors() -> Iterator[None]:
    """What Java throws becomes an OSError."""
    try:
        yield
    except Exception as error:
        java = getattr(error, "java_exception", None)
        if java is None:
            raise
        name = java.getClass().getName().rpartition(".")[2]
        text = str(java.getMessage() or name).partition("\n")[0]
        if name == "FileNotFoundException":
            raise FileNotFoundError(text) from error
        raise OSError(text if "Exception" in text else f"{name}: {text}") from error


@lru_cache(maxsize=1)
def _gateway(process: int) -> Any:
    """py4j's gateway to a new JVM that ends with this process. Raises ArchiveError."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    from nsq_spark.java import JavaNotFound, find_java

    jars = _jars()
    bridge = next(iter(sorted(jars.glob("py4j-*.jar"))), None)
    try:
        java = find_java(os.environ).home / "bin" / "java"
    except JavaNotFound as error:
        raise ArchiveError(str(error).replace("Spark", "Hadoop's file system", 1)) from None
    if bridge is None:
        raise ArchiveError(f"Hadoop's file system needs the classes of Spark: there is no py4j-*.jar in {jars}")
    places = (os.environ.get("HADOOP_CONF_DIR"), f"{jars}/*", os.environ.get("SPARK_DIST_CLASSPATH"))
    port, token = launch_gateway(
        jarpath=str(bridge), classpath=os.pathsep.join(filter(None, places)), javaopts=[_HEAP, *_QUICK_START],
        java_path=str(java), die_on_exit=True, enable_auth=True,
    )  # fmt: skip
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))


def _jars() -> Path:
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home, "jars")
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ArchiveError("Hadoop's file system needs the classes of Spark: pip install 'nsqd-py[spark]'")
    return Path(spec.origin).parent / "jars"


def configured_default(environ: Mapping[str, str]) -> str:
    """`fs.defaultFS` of HADOOP_CONF_DIR; empty where there is none."""
    directory = environ.get("HADOOP_CONF_DIR", "")
    try:
        root = ElementTree.parse(Path(directory, "core-site.xml")).getroot()
    except (OSError, ElementTree.ParseError):
        return ""
    for one in root.iter("property"):
        if (one.findtext("name") or "").strip() == "fs.defaultFS":
            return (one.findtext("value") or "").strip()
    return ""
