"""`CloudObjects`: objects in a bucket of S3, Google Cloud Storage or Azure, and of any server that speaks as they do.

obstore is a client of all three. It has threads, so that it must be made after any fork.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from nsqd_py.errors import NsqdError, missing_package
from nsqd_py.objects.calls import (
    PART_BYTES,
    Changed,
    Exists,
    Listed,
    Missing,
    Objects,
    StoreError,
    StoreRefused,
    Version,
    created_by_swap,
)
from nsqd_py.runtime.private_files import open_file

# Repetitions of a request that failed. The callers repeat everything else.
_MOST_RETRIES = 2
_CONNECT_S = 5.0
_FIRST_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=2)
_MOST_PARTS_AT_ONCE = 1
_S3_ENDPOINT_NAMES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist", "container does not exist")
_DETAIL = re.compile(r"<Code>(?P<code>[^<]*)</Code>.*?<Message>(?P<message>[^<]*)", re.DOTALL)
_STATUS = re.compile(r"status code: (?P<status>\d{3} [^:\n]*)")
_FORBIDDEN = re.compile(r"status code: 40[13] ")
# The range begins behind the end, in the words of S3 and of the store in memory.
_NO_RANGE = (" 416 ", "Invalid range", "Wanted range starting at")
_MOST_TEXT = 300


def open_cloud(scheme: str, bucket: str, prefix: str, endpoint: str, timeout_s: float) -> CloudObjects:
    """Return the objects of a bucket. Raises StoreRefused."""
    try:
        from obstore import exceptions, store
    except ModuleNotFoundError:
        raise StoreRefused(f"{scheme}://{bucket}: {missing_package('obstore', 'store')}") from None
    text = f"{scheme}://{bucket}/{prefix}".rstrip("/")
    if scheme == "memory":
        return CloudObjects(store.MemoryStore(), text)
    endpoint = endpoint or _endpoint_of_environment(scheme)
    timeout = timedelta(seconds=timeout_s)
    connect_s = min(_CONNECT_S, timeout_s)
    common: dict[str, Any] = {
        "prefix": prefix or None,
        "client_options": {
            "timeout": timeout,
            "connect_timeout": timedelta(seconds=connect_s),
            "allow_http": endpoint.startswith("http://"),
        },
        "retry_config": {
            "max_retries": _MOST_RETRIES,
            "retry_timeout": timeout,
            "backoff": {"init_backoff": _FIRST_PAUSE, "max_backoff": _LONGEST_PAUSE, "base": 2},
        },
    }
    make, endpoint_name = {
        "s3": (store.S3Store, "endpoint"),
        "gs": (store.GCSStore, "base_url"),
        "az": (store.AzureStore, "endpoint"),
    }[scheme]
    if endpoint:
        common[endpoint_name] = endpoint
    try:
        made = make(bucket, **common)
    except (exceptions.BaseError, ValueError) as error:
        raise StoreRefused(f"{text}: {_sentence(error)}") from error
    return CloudObjects(made, text)


def _endpoint_of_environment(scheme: str) -> str:
    if scheme != "s3":
        return ""
    return next((os.environ[name] for name in _S3_ENDPOINT_NAMES if os.environ.get(name)), "")


class CloudObjects(Objects):
    """The objects of one bucket below a prefix. A version is what the store calls its ETag or generation."""

    def __init__(self, store: Any, text: str) -> None:
        self._store = store
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def create(self, name: str, data: bytes) -> Version:
        with _translated(name, Exists):
            return self._put(name, data, "create")

    def get(self, name: str) -> tuple[bytes, Version]:
        import obstore

        with _translated(name, Missing):
            found = obstore.get(self._store, name)
            data = bytes(found.bytes())
        return data, _version_of(found.meta)

    def get_range(self, name: str, start: int, end: int) -> bytes:
        import obstore

        if start >= end:
            return b""
        with _translated(name, Missing):
            try:
                return bytes(obstore.get_range(self._store, name, start=start, end=end))
            except obstore.exceptions.GenericError as error:
                if not any(words in str(error) for words in _NO_RANGE):
                    raise
                return b""

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        from obstore import exceptions

        if version is None:
            return created_by_swap(self, name, data)
        with _translated(name, Changed):
            try:
                return self._put(name, data, version)
            except FileNotFoundError as error:
                _check_bucket(name, error)
                raise Changed(f"{name} is missing") from None
            except exceptions.AlreadyExistsError as error:  # 409: another write is under way
                raise StoreError(f"{name}: {_sentence(error)}") from error

    def _put(self, name: str, data: bytes, mode: Any) -> Version:
        import obstore

        return _version_of(obstore.put(self._store, name, data, mode=mode, use_multipart=False))

    def put_file(self, name: str, path: Path, size_bytes: int) -> None:
        import obstore

        with open(path, "rb", opener=open_file) as source, _translated(name):
            pieces = _first_pieces(source, size_bytes)
            if size_bytes <= PART_BYTES:  # in one request; obstore puts each iterator in three or more
                obstore.put(self._store, name, b"".join(pieces), use_multipart=False)
                return
            obstore.put(self._store, name, pieces, chunk_size=PART_BYTES, max_concurrency=_MOST_PARTS_AT_ONCE)

    def delete(self, names: Iterable[str]) -> None:
        import obstore

        listed = list(names)
        if not listed:
            return
        with _translated(listed[0]):
            try:
                obstore.delete(self._store, listed)
            except FileNotFoundError as error:  # of one of them: the others may be there still
                _check_bucket(listed[0], error)
                for name in listed:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, [name])

    def list(self, prefix: str) -> Iterator[Listed]:
        import obstore

        with _translated(prefix):
            for objects in obstore.list(self._store, prefix):
                for meta in objects:
                    yield Listed(meta["path"], meta["size"])


def _version_of(meta: Any) -> Version:
    return {key: meta[key] for key in ("e_tag", "version") if meta[key] is not None}


def _first_pieces(source: IO[bytes], size_bytes: int) -> Iterator[bytes]:
    """Yield the first bytes of a file. Raises OSError if it has fewer."""
    while size_bytes:
        piece = source.read(min(PART_BYTES, size_bytes))
        if not piece:
            raise OSError(errno.EIO, f"{source.name} has {size_bytes} bytes too few")
        size_bytes -= len(piece)
        yield piece


# ---- errors


@contextmanager
def _translated(name: str, *expected: type[NsqdError]) -> Iterator[None]:
    """Raise an error of obstore as one of `objects`.

    expected  what the call may say of the object; another such answer is that of a proxy in between, or of a server that
              begins: StoreError
    """
    from obstore import exceptions

    refusals = (
        exceptions.PermissionDeniedError,
        exceptions.UnauthenticatedError,
        exceptions.InvalidPathError,
        exceptions.NotSupportedError,
        ValueError,
    )
    try:
        yield
    except FileNotFoundError as error:
        _check_bucket(name, error)
        raise _as_expected(Missing(f"{name} is missing"), error, expected) from None
    except exceptions.AlreadyExistsError as error:
        raise _as_expected(Exists(f"{name} exists already"), error, expected) from None
    except exceptions.PreconditionError as error:
        _check_bucket(name, error)
        raise _as_expected(Changed(f"{name} was replaced"), error, expected) from None
    except refusals as error:
        raise StoreRefused(f"{name}: {_sentence(error)}") from error
    except (exceptions.BaseError, OSError) as error:
        _check_bucket(name, error)
        raise StoreError(f"{name}: {_sentence(error)}") from error


def _as_expected(found: NsqdError, error: Exception, expected: tuple[type[NsqdError], ...]) -> NsqdError:
    if isinstance(found, expected):
        return found
    return StoreError(f"{found}, says the store: {_sentence(error)}")


def _check_bucket(name: str, error: Exception) -> None:
    """Raise StoreRefused if there is no bucket, so that no object can be in it, or if the credentials are not valid."""
    text = str(error)
    if any(words in text for words in _NO_BUCKET) or _FORBIDDEN.search(text):
        raise StoreRefused(f"{name}: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    """Return what the store said, without the request and the layers of the client."""
    text = str(error).partition("\n\nDebug source")[0]
    status = _STATUS.search(text)
    detail = _DETAIL.search(text)
    if detail is not None:
        text = f"{detail['code']}: {detail['message']}"
    elif status is not None:
        text = status["status"]
    return " ".join(text.split())[:_MOST_TEXT]
