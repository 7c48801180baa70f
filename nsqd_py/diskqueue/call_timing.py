"""How long calls of the system take, without the time in which the thread waited for a processor.

On a busy machine that wait may be longer than the call, and is not the disk's fault.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic_ns

_SCHEDSTAT = "/proc/thread-self/schedstat"  # ns on a processor, ns of waiting for one, times
_MOST_BYTES = 64


class CallTimer:
    """Measures calls in the thread that makes them: `with timer: call()`.

    slowest_ns  how long the slowest of them took
    """

    __slots__ = ("_began_ns", "_waited_ns", "slowest_ns")

    def __init__(self) -> None:
        self.slowest_ns = 0
        self._began_ns = self._waited_ns = 0

    def __enter__(self) -> None:
        self._waited_ns = _waited_ns()
        self._began_ns = monotonic_ns()

    def __exit__(self, *_: object) -> None:
        took_ns = monotonic_ns() - self._began_ns - (_waited_ns() - self._waited_ns)
        self.slowest_ns = max(self.slowest_ns, took_ns)


def _waited_ns() -> int:
    """Return how long this thread has waited for a processor; 0 where the system does not say. It takes 10 us."""
    try:
        return _parse(Path(_SCHEDSTAT).read_bytes())
    except OSError:
        return 0


def _parse(data: bytes) -> int:
    words = data.split()
    return int(words[1]) if len(words) > 1 else 0


class ProcessorWaits:
    """How long one thread waits for a processor, for calls that are too many to be measured by a `CallTimer`."""

    __slots__ = ("_descriptor", "_last_ns")

    def __init__(self) -> None:
        self._descriptor = -1
        self._last_ns = 0

    def since_last(self) -> int:
        """Return the ns since this was called last, always by the same thread; 0 where the system does not say."""
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
            now_ns = _parse(os.pread(self._descriptor, _MOST_BYTES, 0))  # 0.5 us
        except OSError:
            return 0
        waited_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return waited_ns

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
