"""A peer that is not of the NSQ family: one port, one program that prints its version with `-v`."""

import re
import subprocess
from pathlib import Path

from bench.peers.protocol import PublisherProtocol
from bench.run import LoadError
from bench.server import ServerProcess, free_ports

_VERSION = re.compile(r"\d+\.\d+[\w.]*")


class Program(ServerProcess, PublisherProtocol):
    """Ready when a publisher can connect."""

    def _configure(self, directory: Path) -> None:
        (self._tcp_port,) = free_ports(1)
        data = directory / "data"
        data.mkdir()
        self._command += self._flags(self._tcp_port, data)

    def _flags(self, port: int, data: Path) -> list[str]:
        """Return the flags that make it listen on `port` of 127.0.0.1, and keep its data in `data`."""
        raise NotImplementedError

    def _is_ready(self) -> bool:
        try:
            self.connect(self._tcp_port).close()
        except (OSError, LoadError):
            return False
        return True

    def _find_version(self) -> str:
        printed = subprocess.run([self._command[0], "-v"], capture_output=True, text=True, check=False).stdout
        found = _VERSION.search(printed)
        return found[0] if found else "unknown"
