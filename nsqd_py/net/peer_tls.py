"""TLS to a peer, with the certificates that its files have at each connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from nsqd_py.net.tls_options import peer_context, peer_files
from nsqd_py.runtime.private_files import Stamp, stamp_of


class PeerTls:
    """The TLS of connections to a peer. It has the method of an `ssl.SSLContext` that clients call.

    Certificates end, and are replaced in their files while the program runs. If new files cannot be used, those before stay.
    """

    def __init__(
        self, make: Callable[[], Any], files: Sequence[str], warn: Callable[[str], object] | None = None
    ) -> None:
        """Read no file: call `load`, or connect.

        make   returns an `ssl.SSLContext` with what the files have, or raises OSError
        files  their paths
        warn   logs new files that cannot be used
        """
        self._make = make
        self._files = files
        self._warn = warn
        self._context: Any = None
        self._stamps: Sequence[Stamp] = ()

    @classmethod
    def of(
        cls, options: Any, peer: str, context_class: Any, warn: Callable[[str], object] | None = None
    ) -> Self:
        """Return the TLS to a peer of nsqd, or of an HTTP client; the parameters are those of `peer_context`."""
        return cls(partial(peer_context, options, peer, context_class), peer_files(options, peer), warn)

    def load(self) -> None:
        """Read the files if they have changed. Raises OSError if they cannot be used, and none could be used before."""
        stamps = [stamp_of(path) for path in self._files]
        if self._context is not None and stamps == self._stamps:
            return
        try:
            self._context = self._make()
        except OSError as error:
            if self._context is None:
                raise
            if self._warn is not None:
                self._warn(f"TLS: {error}; the certificates stay those before")
        self._stamps = stamps

    def wrap_socket(self, sock: Any, server_hostname: str) -> Any:
        """Return the socket with TLS to a server of this name, after the handshake. Raises OSError."""
        self.load()
        return self._context.wrap_socket(sock, server_hostname=server_hostname)
