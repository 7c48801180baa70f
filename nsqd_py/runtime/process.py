"""The process of a daemon: its limits, its memory, its collector, and the signals that stop it."""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import gevent
import gevent.event

from nsqd_py.errors import StartError
from nsqd_py.runtime.command import unblock_signals
from nsqd_py.runtime.logs.bugs import bug_text
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.version import version_string

_FIRST_GENERATION = 200_000
_OLDER_GENERATIONS = 50
# From malloc.h. The block size is glibc's maximum; the other number is how much free memory it keeps.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_FEW_ARENAS = 2
_RETAINED_BLOCK_BYTES = 32 * 1024 * 1024
_RETAINED_FREE_BYTES = 64 * 1024 * 1024
_RETURNED_BLOCK_BYTES = 128 * 1024
# By default, gevent notes where each greenlet was started: 6 us and 0.7 kB each, for its own reports.
gevent.config.track_greenlet_tree = False


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to what the system allows: every client needs a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Run no cycle collector while much is made that stays, and make it skip that afterwards: 0.3 s for 20,000 topics."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def tune_gc(first: int = _FIRST_GENERATION, older: int = _OLDER_GENERATIONS) -> None:
    """Make the cycle collector skip the objects that exist now, and run rarely.

    It runs when there are `first` new objects, and examines older ones in one of `older` runs. Garbage of the start stays:
    to collect it would free 550 of nsqd's 39,000 objects, and take 8 of the 100 ms of a start.
    """
    gc.freeze()
    gc.set_threshold(first, older, older)


def free_ended_daemon() -> None:
    """Free what a daemon has left that ended in this process. Its topics were hidden from the collector by `tune_gc`."""
    gc.unfreeze()
    gc.collect()


def keep_freed_memory() -> None:
    """Make the C library reuse freed blocks of up to 32 MiB.

    By default it returns large blocks to the system, and the next one costs a page fault for each 4 KiB: a third of the
    time of large MPUBs.
    """
    _set_malloc({_M_MMAP_THRESHOLD: _RETAINED_BLOCK_BYTES, _M_TRIM_THRESHOLD: _RETAINED_FREE_BYTES})


def return_freed_memory() -> None:
    """Return all free pages to the system, once: those between other blocks too, as the large blocks of a start leave them."""
    with suppress(ImportError, OSError, AttributeError):  # another C library than glibc
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def return_freed_blocks() -> None:
    """Make the C library return freed blocks of 128 KiB or more to the system: for a daemon that rarely needs any.

    By default it does so only until the first such block is freed. After that, the heap keeps a hole for each large one
    that small objects lie behind, and grows by megabytes with each burst of large inputs.
    """
    _set_malloc({_M_MMAP_THRESHOLD: _RETURNED_BLOCK_BYTES})


def share_arenas() -> None:
    """Let all threads that start from now on use the same few heaps of the C library.

    Each of them retains freed blocks: with one for each thread, uploads of files took 80 MB more.
    """
    _set_malloc({_M_ARENA_MAX: _FEW_ARENAS})


def _set_malloc(parameters: Mapping[int, int]) -> None:
    with suppress(ImportError, OSError, AttributeError):  # another C library than glibc
        import ctypes

        library = ctypes.CDLL(None)
        for number, value in parameters.items():
            library.mallopt(number, value)


def log_uncaught_errors(hub: Any, log: Log) -> None:
    """Log the uncaught errors of greenlets and of callbacks of the loop as error lines. The loop continues."""

    def report(context: object, kind: object, error: BaseException, traceback: object) -> None:
        log.of_clients.exception(bug_text(error), error, f"uncaught in {context!r}", error=error)

    hub.print_exception = report


class StopSignals:
    """Handlers of SIGTERM and SIGINT. The first signal asks the daemon to stop, a second one exits at once."""

    def __init__(self) -> None:
        self._asked = gevent.event.Event()
        self._was_asked = False
        self._handlers: list[Any] = []

    def __enter__(self) -> StopSignals:
        self._handlers = [
            gevent.signal_handler(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        if self._was_asked:  # the process ends: a second signal must not end it by the default action
            return
        for handler in self._handlers:
            handler.cancel()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a signal, for `stop`, or until `timeout_s` is over. Return True if the daemon must stop."""
        return self._asked.wait(timeout_s)

    @contextmanager
    def cutting(self, after_s: float = 0.0) -> Iterator[None]:
        """Leave the block, wherever its greenlet waits, `after_s` after the daemon was asked to stop."""
        timer: Any = gevent.get_hub().loop.timer(after_s)
        worker = gevent.getcurrent()

        def cut(event: object) -> None:
            timer.start(worker.throw)

        self._asked.rawlink(cut)
        try:
            with suppress(gevent.GreenletExit):
                yield
        finally:
            self._asked.unlink(cut)
            timer.close()

    def stop(self) -> None:
        """Ask the daemon to stop, as the first signal does."""
        self._asked.set()

    def _on_signal(self) -> None:
        if self._was_asked:
            # Everything that was acknowledged is written. Only the orderly shutdown is skipped.
            os._exit(1)
        self._was_asked = True
        self._asked.set()


@contextmanager
def serving(
    name: str, log: Log, reload: Callable[[], None], shut_down: Callable[[], None]
) -> Iterator[StopSignals]:
    """Let a daemon run: SIGHUP calls `reload`, and the end `shut_down`. Raises StartError for an OSError of the daemon."""
    raise_descriptor_limit()
    log_uncaught_errors(gevent.get_hub(), log)
    log.info("%s", version_string(name))
    on_hangup = gevent.signal_handler(signal.SIGHUP, reload)
    unblock_signals()
    with StopSignals() as signals:
        try:
            yield signals
        except OSError as error:
            raise StartError(str(error)) from error
        finally:
            shut_down()
            on_hangup.cancel()
