"""What the greenlet of a store does at each wake: publishers wake it for each message."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent

from nsqd_py.feed.lag import Amount
from nsqd_py.objects.opening import open_objects
from nsqd_py.store.files import StoredFiles
from nsqd_py.store.uploading.stream import StoreStream

WAKES = 50
DEADLINE_S = 20.0
SECOND_NS = 1_000_000_000


class Waiting:
    """No publisher waits."""

    def last_write(self) -> int:
        return 0

    def count(self) -> int:
        return 0

    def stored(self, write: int) -> None:
        raise AssertionError(write)


class Feed:
    """A feed whose next round is due in an hour."""

    is_due = False
    since_ns = 1

    def __init__(self, unread_bytes: int = 0) -> None:
        self.unread_bytes = unread_bytes
        self.unread_count = 0

    def unread(self) -> Amount:
        self.unread_count += 1
        return Amount(0, self.unread_bytes)

    def note_gone_files(self) -> None:
        """Nothing is gone."""


def make_stream(tmp_path: Path) -> StoreStream:
    options = SimpleNamespace(store_interval_ns=3600 * SECOND_NS)
    broker: Any = SimpleNamespace(topics={}, options=options, log=None, clock=lambda: 1)
    owner: Any = SimpleNamespace(look=lambda: None)
    objects = open_objects("memory://")
    return StoreStream(broker, tmp_path, None, objects, owner, StoredFiles(()), Waiting(), lambda _: None)


def test_a_wake_does_not_ask_all_topics_that_have_changed(tmp_path: Path) -> None:
    stream = make_stream(tmp_path)
    stream._looked_s = float("inf")  # no look at the head
    feed: Any = Feed()
    waiting = gevent.spawn(stream._wait_until_due, feed)
    for _ in range(WAKES):
        gevent.sleep(0)
        stream.publishers_wait()
    gevent.sleep(0)
    assert 1 <= feed.unread_count <= 3  # once a second
    assert not waiting.ready()

    stream.begin_base()
    waiting.join(DEADLINE_S)
    assert waiting.successful()
    stream.stop()


def test_who_is_far_behind_begins_a_base_without_being_woken(tmp_path: Path) -> None:
    stream = make_stream(tmp_path)
    stream._looked_s = float("inf")
    feed: Any = Feed()
    waiting = gevent.spawn(stream._wait_until_due, feed)
    gevent.sleep(0)
    assert not waiting.ready()
    feed.unread_bytes = 1 << 40
    waiting.join(DEADLINE_S)
    assert waiting.successful()
    stream.stop()
