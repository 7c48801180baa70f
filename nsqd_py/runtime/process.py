"""What every daemon does with its own process: how it begins, what limits it lifts, how it ends."""

from __future__ import annotations

import gc
import os
import resource
import signal
from contextlib import suppress
from types import TracebackType
from typing import Any

import gevent
import gevent.event

from nsqd_py.runtime.logs import Log

_FIRST_GENERATION = 200_000
_OLDER_GENERATIONS = 50
# From malloc.h; the limits are glibc's own highest for a block, and as much free memory as is kept at the end.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BLOCK_BYTES = 32 * 1024 * 1024
_KEPT_FREE_BYTES = 64 * 1024 * 1024


def raise_descriptor_limit() -> None:
    """Thousands of clients need thousands of descriptors: take all that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def calm_collector(first: int = _FIRST_GENERATION, older: int = _OLDER_GENERATIONS) -> None:
    """Keep the cycle collector from walking what lives as long as the process, and from running often.

    It looks at new objects when there are `first` more of them than before, and at older ones every `older` times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(first, older, older)


def keep_freed_memory() -> None:
    """Let the C library use freed blocks of up to 32 MiB again. It would give large ones back to the system each time,
    and the next one of that size costs a page fault for each 4 KiB: a third of the time that large MPUBs take.
    """
    with suppress(ImportError, OSError, AttributeError):  # another C library than glibc
        import ctypes

        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE_BYTES)


def log_uncaught_errors(hub: Any, log: Log) -> None:
    """What no code caught, in a greenlet or a callback of the loop, is an error line like others; the loop goes on."""

    def report(context: object, kind: object, error: BaseException, traceback: object) -> None:
        log.exception("uncaught in %r - %r", context, error, error=error)

    hub.print_exception = report


class StopSignals:
    """SIGTERM and SIGINT, while it is entered: the first says to stop, a second one ends the process at once."""

    def __init__(self) -> None:
        self._asked = gevent.event.Event()
        self._has_come = False
        self._handlers: list[Any] = []

    def __enter__(self) -> StopSignals:
        self._handlers = [gevent.signal_handler(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for handler in self._handlers:
            handler.cancel()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Returns when a signal came, or `stop` was called, or after `timeout_s`; true where it is time to stop."""
        return self._asked.wait(timeout_s)

    def stop(self) -> None:
        """End as with a first signal."""
        self._asked.set()

    def _on_signal(self) -> None:
        if self._has_come:
            # What was acknowledged is written; only the tidy end is missing.
            os._exit(1)
        self._has_come = True
        self._asked.set()
