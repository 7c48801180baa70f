"""An nsqd and nsqlookupds that do not reach each other: what is sent into the gap is lost without a word."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cluster import RETURN_S, Cluster, ClusterNsqd, Publisher

# This many publishes, one each 10 ms, are more than nsqd waits for a lookupd's answer.
UNTIL_IT_IS_NOTICED = 500


def test_partition_of_some_seconds(cluster: Cluster, topic: str) -> None:
    """One nsqd loses one lookupd, another loses both, and both change what they have in the meantime.

    Their publishes are answered in time all along, and none is lost. When the partition is over, each lookupd knows
    within 20 s what there is, with nothing that was deleted and nothing twice.
    """
    halfway, alone, untouched = cluster.nsqds
    first, second = cluster.lookupds
    kept, deleted, created, brief = (f"{topic}_{fate}" for fate in ("kept", "deleted", "created", "brief"))
    for name in (kept, deleted):
        for nsqd in cluster.nsqds:
            nsqd.create(name, "deleted", "kept")
        cluster.wait_for_producers(name, cluster.nsqds, channel="kept")

    def change(nsqd: ClusterNsqd) -> None:
        nsqd.delete_topic(deleted)
        nsqd.delete_channel(kept, "deleted")
        nsqd.create(kept, "created")
        nsqd.create(created, "channel")
        nsqd.create(brief, "channel")
        nsqd.delete_topic(brief)

    with (
        Publisher(halfway, kept, "kept") as to_halfway,
        Publisher(alone, kept, "kept") as to_alone,
        ThreadPoolExecutor() as pool,
    ):
        with cluster.partition(halfway, first), cluster.partition(alone, first, second):
            changes = [pool.submit(change, nsqd) for nsqd in (halfway, alone)]
            to_halfway.go_on(UNTIL_IT_IS_NOTICED)
            for ended in changes:
                ended.result()
            cluster.wait_for_producers(created, [halfway], RETURN_S, lookupds=[second])
            assert first.lookup(created) == [], "it is no partition"
        to_halfway.go_on()
        to_alone.go_on()

    after_it = {
        (kept, ""): cluster.nsqds,
        (kept, "kept"): cluster.nsqds,
        (kept, "created"): [halfway, alone],
        (kept, "deleted"): [untouched],
        (deleted, ""): [untouched],
        (deleted, "kept"): [untouched],
        (created, ""): [halfway, alone],
        (created, "channel"): [halfway, alone],
        (brief, ""): [],
    }
    for (name, channel), nsqds in after_it.items():
        cluster.wait_for_producers(name, nsqds, RETURN_S, channel=channel)
    cluster.wait_until_whole()
    to_halfway.require_received()
    to_alone.require_received()


def test_short_partition_with_a_change(cluster: Cluster, topic: str) -> None:
    """What was made in a gap that is over before anyone gives up is known soon after it, once."""
    nsqd = cluster.nsqds[0]
    nsqd.create(topic)
    cluster.wait_for_producers(topic, [nsqd])
    with Publisher(nsqd, topic) as publisher, cluster.partition(nsqd, *cluster.lookupds):
        nsqd.create(topic, "channel")
        publisher.go_on(20)
    cluster.wait_for_producers(topic, [nsqd], RETURN_S, channel="channel")
    cluster.wait_for_producers(topic, [nsqd], RETURN_S)
    publisher.require_received()


def test_partition_that_nobody_notices(cluster: Cluster, topic: str) -> None:
    """A short gap in which nothing is said is none: the connection holds, and the next change arrives at once."""
    nsqd = cluster.nsqds[0]
    nsqd.create(topic)
    cluster.wait_for_producers(topic, [nsqd])
    with cluster.partition(nsqd, *cluster.lookupds), Publisher(nsqd, topic) as publisher:
        publisher.go_on(20)
    cluster.wait_for_producers(topic, [nsqd])
    nsqd.create(topic, "channel")
    cluster.wait_for_producers(topic, [nsqd], channel="channel")


@pytest.mark.ours
@pytest.mark.parametrize("count", [1, 2], ids=["one_lookupd", "both_lookupds"])
def test_new_topics_in_a_partition(cluster: Cluster, topic: str, count: int) -> None:
    """The first publish to a topic does not wait for lookupds that could know its channels, and are silent."""
    nsqd = cluster.nsqds[0]
    topics = [f"{topic}_{number}" for number in range(3)]
    took_s = []
    with cluster.partition(nsqd, *cluster.lookupds[:count]), nsqd.connect() as client:
        for name in topics:
            began_s = time.monotonic()
            client.pub(name, b"one")
            took_s.append(time.monotonic() - began_s)
            client.pub(name, b"two")
    assert min(took_s) < 1  # each would wait for a connection
    for name in topics:
        cluster.wait_for_producers(name, [nsqd], RETURN_S)
        assert nsqd.received(name, "channel", 2) == [b"one", b"two"]
