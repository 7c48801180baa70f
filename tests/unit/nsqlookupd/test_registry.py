"""nsqlookupd's registry while a long removal goes on; `tests.property.test_registry_model` has the rest."""

from __future__ import annotations

from nsqlookupd_py.protocol import Peer
from nsqlookupd_py.registry import Registry


def test_a_channel_that_is_created_again_while_its_topic_is_deleted_stays_an_unused_one() -> None:
    registry = Registry(0, 0)
    registry.create("topic", "channel")
    removal = registry.removing_topic("topic")
    registry.create("topic", "channel")
    assert list(removal) == ["channel"]
    assert list(registry.unused) == [("topic", "channel"), ("topic", "")]
    assert registry.names == 2


def test_an_nsqd_that_leaves_takes_no_ephemeral_channel_that_it_never_had() -> None:
    registry = Registry(0, 0)
    registry.create("topic", "unused#ephemeral")
    peer = Peer("127.0.0.1:1", {"broadcast_address": "host", "http_port": 1}, 0)
    registry.add_peer(peer)
    registry.register(peer, "topic", "own")
    removed = [name for name in registry.removing_peer(peer) if name]
    assert removed == [("topic", "own"), ("topic", "")]
    assert sorted(registry.channels("topic")) == ["own", "unused#ephemeral"]
