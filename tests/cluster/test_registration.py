"""What the nsqlookupds know while nothing is broken: topics, channels, deletions, tombstones."""

from __future__ import annotations

import contextlib

from tests.support.cluster import Cluster, Publisher, identities, names
from tests.support.nsqd_process import wait_until


def test_every_nsqd_is_listed_by_every_lookupd(cluster: Cluster, topic: str) -> None:
    """Whichever lookupd is asked, it knows all nsqds, and for each the topics that it has."""
    first, second, third = cluster.nsqds
    first.create(topic)
    third.create(topic)
    cluster.wait_for_producers(topic, [first, third])
    for lookupd in cluster.lookupds:
        assert names(lookupd.nodes()) == identities(cluster.nsqds)
        having_it = [node for node in lookupd.nodes() if topic in node["topics"]]
        assert names(having_it) == identities([first, third])


def test_channels_of_a_topic_are_those_of_all_nsqds(cluster: Cluster, topic: str) -> None:
    """A lookupd lists a channel when any nsqd has it, and once when several do."""
    first, second, _ = cluster.nsqds
    first.create(topic, "a", "both")
    second.create(topic, "b", "both")
    cluster.wait_for_channels(topic, ["a", "b", "both"])
    cluster.wait_for_producers(topic, [first, second], channel="both")
    cluster.wait_for_producers(topic, [second], channel="b")


def test_topic_deleted_everywhere_is_gone_everywhere(cluster: Cluster, topic: str) -> None:
    """Deleted as nsqadmin does, it leaves nothing behind, and publishers on another topic notice nothing.

    Made again on one node it is listed for that node alone, without the old channels.
    """
    other = f"{topic}_other"
    for nsqd in cluster.nsqds:
        nsqd.create(topic, "channel")
        nsqd.create(other, "channel")
        nsqd.post(f"/pub?topic={topic}", b"message")
    cluster.wait_for_producers(topic, cluster.nsqds, channel="channel")

    with contextlib.ExitStack() as stack:
        publishers = [stack.enter_context(Publisher(nsqd, other)) for nsqd in cluster.nsqds]
        for lookupd in cluster.lookupds:
            lookupd.delete_topic(topic)
        for nsqd in cluster.nsqds:
            nsqd.delete_topic(topic)
        for publisher in publishers:
            publisher.go_on()
    cluster.wait_for_channels(topic, [])
    assert not any(topic in lookupd.topics() for lookupd in cluster.lookupds)
    for nsqd, publisher in zip(cluster.nsqds, publishers, strict=True):
        assert nsqd.topic_stats(topic) is None
        publisher.require_received()

    second = cluster.nsqds[1]
    second.post(f"/pub?topic={topic}", b"new")
    cluster.wait_for_producers(topic, [second])
    for lookupd in cluster.lookupds:
        assert lookupd.channels(topic) == []
    assert second.received(topic, "channel", 1) == [b"new"]


# --- tombstones


def test_tombstone_hides_one_producer_on_one_topic(cluster: Cluster, topic: str) -> None:
    """The others stay visible, and so does the node, with a mark at this topic."""
    first, second, third = cluster.nsqds
    other = f"{topic}_other"
    for nsqd in cluster.nsqds:
        nsqd.create(topic)
        nsqd.create(other)
    cluster.wait_for_producers(topic, cluster.nsqds)
    cluster.wait_for_producers(other, cluster.nsqds)
    for lookupd in cluster.lookupds:
        lookupd.tombstone(topic, first)
        assert names(lookupd.lookup(topic)) == identities([second, third])
        assert names(lookupd.lookup(other)) == identities(cluster.nsqds)
        marked = {
            (f"{node['broadcast_address']}:{node['tcp_port']}", name)
            for node in lookupd.nodes()
            for name, is_tombstoned in zip(node["topics"], node["tombstones"], strict=True)
            if is_tombstoned
        }
        assert marked == {(first.identity, topic)}


def test_tombstoned_topic_that_is_made_again_is_visible(cluster: Cluster, topic: str) -> None:
    """Tombstone, then delete on the node, as nsqadmin does; a publish right after it is found by consumers."""
    first, second, _ = cluster.nsqds
    for nsqd in (first, second):
        nsqd.create(topic)
    cluster.wait_for_producers(topic, [first, second])
    for _ in range(5):
        for lookupd in cluster.lookupds:
            lookupd.tombstone(topic, first)
            assert names(lookupd.lookup(topic)) == identities([second])
        first.delete_topic(topic)
        first.post(f"/pub?topic={topic}", b"again")
        cluster.wait_for_producers(topic, [first, second])


def test_tombstone_while_all_publish(cluster: Cluster, topic: str) -> None:
    """The nsqd that loses its topic makes it again with its next publish, and is visible again.

    The other is visible all the time, and loses nothing.
    """
    first, second, _ = cluster.nsqds
    for nsqd in (first, second):
        nsqd.create(topic, "channel")
    cluster.wait_for_producers(topic, [first, second], channel="channel")

    def others_are_visible() -> bool:
        return all(second.identity in names(lookupd.lookup(topic)) for lookupd in cluster.lookupds)

    def is_visible() -> bool:
        assert others_are_visible()
        first.http("POST", f"/pub?topic={topic}", b"message")  # may fail while the topic is being deleted
        return all(first.identity in names(lookupd.lookup(topic)) for lookupd in cluster.lookupds)

    with Publisher(second, topic) as publisher:
        for _ in range(3):
            for lookupd in cluster.lookupds:
                lookupd.tombstone(topic, first)
            assert others_are_visible()
            first.delete_topic(topic)
            wait_until(is_visible)
            publisher.go_on(10)
    cluster.wait_for_producers(topic, [first, second])
    publisher.require_received()
