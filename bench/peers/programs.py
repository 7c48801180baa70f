"""A peer that is not of the NSQ family: one port, one program that prints its version with `-v`."""

from pathlib import Path

from bench.machine import printed_version
from bench.peers.protocol import PublisherProtocol
from bench.run import LoadError
from bench.server import ServerProcess, free_ports


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
        return printed_version([self._command[0], "-v"])
