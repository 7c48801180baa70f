"""nsqlookupd's registry while a long removal goes on; `tests.property.test_registry_model` has the rest."""

from __future__ import annotations

from nsqlookupd_py.registry import Registry


def test_a_channel_that_is_created_again_while_its_topic_is_deleted_stays_an_unused_one() -> None:
    registry = Registry(0, 0)
    registry.create("topic", "channel")
    removal = registry.removing_topic("topic")
    registry.create("topic", "channel")
    assert list(removal) == ["channel"]
    assert list(registry.unused) == [("topic", "channel"), ("topic", "")]
    assert registry.names == 2
