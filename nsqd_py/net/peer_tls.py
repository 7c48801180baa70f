"""TLS to a peer, with the certificates that its files have at each connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nsqd_py.net.tls_options import peer_context, peer_files
from nsqd_py.runtime.private_files import Stamp, stamp_of


class PeerTls:
    """The TLS of connections to a peer. It has the method of an `ssl.SSLContext` that clients call.

    Certificates end, and are replaced in their files while the program runs. If new files cannot be used, those before stay.
    """

    def __init__(
        self, options: Any, peer: str, context_class: Any, warn: Callable[[str], object] | None = None
    ) -> None:
        """Read no file: call `load`, or connect.

        options, peer, context_class  as of `peer_context`
        warn                          logs new files that cannot be used
        """
        self._options = options
        self._peer = peer
        self._context_class = context_class
        self._warn = warn
        self._context: Any = None
        self._stamps: Sequence[Stamp] = ()

    def load(self) -> None:
        """Read the files if they have changed. Raises OSError if they cannot be used, and none could be used before."""
        stamps = [stamp_of(path) for path in peer_files(self._options, self._peer)]
        if self._context is not None and stamps == self._stamps:
            return
        try:
            self._context = peer_context(self._options, self._peer, self._context_class)
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
