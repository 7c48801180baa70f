"""A fresh server for one run: its own ports, its own data directory, ended by its pid."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.admin import Admin
from bench.run import Endpoint, LoadError

_READY_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """A kind of server: its name, the module that is ours, and whether it takes nsqd's flags for HTTPS and data.

    server  how it is started, if not like nsqd
    """

    name: str
    module: str
    keeps_data: bool
    server: "type[ServerProcess] | None" = None


NSQD = Daemon("nsqd", "nsq_apps.nsqd", keeps_data=True)
NSQLOOKUPD = Daemon("nsqlookupd", "nsq_apps.nsqlookupd", keeps_data=False)


class ServerProcess:
    """A context manager: started and ready inside, gone with its data after.

    A kind of server says how it is configured, when it is ready, and which version it has.
    """

    def __init__(
        self, daemon: Daemon, command: Sequence[str], flags: Sequence[str] = (), scratch: Path | None = None
    ) -> None:
        self._daemon = daemon
        self._command = [*command, *flags]
        self._environment: dict[str, str] = {}
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._tcp_port = self._http_port = 0
        self.version = "unknown"

    def _configure(self, directory: Path) -> None:
        """Choose ports, and add what makes the server listen there and keep its data in `directory`."""
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError

    def _find_version(self) -> str:
        """Return the version of the server, which is ready."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="nsqd-bench-", dir=self._scratch)
        directory = Path(self._directory.name)
        self._log = directory / "log"
        try:
            self._configure(directory)
            self._launch()
            self._wait_until_ready()
            self.version = self._find_version()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def restart(self) -> Endpoint:
        """Kill it and start it on the same ports and data; does not wait for it to listen."""
        self._kill()
        return self._launch()

    def _launch(self) -> Endpoint:
        with self._log.open("ab") as log:
            started_s = time.perf_counter()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
                start_new_session=True,  # Ctrl-C reaches the bench only; see `_stop`.
            )
        self.endpoint = Endpoint(self._tcp_port, self._http_port, self._process.pid, started_s, self.restart)
        return self.endpoint

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        name = self._daemon.name
        deadline_s = time.monotonic() + _READY_WITHIN_S
        while not self._is_ready():
            if self._process.poll() is not None:
                raise LoadError(f"{name} ended with status {self._process.returncode}: {self._last_words()}")
            if time.monotonic() > deadline_s:
                raise LoadError(f"{name} is not ready after {_READY_WITHIN_S:g} s: {self._last_words()}")
            time.sleep(0.02)

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-500:]

    def _stop(self) -> None:
        """SIGKILL, to the session that was started: on SIGTERM an nsqd writes its memory queues to disk,
        which can take longer than the run."""
        self._kill()
        # A killed server of several processes may write for a moment more.
        with suppress(OSError):
            self._directory.cleanup()

    def _kill(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Server(ServerProcess):
    """An nsqd or nsqlookupd, ready when it answers /ping."""

    def _configure(self, directory: Path) -> None:
        self._tcp_port, self._http_port, https_port = free_ports(3)
        self._command += [
            f"--tcp-address=127.0.0.1:{self._tcp_port}",
            f"--http-address=127.0.0.1:{self._http_port}",
            "--broadcast-address=127.0.0.1",
        ]
        if self._daemon.keeps_data:
            data = directory / "data"
            data.mkdir()
            self._command += [f"--https-address=127.0.0.1:{https_port}", f"--data-path={data}"]

    def _is_ready(self) -> bool:
        return Admin(self._http_port).ping()

    def _find_version(self) -> str:
        return Admin(self._http_port).version()


def free_ports(count: int) -> list[int]:
    """All held at once before any is given back, so that no two are the same."""
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports
