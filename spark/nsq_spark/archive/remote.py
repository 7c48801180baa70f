"""File systems by the scheme of a path, opened with the settings that Spark has for Hadoop's.

    s3a, s3n, s3   fs.s3a.access.key, .secret.key, .session.token, .endpoint, .endpoint.region,
                   .connection.ssl.enabled, .path.style.access, .aws.credentials.provider (anonymous);
                   fs.s3a.bucket.<bucket>.… goes before these
    abfs, abfss    fs.azure.account.key, fs.azure.sas.fixed.token, fs.azure.account.oauth2.client.id, .secret,
                   .endpoint; <setting>.<account>.dfs.core.windows.net goes before these
    gs             as the machine is logged in to Google
    hdfs, viewfs   by libhdfs of an installed Hadoop, which reads its own configuration

Without keys, pyarrow looks where Amazon's and Microsoft's tools look: the environment, the machine's role.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow.fs as pafs

from nsq_spark.archive.damage import ArchiveError

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
        return System(pafs.HadoopFileSystem.from_uri(uri), uri, "/")
    container, found, host = authority.partition("@")
    if not found:
        raise ArchiveError(
            f"{scheme}://{authority} names no container: write {scheme}://<container>@<account>.{_AZURE_HOST}/<path>"
        )
    return System(pafs.AzureFileSystem(**azure_arguments(options, host)), uri, f"{container}/")
