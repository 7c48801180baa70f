"""Object stores by their URLs: S3, Google Cloud Storage, Azure; and HDFS.

Settings are Hadoop's by name, as in Spark (`fs.s3a.endpoint`). Those that are not given are taken from the environment, by the
names that Amazon's and Azure's tools use, and from the files and services that the clients ask themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

S3_SCHEMES = ("s3a", "s3n", "s3")
NO_SETTINGS: Mapping[str, str] = {}

_S3 = "fs.s3a."
_AZURE = "fs.azure."
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
# pyarrow's arguments: their names in Hadoop's settings, and in the environment. Keys of the environment are left to the client,
# which also knows profiles and the services of Amazon's machines.
_S3_TEXTS = {
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "region": "endpoint.region",
}
_ENDPOINT_NAMES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGION_NAMES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AZURE_TEXTS = {
    "account_key": ("account.key", "AZURE_STORAGE_ACCOUNT_KEY"),
    "sas_token": ("sas.fixed.token", "AZURE_STORAGE_SAS_TOKEN"),
}
_AZURE_HOST = "dfs.core.windows.net"

_OF_DELTA = {
    "access_key": "aws_access_key_id",
    "secret_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "aws_region",
    "endpoint": "aws_endpoint",
    "allow_http": "aws_allow_http",
    "force_virtual_addressing": "aws_virtual_hosted_style_request",
    "anonymous": "aws_skip_signature",
    "account_name": "azure_storage_account_name",
    "account_key": "azure_storage_account_key",
    "sas_token": "azure_storage_sas_token",
}
_OF_ICEBERG = {
    "access_key": "s3.access-key-id",
    "secret_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "endpoint": "s3.endpoint",
    "force_virtual_addressing": "s3.force-virtual-addressing",
    "anonymous": "s3.anonymous",
    "account_name": "adls.account-name",
    "account_key": "adls.account-key",
    "sas_token": "adls.sas-token",
}


class Store(NamedTuple):
    """An open file system. A path `uri` + x is `root` + x in it; `bucket` contains all of them, "" if there is none."""

    files: Any
    uri: str
    root: str
    bucket: str = ""

    def inner(self, path: str) -> str:
        behind = path[len(self.uri) :]
        return (self.root + behind).rstrip("/") or "/"

    def outer(self, inner: str) -> str:
        return self.uri + inner[len(self.root) :]

    def check_bucket(self) -> None:
        """Raise FileNotFoundError if the bucket or container is not there, and OSError if the store does not answer."""
        from pyarrow import fs

        if not self.bucket:
            return
        try:
            info = self.files.get_file_info(self.bucket)
        except OSError as error:
            if "ACCESS_DENIED" in str(error):  # some may only use a part of the bucket
                return
            raise
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no bucket {self.bucket}")


def open_store(url: str, settings: Mapping[str, str] = NO_SETTINGS, *, retry_s: float | None = None) -> Store:
    """Open the store of a URL; `retry_s` limits the time of an attempt where the client may take a quarter of an hour.

    Raises OSError, ValueError and pyarrow's errors; ValueError if the URL of Azure has no container.
    """
    from pyarrow import fs

    scheme, authority = urlsplit(url)[:2]
    uri = f"{scheme}://{authority}/"
    if scheme in S3_SCHEMES:
        return Store(fs.S3FileSystem(**s3_arguments(settings, authority)), uri, f"{authority}/", authority)
    if scheme == "gs":
        limit = None if retry_s is None else timedelta(seconds=retry_s)
        return Store(fs.GcsFileSystem(retry_time_limit=limit), uri, f"{authority}/", authority)
    if scheme == "az":
        arguments = azure_arguments(settings, os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", ""))
        return Store(fs.AzureFileSystem(**arguments), uri, f"{authority}/", authority)
    if scheme not in ("abfs", "abfss"):
        return Store(fs.HadoopFileSystem.from_uri(uri), uri, "/")
    container, found, host = authority.partition("@")
    if not found:
        raise ValueError(
            f"{scheme}://{authority} names no container: write <container>@<account>.{_AZURE_HOST}"
        )
    return Store(fs.AzureFileSystem(**azure_arguments(settings, host)), uri, f"{container}/", container)


# --- settings


def s3_arguments(settings: Mapping[str, str], bucket: str = "") -> dict[str, object]:
    """Return the arguments of pyarrow's S3FileSystem for a bucket. Raises OSError if Amazon does not know the bucket."""
    own = f"{_S3}bucket.{bucket}."
    given = settings
    settings = dict(given)
    for name, value in given.items():
        if name.startswith(own):
            settings[_S3 + name.removeprefix(own)] = value
    arguments: dict[str, object] = {}
    for name, key in _S3_TEXTS.items():
        text = settings.get(_S3 + key)
        if text:
            arguments[name] = text
    endpoint = settings.get(f"{_S3}endpoint") or _environment(*_ENDPOINT_NAMES)
    if endpoint:
        scheme, found, host = endpoint.rpartition("://")
        is_encrypted = settings.get(f"{_S3}connection.ssl.enabled", "true").lower() != "false"
        arguments["endpoint_override"] = host.rstrip("/")
        if not found:
            scheme = "https" if is_encrypted else "http"
        arguments["scheme"] = scheme
        # Spark's default is the bucket in the host's name; what is not Amazon's seldom has names for that.
        arguments["force_virtual_addressing"] = (
            settings.get(f"{_S3}path.style.access", "true").lower() == "false"
        )
    if _ANONYMOUS in settings.get(f"{_S3}aws.credentials.provider", ""):
        arguments["anonymous"] = True
    if "region" not in arguments and (region := _region(bucket, has_endpoint=bool(endpoint))):
        arguments["region"] = region
    return arguments


def _region(bucket: str, *, has_endpoint: bool) -> str:
    """Return the region of the environment, or else that in which Amazon has the bucket; "" for stores of others."""
    from pyarrow import fs

    region = _environment(*_REGION_NAMES)
    if not region and bucket and not has_endpoint:
        region = fs.resolve_s3_region(bucket)
    return region


def _environment(*names: str) -> str:
    """Return the first of these variables that is set; "" if none is."""
    return next(filter(None, map(os.environ.get, names)), "")


def azure_arguments(settings: Mapping[str, str], host: str) -> dict[str, object]:
    """Return the arguments of pyarrow's AzureFileSystem for `<account>.dfs.core.windows.net`, or an account alone."""
    account = host.partition(".")[0]
    suffix = f".{account}.{_AZURE_HOST}"
    arguments: dict[str, object] = {"account_name": account}
    for name, (key, variable) in _AZURE_TEXTS.items():
        setting = settings.get(_AZURE + key + suffix) or settings.get(_AZURE + key)
        text = setting or _environment(variable)
        if text:
            arguments[name] = text
    return arguments


# --- the same settings for the packages of tables, which have clients of their own


def delta_options(url: str, settings: Mapping[str, str] = NO_SETTINGS) -> dict[str, str]:
    """Return the `storage_options` of deltalake for a URL; none for a local path. Raises OSError."""
    texts = _texts(url, settings)
    return {name: texts[key] for key, name in _OF_DELTA.items() if key in texts}


def iceberg_properties(url: str, settings: Mapping[str, str] = NO_SETTINGS) -> dict[str, str]:
    """Return the properties of pyiceberg's client for a URL; none for a local path. Raises OSError."""
    texts = _texts(url, settings)
    return {name: texts[key] for key, name in _OF_ICEBERG.items() if key in texts}


def _texts(url: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return pyarrow's arguments as text, and the endpoint as a URL."""
    scheme, authority = urlsplit(url)[:2]
    arguments: dict[str, object] = {}
    if scheme in S3_SCHEMES:
        arguments = s3_arguments(settings, authority)
    elif scheme in ("abfs", "abfss") and "@" in authority:
        arguments = azure_arguments(settings, authority.partition("@")[2])
    texts = {}
    for name, value in arguments.items():
        texts[name] = str(value)
        if isinstance(value, bool):
            texts[name] = texts[name].lower()
    if "endpoint_override" in texts:
        texts["endpoint"] = f"{texts['scheme']}://{texts['endpoint_override']}"
        texts["allow_http"] = "true"  # of an endpoint that begins so
    return texts
