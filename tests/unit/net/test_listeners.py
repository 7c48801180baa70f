"""A listener without descriptors rests before it accepts again, each time."""

from __future__ import annotations

import errno
import time
from typing import Any

import gevent
import pytest

from nsqd_py.net import listeners
from nsqd_py.net.listeners import Listeners
from tests.unit.fakes import FakeLog

PAUSE_S = 0.3


class NoDescriptors:
    """A socket that no process can accept from; `times` are those of the attempts."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def accept(self) -> Any:
        self.times.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    def close(self) -> None: ...


def test_each_rest_is_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "_PAUSE_WITHOUT_DESCRIPTORS_S", PAUSE_S)
    made = Listeners(None, {"TCP": bytes}, gevent.get_hub().loop, FakeLog())  # type: ignore[arg-type]
    listener: Any = made.add("TCP", "127.0.0.1:0", lambda *_: None)
    socket, listener._sock = listener._sock, NoDescriptors()
    try:
        listener._on_readable()
        began_s = time.monotonic()
        for _ in range(2):  # the watcher starts again after each
            gevent.sleep(PAUSE_S * 1.5)
            listener._on_readable()
        gevent.sleep(PAUSE_S / 3)
        assert not listener._watcher.active
        assert time.monotonic() - began_s > PAUSE_S
    finally:
        listener._sock = socket
        made.close()
