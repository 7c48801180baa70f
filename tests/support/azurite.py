"""Azurite, the emulator of Azure's objects (`npm install azurite`), where its command `azurite-blob` is in the path."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.client import HTTPConnection
from itertools import count
from pathlib import Path

from tests.support.network import free_ports
from tests.support.nsqd_process import wait_until

COMMAND = shutil.which("azurite-blob")
# Those of each emulator.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
_CREATED = 201
ENVIRONMENT = {"AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": _KEY}
_NUMBERS = count()


class Azurite:
    """A running emulator; `endpoint` is its URL."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
        self._port = port

    def make_container(self) -> str:
        """Make a new container, and return its URL."""
        name = f"container{next(_NUMBERS)}"
        date = formatdate(usegmt=True)
        resource = f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
        signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n{resource}"
        digest = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": _VERSION,
            "Content-Length": "0",
            "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
        }
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        connection.request("PUT", f"/{_ACCOUNT}/{name}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == _CREATED, answer.read()
        connection.close()
        return f"az://{name}"


@contextmanager
def azurite(directory: Path) -> Iterator[Azurite]:
    """Run an emulator with its files in a directory."""
    assert COMMAND is not None
    (port,) = free_ports(1)
    flags = ["--silent", "--skipApiVersionCheck", "--blobHost=127.0.0.1", f"--blobPort={port}"]
    with (directory / "azurite.log").open("wb") as log:
        process = subprocess.Popen([COMMAND, *flags, f"--location={directory}"], stdout=log, stderr=log)

    def answers() -> bool:
        with suppress(OSError):
            HTTPConnection("127.0.0.1", port, timeout=1).connect()
            return True
        return False

    try:
        wait_until(answers, what="azurite to listen")
        yield Azurite(port)
    finally:
        process.kill()
        process.wait()
