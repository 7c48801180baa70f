"""Threads that repeat a step until they are stopped. What nobody expected ends a thread, and is reported."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable

JOIN_S = 60.0


class Workers:
    """Threads, what they counted, and what ended them too early.

    counts   how often each thing happened, by name
    errors   tracebacks of threads that ended by an unexpected error, and the names of those that hang
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self.over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def count(self, name: str, number: int = 1) -> None:
        """Add to a count; any thread may call it."""
        with self._lock:
            self.counts[name] += number

    def repeat(self, step: Callable[[], object], pause_s: float = 0.0) -> None:
        """Start a thread that repeats `step`, with a pause after each."""

        def run() -> None:
            try:
                while not self.over.is_set():
                    step()
                    self.over.wait(pause_s)
            except Exception:  # noqa: BLE001 - any error is a finding, which the verdict reports
                self.errors.append(traceback.format_exc())

        thread = threading.Thread(target=run, name=getattr(step, "__qualname__", repr(step)), daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """End all threads; those that do not end are reported."""
        self.over.set()
        deadline_s = time.monotonic() + JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
            if thread.is_alive():
                self.errors.append(f"{thread.name} did not end within {JOIN_S:g} s")
        self._threads.clear()
