"""Resolves host names in its own threads.

gevent's thread pool would do, but fsyncs of the logs run there: a resolver that hangs must not delay them.
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
        """Return the endpoints of a host, the preferred one first. Waits for the system's resolver. Raises OSError."""
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
        """Run in a thread. Return errors, because the pool prints errors that are raised."""
        try:
            found = self._look_up(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            return error
        except UnicodeError as error:  # a name that cannot be one
            return OSError(str(error))
        return list(dict.fromkeys(Endpoint(int(family), target) for family, _, _, _, target in found))
