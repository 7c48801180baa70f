"""Names become endpoints, in threads of their own.

gevent's hub has a pool for this, but the syncs of the logs run there too: a resolver that hangs must not keep
them waiting.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from gevent.threadpool import ThreadPool

from nsqd_py.lookup.endpoints import Endpoint, literal_endpoint

_THREADS = 2


class Resolver:
    """`look_up` is called as `socket.getaddrinfo`."""

    def __init__(self, look_up: Callable[..., list[Any]] = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self._pool: Any = None

    def resolve(self, host: str, port: int) -> list[Endpoint]:
        """The endpoints, the best first. Waits as long as the system's resolver does. Raises OSError."""
        literal = literal_endpoint(host, port)
        if literal is not None:
            return [literal]
        if self._pool is None:
            self._pool = ThreadPool(_THREADS)
        found: list[Endpoint] | OSError = self._pool.apply(self._attempt, (host, port))
        if isinstance(found, OSError):
            raise found
        return found

    def _attempt(self, host: str, port: int) -> list[Endpoint] | OSError:
        """Runs in a thread. An error is returned, as the pool would print one that is raised."""
        try:
            found = self._look_up(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            return error
        except UnicodeError as error:  # a name that cannot be one
            return OSError(str(error))
        return list(dict.fromkeys(Endpoint(int(family), target) for family, _, _, _, target in found))
