"""A fresh nsqd for one run: free ports, an empty data path, ended by its pid."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.client import LoadError

OURS = (sys.executable, "-m", "nsq_apps.nsqd")
_READY_WITHIN_S = 60.0


class Nsqd:
    """A context manager: an nsqd that is ready inside, and is gone with its data afterwards.

    with_standby: another nsqd follows it.
    store_url: what `{store}` in the flags is, with a new prefix; "" is a directory beside the data path
    """

    def __init__(
        self,
        command: Sequence[str],
        flags: Sequence[str] = (),
        *,
        with_standby: bool = False,
        store_url: str = "",
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="nsqd-bench-")
        self._path = Path(self._directory.name)
        store = f"{store_url or self._path.as_uri()}/store-{secrets.token_hex(8)}"
        self._command = [*command, *(flag.replace("{store}", store) for flag in flags)]
        self._standby_command: list[str] | None = None
        if with_standby:
            self._command.append("--accept-standbys")
            self._standby_command = list(command)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.tcp_port, self.http_port, *others = free_ports(4)
        try:
            self.start()
            self._wait(lambda: self.get("/ping") is not None)
            if self._standby_command:
                follows = f"--standby-of=127.0.0.1:{self.tcp_port}"
                self._start([*self._standby_command, follows], others[0], others[1], "standby")
                self._wait(
                    lambda: '"is_following":true' in (self.get("/stats?format=json") or "").replace(" ", "")
                )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """SIGKILL: on SIGTERM an nsqd writes its memory queues to disk, which can take longer than the run."""
        self.kill()
        self._directory.cleanup()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def version(self) -> str:
        return str(json.loads(self.get("/info") or "{}").get("version", "unknown"))

    def start(self) -> None:
        """Start it on the same ports and data path. Does not wait for it to listen."""
        self._start(self._command, self.tcp_port, self.http_port, "data")

    def kill(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def get(self, path: str) -> str | None:
        """Return an answer of its HTTP API; None without one."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=10) as response:
                return str(response.read().decode())
        except OSError:
            return None

    def _start(self, command: Sequence[str], tcp_port: int, http_port: int, name: str) -> None:
        data = self._path / name
        data.mkdir(exist_ok=True)
        words = [
            *command,
            f"--tcp-address=127.0.0.1:{tcp_port}",
            f"--http-address=127.0.0.1:{http_port}",
            "--broadcast-address=127.0.0.1",
            f"--data-path={data}",
        ]
        with (self._path / "log").open("ab") as log:
            # In a session of its own: Ctrl-C reaches only the bench, which then ends it.
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._processes.append(process)

    def _wait(self, is_ready: Any) -> None:
        deadline_s = time.monotonic() + _READY_WITHIN_S
        while not is_ready():
            if time.monotonic() > deadline_s or any(
                process.poll() is not None for process in self._processes
            ):
                log = (self._path / "log").read_text(errors="replace")
                raise LoadError(f"nsqd did not become ready: {log.strip()[-500:]}")
            time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Return ports that are all different: all are bound before any is released."""
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports
