"""The handlers that read a topic's log, move channels in it, or finish single messages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from nsqd_py.api import log_handlers
from nsqd_py.broker.lifetime.shutdown import close as close_broker
from tests.unit.fakes import SECOND, FakePublisher, World, sized, start_broker


def test_the_threads_that_resolve_names_do_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    broker = start_broker(world, tmp_path)
    topic = broker.get_topic("t")
    broker.get_channel(topic, "c")
    for defer_ns in (0, SECOND):
        topic.buffer.publish(sized(b"x"), 1, 5, FakePublisher(), 0, defer_ns)
        world.run()

    def request(**params: str) -> Any:
        return SimpleNamespace(app=broker, params={"topic": "t", "channel": "c", **params})

    monkeypatch.setattr(gevent.get_hub(), "threadpool", "the threads that resolve names")
    assert b'"seq":0' in log_handlers.seek_channel(request(to="earliest")).body
    assert topic.channels["c"].deferred_count == 1
    assert log_handlers.read_topic(request(seq="0")).body
    peeked = log_handlers.peek(request()).body
    message_id = peeked.partition(b'"id":"')[2][:16].decode()
    log_handlers.finish_message(request(seq="0", id=message_id))
    assert topic.channels["c"].depth == 0
    close_broker(broker)
