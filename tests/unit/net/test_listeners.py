"""A listener without descriptors rests before it accepts again, each time."""

from __future__ import annotations

import errno
import time
from unittest.mock import Mock

import gevent
import pytest

from nsqd_py.net import listeners
from nsqd_py.net.listeners import Listeners
from tests.support.nsqd_process import wait_until
from tests.unit.fakes import FakeLog

PAUSE_S = 0.2


def test_each_rest_is_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "_PAUSE_WITHOUT_DESCRIPTORS_S", PAUSE_S)
    made = Listeners(None, {"TCP": bytes}, gevent.get_hub().loop, FakeLog())  # type: ignore[arg-type]
    listener = made.add("TCP", "127.0.0.1:0", lambda *_: None)
    socket, listener._sock = listener._sock, Mock()
    listener._sock.accept.side_effect = OSError(errno.EMFILE, "Too many open files")
    watcher = listener._watcher
    try:
        for _ in range(3):  # the watcher starts again after each
            gevent.sleep(0)
            began_s = time.monotonic()
            listener._on_readable()
            assert not watcher.active
            wait_until(lambda: gevent.sleep(PAUSE_S / 10) or watcher.active)
            assert time.monotonic() - began_s > PAUSE_S / 2
    finally:
        listener._sock = socket
        made.close()
