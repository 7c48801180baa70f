"""File systems of pyarrow, opened with the settings that Spark has for Hadoop's.

    s3a, s3n, s3   fs.s3a.access.key, .secret.key, .session.token, .endpoint, .endpoint.region,
                   .connection.ssl.enabled, .path.style.access, .aws.credentials.provider (anonymous)
    hdfs, viewfs   fs.defaultFS; the rest from Hadoop's own files (HADOOP_CONF_DIR)
    gs             as the machine is logged in to Google
    others         what pyarrow makes of the URI

Without keys pyarrow looks where Amazon's tools look: the environment, ~/.aws, the machine's role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.fs as pafs

_S3 = "fs.s3a."
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_S3_TEXTS = {
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    "endpoint.region": "region",
}


def s3_arguments(options: Mapping[str, str]) -> dict[str, object]:
    """What pyarrow's S3FileSystem is made with."""
    arguments: dict[str, object] = {
        name: options[_S3 + key] for key, name in _S3_TEXTS.items() if options.get(_S3 + key)
    }
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


def _open_s3(authority: str, options: Mapping[str, str]) -> Any:
    return pafs.S3FileSystem(**s3_arguments(options))


def _open_hdfs(authority: str, options: Mapping[str, str]) -> Any:
    address = f"hdfs://{authority}" if authority else options.get("fs.defaultFS", "hdfs://default")
    return pafs.HadoopFileSystem.from_uri(address)


def _open_gs(authority: str, options: Mapping[str, str]) -> Any:
    return pafs.GcsFileSystem()


# How each scheme is opened; and whether the authority, a bucket, is the beginning of the path.
OPENERS: dict[str, tuple[Callable[[str, Mapping[str, str]], Any], bool]] = {
    "s3a": (_open_s3, True),
    "s3n": (_open_s3, True),
    "s3": (_open_s3, True),
    "hdfs": (_open_hdfs, False),
    "viewfs": (_open_hdfs, False),
    "gs": (_open_gs, True),
}


def open_system(scheme: str, authority: str, options: Mapping[str, str]) -> Any:
    """A pyarrow file system. Raises OSError, ValueError and pyarrow's errors."""
    if scheme in OPENERS:
        return OPENERS[scheme][0](authority, options)
    return pafs.FileSystem.from_uri(f"{scheme}://{authority}/")[0]


def inner_path(scheme: str, authority: str, path: str) -> str:
    """The path as its file system takes it."""
    behind = path.partition("://")[2][len(authority) :]
    if scheme in OPENERS and OPENERS[scheme][1]:
        return (authority + behind).rstrip("/")
    return behind.rstrip("/") or "/"
