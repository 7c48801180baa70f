"""Unused memory is returned to the system on request."""

from __future__ import annotations

import gc
from typing import Any, ClassVar

from nsqd_py.debug.memory import REST_S, Freeing


class Here:
    """A pool of threads that has none."""

    @staticmethod
    def apply(work: Any) -> None:
        work()


class Cycle:
    alive: ClassVar[int] = 0

    def __init__(self) -> None:
        self.own = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


def test_memory_is_freed_but_not_again_and_again() -> None:
    now_s = 100.0
    freeing = Freeing(lambda: now_s)
    gc.disable()
    try:
        for alive in (0, 1, 1):
            Cycle()
            freed = freeing.free(Here())
            assert min(Cycle.alive, 1) == alive
            assert freed.before_bytes > 0
        now_s += REST_S
        assert freeing.free(Here()).collected >= 2
        assert Cycle.alive == 0
    finally:
        gc.enable()
