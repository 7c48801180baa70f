"""File systems by the scheme of a path, opened with the settings that Spark has for Hadoop's.

    s3a, s3n, s3   fs.s3a.access.key, .secret.key, .session.token, .endpoint, .endpoint.region,
                   .connection.ssl.enabled, .path.style.access, .aws.credentials.provider (anonymous);
                   fs.s3a.bucket.<bucket>.… goes before these
    abfs, abfss    fs.azure.account.key, fs.azure.sas.fixed.token, fs.azure.account.oauth2.client.id, .secret,
                   .endpoint; <setting>.<account>.dfs.core.windows.net goes before these
    gs             as the machine is logged in to Google
    hdfs, viewfs and others   what Hadoop makes of them, in a Java that this process starts: `hadoop`

Without keys, pyarrow looks where Amazon's and Microsoft's tools look: the environment, the machine's role.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pyarrow.fs as pafs

from nsq_spark.archive.damage import ArchiveError
from nsq_spark.archive.files import File

_JAVA_OPTIONS = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # a small one that starts quickly


class HadoopFile(File):
    """An open file of a file system of Hadoop."""

    def __init__(self, jvm: Any, stream: Any, size_bytes: int) -> None:
        self._jvm = jvm
        self._stream = stream
        self._size_bytes = size_bytes
        # Bytes through py4j are base64: 2 MB/s. Through a local file they are 100 times as fast.
        where = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
        self._passage = tempfile.NamedTemporaryFile(prefix="nsq-hadoop-", dir=where or None)  # noqa: SIM115 - `close`

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read_at(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self._size_bytes - offset))
        if not size:
            return b""
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


class HadoopFiles:
    """A file system of Hadoop, with the methods of pyarrow's that `Storage` calls. They raise OSError."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        """Raises ArchiveError if no Java can be started, and OSError."""
        self._jvm = _gateway(os.getpid()).jvm
        with _os_errors():
            settings = self._jvm.org.apache.hadoop.conf.Configuration()
            for name, value in options.items():
                settings.set(name, value)
            self._files = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(self._jvm.java.net.URI(uri), settings)

    def open_input_file(self, path: str) -> HadoopFile:
        with _os_errors():
            place = self._path(path)
            return HadoopFile(self._jvm, self._files.open(place), self._files.getFileStatus(place).getLen())

    def get_file_info(self, what: Any) -> Any:
        """Return the FileInfo of a path, or a list of those that a FileSelector chooses."""
        if not isinstance(what, str):
            return list(self._below(what.base_dir, recursive=what.recursive))
        try:
            with _os_errors():
                return _info(what, self._files.getFileStatus(self._path(what)))
        except FileNotFoundError:
            return pafs.FileInfo(what, pafs.FileType.NotFound)

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
    """Raise what Java throws as an OSError."""
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
    """Return py4j's gateway to a new JVM that ends with this process. Raises ArchiveError."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    from nsq_spark.java import JavaNotFound, find_java

    spec = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (Path(spec.origin).parent if spec and spec.origin else "")
    jars = Path(home, "jars")
    bridge = next(iter(sorted(jars.glob("py4j-*.jar"))), None)
    if bridge is None:
        raise ArchiveError(
            f"Hadoop's file system needs the classes of Spark: there is no py4j-*.jar in {jars}; pip install 'nsqd-py[spark]'"
        )
    try:
        java = find_java(os.environ).home / "bin" / "java"
    except JavaNotFound as error:
        raise ArchiveError(str(error).replace("Spark", "Hadoop's file system", 1)) from None
    places = (os.environ.get("HADOOP_CONF_DIR"), f"{jars}/*", os.environ.get("SPARK_DIST_CLASSPATH"))
    port, token = launch_gateway(
        jarpath=str(bridge),
        classpath=os.pathsep.join(filter(None, places)),
        javaopts=_JAVA_OPTIONS,
        java_path=str(java),
        die_on_exit=True,
        enable_auth=True,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))


def configured_default(environ: Mapping[str, str]) -> str:
    """Return `fs.defaultFS` of HADOOP_CONF_DIR; empty if there is none."""
    directory = environ.get("HADOOP_CONF_DIR", "")
    try:
        root = ElementTree.parse(Path(directory, "core-site.xml")).getroot()
    except (OSError, ElementTree.ParseError):
        return ""
    for one in root.iter("property"):
        if (one.findtext("name") or "").strip() == "fs.defaultFS":
            return (one.findtext("value") or "").strip()
    return ""


# ---- file systems by their schemes

_S3, _AZURE = "fs.s3a.", "fs.azure."
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
# Names of pyarrow's arguments by Hadoop's settings.
_S3_TEXTS = {
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    "endpoint.region": "region",
}
_AZURE_TEXTS = {
    "account.key": "account_key",
    "sas.fixed.token": "sas_token",
    "account.oauth2.client.id": "client_id",
    "account.oauth2.client.secret": "client_secret",
}
_AZURE_HOST = "dfs.core.windows.net"


class System(NamedTuple):
    """An open file system. A path `uri` + x is `root` + x in it."""

    files: Any
    uri: str
    root: str

    def inner(self, path: str) -> str:
        behind = path[len(self.uri) :]
        return (self.root + behind).rstrip("/") or "/"

    def outer(self, inner: str) -> str:
        return self.uri + inner[len(self.root) :]


def s3_arguments(options: Mapping[str, str], bucket: str = "") -> dict[str, object]:
    """Return the arguments of pyarrow's S3FileSystem for a bucket."""
    own = f"{_S3}bucket.{bucket}."
    options = {**options, **{_S3 + name[len(own) :]: text for name, text in options.items() if name.startswith(own)}}
    arguments: dict[str, object] = {name: text for key, name in _S3_TEXTS.items() if (text := options.get(_S3 + key))}
    if endpoint := options.get(_S3 + "endpoint"):
        scheme, found, host = endpoint.rpartition("://")
        is_encrypted = options.get(_S3 + "connection.ssl.enabled", "true").lower() != "false"
        arguments["endpoint_override"] = host
        arguments["scheme"] = scheme if found else "https" if is_encrypted else "http"
        # Spark's default is the bucket in the host's name; what is not Amazon's seldom has names for that.
        arguments["force_virtual_addressing"] = options.get(_S3 + "path.style.access", "true").lower() == "false"
    if _ANONYMOUS in options.get(_S3 + "aws.credentials.provider", ""):
        arguments["anonymous"] = True
    return arguments


def azure_arguments(options: Mapping[str, str], host: str) -> dict[str, object]:
    """Return the arguments of pyarrow's AzureFileSystem for `<account>.dfs.core.windows.net`, or an account alone."""
    account, _, domain = host.partition(".")
    full = f"{account}.{domain or _AZURE_HOST}"

    def given(key: str) -> str | None:
        return options.get(f"{_AZURE}{key}.{full}") or options.get(_AZURE + key)

    arguments: dict[str, object] = {"account_name": account}
    arguments |= {name: text for key, name in _AZURE_TEXTS.items() if (text := given(key))}
    if endpoint := given("account.oauth2.client.endpoint"):  # https://login.microsoftonline.com/<tenant>/oauth2/token
        arguments["tenant_id"] = endpoint.partition("://")[2].split("/")[1]
    if domain and domain != _AZURE_HOST:
        arguments["dfs_storage_authority"] = f".{domain}"
        arguments["blob_storage_authority"] = f".{domain.replace('dfs.', 'blob.', 1)}"
    return arguments


def open_system(scheme: str, authority: str, options: Mapping[str, str]) -> System:
    """Raises ArchiveError, OSError, ValueError and pyarrow's errors."""
    uri = f"{scheme}://{authority}/"
    if scheme in ("s3a", "s3n", "s3"):
        return System(pafs.S3FileSystem(**s3_arguments(options, authority)), uri, f"{authority}/")
    if scheme == "gs":
        return System(pafs.GcsFileSystem(), uri, f"{authority}/")
    if scheme not in ("abfs", "abfss"):
        return System(HadoopFiles(uri, options), uri, "/")
    container, found, host = authority.partition("@")
    if not found:
        raise ArchiveError(
            f"{scheme}://{authority} names no container: write {scheme}://<container>@<account>.{_AZURE_HOST}/<path>"
        )
    return System(pafs.AzureFileSystem(**azure_arguments(options, host)), uri, f"{container}/")
