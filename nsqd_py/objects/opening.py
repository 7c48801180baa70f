"""`open_objects`: objects by the URL of a bucket or directory; `is_one_store`: two URLs of one place."""

from __future__ import annotations

import posixpath
from pathlib import Path
from urllib.parse import urlsplit

from nsqd_py.objects.calls import Objects

SCHEMES = ("s3", "gs", "az", "file", "memory")
# Time that one request may take, with its repetitions.
TIMEOUT_S = 30.0


def open_objects(url: str, endpoint: str = "", timeout_s: float = TIMEOUT_S) -> Objects:
    """Return the objects at `s3://bucket/prefix`, `gs://…`, `az://container/…`, `file:///directory` or `memory://`.

    Nothing is asked yet. Call it after any fork. Credentials are those of the environment, as the clouds' own tools use them.
    endpoint   URL of another server of the same protocol
    Raises ValueError if the URL has no such form, and StoreRefused if the client cannot be made.
    """
    scheme, host, prefix = parse_store_url(url)
    if scheme == "file":
        from nsqd_py.objects.directory import DirectoryObjects

        return DirectoryObjects(Path(prefix))
    from nsqd_py.objects.cloud import open_cloud

    return open_cloud(scheme, host, prefix, endpoint, timeout_s)


def parse_store_url(url: str) -> tuple[str, str, str]:
    """Return the scheme, the bucket or container, and the prefix in it, or the directory. Raises ValueError."""
    scheme, host, path, query, fragment = urlsplit(url)
    if scheme not in SCHEMES:
        raise ValueError("must be s3://bucket/prefix, gs://…, az://container/prefix or file:///directory")
    if query or fragment or "@" in host:
        raise ValueError("must have no user, ? or #")
    if scheme == "file":
        if host or not path.startswith("/") or not path.strip("/"):
            raise ValueError("must name a directory by its absolute path: file:///directory")
        return scheme, "", path
    if not host and scheme != "memory":
        raise ValueError(f"must name a bucket: {scheme}://bucket/prefix")
    prefix = path.strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise ValueError("must have no empty part, . or .. in its path")
    return scheme, host, prefix


def normal_store_url(url: str) -> tuple[str, str, str]:
    """Return what `parse_store_url` does, the same for each way to write it: without slashes at the ends. Raises ValueError."""
    scheme, host, path = parse_store_url(url)
    return scheme, host.lower(), posixpath.normpath(f"/{path}").strip("/")


def is_one_store(url: str, other: str) -> bool:
    """True if the two are URLs of one place. Those that are no URLs of a store must be the same."""
    try:
        return normal_store_url(url) == normal_store_url(other)
    except ValueError:
        return url == other
