"""Parts of the cluster die, hang and come back. Publishers and consumers at an nsqd notice nothing of lookupds."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.cluster import (
    RETURN_S,
    SOON_S,
    Cluster,
    Publisher,
    answered_within,
    hung,
    identities,
    names,
    start_all,
)

LOOKUPDS = pytest.mark.parametrize("count", [1, 2], ids=["one_lookupd", "both_lookupds"])


@pytest.mark.ours
@LOOKUPDS
def test_lookupds_die_and_return(cluster: Cluster, topic: str, count: int) -> None:
    """Publishes go on, to known and to new topics, and lose nothing.

    A lookupd that comes back, empty, on the same ports is found within 20 s what there is, with what is new since.
    """
    dead, living = cluster.lookupds[:count], cluster.lookupds[count:]
    for nsqd in cluster.nsqds:
        nsqd.create(topic, "channel")
    cluster.wait_for_producers(topic, cluster.nsqds, channel="channel")
    first = cluster.nsqds[0]
    new = f"{topic}_new"
    with Publisher(first, topic) as publisher:
        for lookupd in dead:
            lookupd.kill()
        publisher.go_on()
        with answered_within(), first.connect() as client:
            client.pub(new, b"message")
            client.sub(new, "channel")
        for lookupd in living:
            assert names(lookupd.lookup(topic)) == identities(cluster.nsqds)
            cluster.wait_for_producers(new, [first], lookupds=[lookupd])
        start_all(dead)
        publisher.go_on()
        cluster.wait_for_producers(topic, cluster.nsqds, RETURN_S)
        cluster.wait_for_producers(topic, cluster.nsqds, channel="channel")
        cluster.wait_for_producers(new, [first])
        cluster.wait_for_producers(new, [first], channel="channel")
    for lookupd in cluster.lookupds:
        assert names(lookupd.nodes()) == identities(cluster.nsqds)
    publisher.require_received()
    assert first.received(new, "channel", 1) == [b"message"]


def test_nsqd_dies_and_returns(cluster: Cluster, topic: str) -> None:
    """Its registrations leave at once, and only its own; with it come back its topics and channels."""
    first, second, _ = cluster.nsqds
    for nsqd in (first, second):
        nsqd.create(topic, "a", "b")
    first.create(f"{topic}_lone", "c")
    cluster.wait_for_producers(topic, [first, second], channel="b")
    cluster.wait_for_producers(f"{topic}_lone", [first], channel="c")

    first.kill()
    cluster.wait_for_producers(topic, [second])
    cluster.wait_for_producers(topic, [second], channel="a")
    cluster.wait_for_producers(f"{topic}_lone", [])
    for lookupd in cluster.lookupds:
        assert names(lookupd.nodes()) == identities(cluster.nsqds[1:])

    first.start()
    for channel in ("a", "b"):
        cluster.wait_for_producers(topic, [first, second], RETURN_S, channel=channel)
    cluster.wait_for_producers(f"{topic}_lone", [first], RETURN_S, channel="c")


@pytest.mark.ours
def test_killed_nsqd_returns_with_its_messages(cluster: Cluster, topic: str) -> None:
    """Acknowledged means kept: killed right after the last answer, it is found again by its topic, with everything."""
    nsqd = cluster.nsqds[0]
    nsqd.create(topic, "channel")
    with nsqd.connect() as client:
        sent = [b"%03d" % number for number in range(100)]
        client.pub(topic, *sent)
        nsqd.kill()
    nsqd.start()
    cluster.wait_for_producers(topic, [nsqd], RETURN_S, channel="channel")
    assert nsqd.received(topic, "channel", len(sent)) == sent


def test_nsqds_come_before_the_lookupds(cluster: Cluster, topic: str) -> None:
    """All die. The nsqds start alone and work, the lookupds come later and are found."""
    for process in (*cluster.nsqds, *cluster.lookupds):
        process.kill()
    start_all(cluster.nsqds)
    first = cluster.nsqds[0]
    with answered_within(), first.connect() as client:
        client.pub(topic, b"message")
    start_all(cluster.lookupds)
    cluster.wait_for_producers(topic, [first], RETURN_S)
    cluster.wait_until_whole()
    assert first.received(topic, "channel", 1) == [b"message"]


@LOOKUPDS
def test_lookupds_hang_and_known_topics_go_on(cluster: Cluster, topic: str, count: int) -> None:
    """PUB to, and SUB of, what exists do not wait for lookupds that take connections and say nothing."""
    nsqd = cluster.nsqds[0]
    nsqd.create(topic, "channel")
    cluster.wait_for_producers(topic, [nsqd], channel="channel")
    with contextlib.ExitStack() as stack:
        publisher = stack.enter_context(Publisher(nsqd, topic))
        with contextlib.ExitStack() as hanging:
            for lookupd in cluster.lookupds[:count]:
                hanging.enter_context(hung(lookupd))
            client = stack.enter_context(nsqd.connect())
            with answered_within():
                client.sub(topic, "new", rdy_count=1)
            publisher.go_on(100)
            with answered_within():
                client.message()
    cluster.wait_for_producers(topic, [nsqd], RETURN_S)
    cluster.wait_for_producers(topic, [nsqd], RETURN_S, channel="new")
    publisher.require_received()


@pytest.mark.ours
@LOOKUPDS
def test_lookupds_hang_and_new_topics_go_on(cluster: Cluster, topic: str, count: int) -> None:
    """PUB to, and SUB of, what is new do not wait either. When the lookupds run again they are found."""
    nsqd = cluster.nsqds[0]
    with contextlib.ExitStack() as hanging:
        for lookupd in cluster.lookupds[:count]:
            hanging.enter_context(hung(lookupd))
        for number in range(3):
            with nsqd.connect() as client, answered_within():
                client.pub(f"{topic}_pub_{number}", b"message")
            with nsqd.connect() as client, answered_within():
                client.sub(f"{topic}_sub_{number}", "channel")
            with answered_within():
                nsqd.post(f"/pub?topic={topic}_http_{number}", b"message")
        for lookupd in cluster.lookupds[count:]:
            cluster.wait_for_producers(f"{topic}_pub_0", [nsqd], SOON_S, lookupds=[lookupd])
    for number in range(3):
        for name in (f"{topic}_pub_{number}", f"{topic}_http_{number}"):
            cluster.wait_for_producers(name, [nsqd], RETURN_S)
            assert nsqd.received(name, "channel", 1) == [b"message"]
        cluster.wait_for_producers(f"{topic}_sub_{number}", [nsqd], RETURN_S, channel="channel")
    cluster.wait_until_whole()
