"""Buckets of a moto server in a process of its own (`moto`), which tests read and write without obstore.

`tests/support/bucket_faults.py` puts faults between such a server and the program under test. What `environment` has must be
in the environment of that program; `url("x")` is what its flags get.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from tests.support.network import LOOPBACK, Host, free_ports
from tests.support.nsqd_process import wait_until

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 40.0
_XML = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class Stored(NamedTuple):
    """An object as S3 has it."""

    data: bytes
    etag: str


class Bucket:
    """One bucket, seen by the tests directly: no fault is between.

    endpoint  the one of the server itself
    """

    def __init__(self, endpoint: str, name: str, host: Host = LOOPBACK) -> None:
        self.endpoint = endpoint
        self.name = name
        self._host = host
        status, _, _ = self.request("PUT", "")
        assert status == 200, f"failed to make the bucket {name}: {status}"

    def url(self, prefix: str = "") -> str:
        """Return the URL for flags, such as s3://bucket/prefix."""
        return f"s3://{self.name}/{prefix}".rstrip("/")

    def environment(self, endpoint: str = "") -> dict[str, str]:
        """Return the variables by which programs find the server, or a proxy at another endpoint."""
        return {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def get(self, name: str) -> Stored | None:
        """Return an object, or None."""
        status, headers, data = self.request("GET", name)
        if status == 404:
            return None
        assert status == 200, f"GET {name}: {status} {data!r}"
        return Stored(data, headers.get("etag", ""))

    def put(self, name: str, data: bytes) -> str:
        """Write an object, whatever there was; return its etag."""
        status, headers, answer = self.request("PUT", name, data)
        assert status == 200, f"PUT {name}: {status} {answer!r}"
        return headers["etag"]

    def delete(self, name: str) -> None:
        status, _, answer = self.request("DELETE", name)
        assert status in (200, 204), f"DELETE {name}: {status} {answer!r}"

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of all objects below a prefix, sorted."""
        names: list[str] = []
        token = ""
        while True:
            query = f"?list-type=2&prefix={quote(prefix, safe='')}"
            if token:
                query += f"&continuation-token={quote(token, safe='')}"
            status, _, answer = self.request("GET", "", query=query)
            assert status == 200, f"list {prefix}: {status} {answer!r}"
            tree = ElementTree.fromstring(answer)
            names += [each.text or "" for each in tree.iter(f"{_XML}Key")]
            token = tree.findtext(f"{_XML}NextContinuationToken") or ""
            if not token:
                return sorted(names)

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """Return the contents of all objects below a prefix."""
        return {name: self.request("GET", name)[2] for name in self.names(prefix)}

    def request(
        self, method: str, name: str, body: bytes = b"", query: str = "", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers (in lower case) and body. `If_Match="…"` is the header If-Match."""

        def ask() -> tuple[int, dict[str, str], bytes]:
            connection = HTTPConnection(urlsplit(self.endpoint).netloc, timeout=_TIMEOUT_S)
            try:
                path = f"/{self.name}/{quote(name)}{query}" if name else f"/{self.name}{query}"
                sent = {"Authorization": _CREDENTIAL, **{k.replace("_", "-"): v for k, v in headers.items()}}
                connection.request(method, path, body, sent)
                answer = connection.getresponse()
                found = {key.lower(): value for key, value in answer.getheaders()}
                return answer.status, found, answer.read()
            finally:
                connection.close()

        return ask() if self._host == LOOPBACK else self._host.call(ask)


# moto checks no signature, and refuses access to objects without one.
_CREDENTIAL = (
    "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0000000000000000000000000000000000000000000000000000000000000000"
)


class MotoServer:
    """moto's S3 in a process; see tests/support/moto_server.py. What it has is gone when it ends."""

    def __init__(self, log_path: Path, host: Host = LOOPBACK) -> None:
        self.host = host
        self.log_path = log_path
        (self.port,) = free_ports(1)
        self.endpoint = f"http://{host.address}:{self.port}"
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *host.command_prefix,
                    *(sys.executable, "-m", "tests.support.moto_server"),
                    *(host.address, str(self.port)),
                ],
                cwd=_ROOT,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
            )
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        def answers() -> bool:
            assert self.process.poll() is None, f"moto ended: {self.log_path.read_text()[-2000:]}"
            try:
                self.make_bucket()
            except OSError:
                return False
            return True

        wait_until(answers, 60, "moto")

    def make_bucket(self) -> Bucket:
        """Return a new, empty bucket."""
        return Bucket(self.endpoint, f"bucket-{secrets.token_hex(8)}", self.host)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@contextmanager
def moto(directory: Path, host: Host = LOOPBACK) -> Iterator[MotoServer]:
    """Run a server of moto; its log is in `directory`."""
    server = MotoServer(directory / "moto.log", host)
    try:
        yield server
    finally:
        server.close()
