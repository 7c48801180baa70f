"""A topic that has channels elsewhere comes to an nsqd that is new: no channel may miss its first messages."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cluster import Cluster, ClusterNsqd, hung
from tests.support.nsqd_process import wait_until

CHANNELS = ["a", "b", "c"]
EPHEMERAL = "d#ephemeral"
PUBLISHERS, MESSAGES_EACH = 4, 10
ALL = sorted(
    b"%d-%03d" % (publisher, number) for publisher in range(PUBLISHERS) for number in range(MESSAGES_EACH)
)
# A lookupd that hangs may be waited for, by the channels; not by the publishers.
CHANNELS_S = 40.0


@pytest.fixture
def known_topic(cluster: Cluster, topic: str) -> Iterator[str]:
    """A topic whose channels the lookupds know, and of which they know an ephemeral one as well."""
    old = cluster.nsqds[0]
    old.create(topic, *CHANNELS)
    with old.connect() as client:
        client.sub(topic, EPHEMERAL)
        cluster.wait_for_channels(topic, [*CHANNELS, EPHEMERAL])
        yield topic


def publish_at_once(nsqd: ClusterNsqd, topic: str) -> None:
    """From several connections, as soon as it takes them, each its first message at the same moment as the others."""
    together = threading.Barrier(PUBLISHERS)

    def publish(publisher: int) -> None:
        client = wait_until(nsqd.try_to_connect)
        assert client is not None
        with client:
            together.wait(40)
            client.pub(topic, *(b"%d-%03d" % (publisher, number) for number in range(MESSAGES_EACH)))

    with ThreadPoolExecutor(PUBLISHERS) as pool:
        for ended in [pool.submit(publish, publisher) for publisher in range(PUBLISHERS)]:
            ended.result()
    nsqd.wait_until_it_listens()  # it does; its HTTP port is known from now on


def expect_all_in_every_channel(nsqd: ClusterNsqd, topic: str, channels: list[str]) -> None:
    for channel in channels:
        nsqd.wait_for_channel(topic, channel, CHANNELS_S, depth=len(ALL))
    stats = nsqd.topic_stats(topic)
    assert stats is not None
    assert sorted(channel["channel_name"] for channel in stats["channels"]) == channels
    for channel in channels:
        assert nsqd.received(topic, channel, len(ALL)) == ALL


def start_and_register(guest: ClusterNsqd, cluster: Cluster, topic: str) -> None:
    """Returns when it has found the lookupds something: then it knows where to ask them."""
    guest.start()
    guest.create(f"{topic}_other")
    cluster.wait_for_producers(f"{topic}_other", [guest])


def test_new_node_that_is_registered(cluster: Cluster, known_topic: str) -> None:
    """Every channel that the lookupds know gets every message. The ephemeral one is left to its consumers."""
    guest = cluster.new_guest()
    start_and_register(guest, cluster, known_topic)
    publish_at_once(guest, known_topic)
    expect_all_in_every_channel(guest, known_topic, CHANNELS)


def test_channels_that_only_one_lookupd_knows(cluster: Cluster, topic: str) -> None:
    """The channels are those that any of the lookupds knows."""
    first, second = cluster.lookupds
    first.create_channel(topic, "a")
    second.create_channel(topic, "b")
    second.create_channel(topic, EPHEMERAL)
    nsqd = cluster.nsqds[1]
    publish_at_once(nsqd, topic)
    expect_all_in_every_channel(nsqd, topic, ["a", "b"])


@pytest.mark.ours
def test_publish_is_the_first_thing_that_happens(cluster: Cluster, known_topic: str) -> None:
    """The publishers come before nsqd had time to speak with any lookupd."""
    guest = cluster.new_guest()
    guest.launch()
    publish_at_once(guest, known_topic)
    expect_all_in_every_channel(guest, known_topic, CHANNELS)


@pytest.mark.ours
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("harm", ["dead", "hung", "silent"])
def test_one_lookupd_does_not_answer(cluster: Cluster, known_topic: str, harm: str, number: int) -> None:
    """What the other knows is enough, whichever it is, and whether connections are refused, taken or lost."""
    lookupd = cluster.lookupds[number]
    guest = cluster.new_guest()
    with contextlib.ExitStack() as disturbance:
        if harm == "dead":
            lookupd.kill()
        elif harm == "hung":
            disturbance.enter_context(hung(lookupd))
        else:
            disturbance.enter_context(cluster.partition(guest, lookupd))
        guest.launch()
        publish_at_once(guest, known_topic)
        expect_all_in_every_channel(guest, known_topic, CHANNELS)


@pytest.mark.ours
def test_only_lookupd_that_knows_comes_late(cluster: Cluster, topic: str) -> None:
    """It hangs while the topic begins. When it runs again, its channel gets everything from the first message on."""
    first, _ = cluster.lookupds
    first.create_channel(topic, "a")
    guest = cluster.new_guest()
    with hung(first):
        guest.launch()
        publish_at_once(guest, topic)
    expect_all_in_every_channel(guest, topic, ["a"])


def test_lookupds_die_after_the_registration(cluster: Cluster, known_topic: str) -> None:
    """With nobody to ask, nothing is lost: the channel that a consumer makes gets all."""
    guest = cluster.new_guest()
    start_and_register(guest, cluster, known_topic)
    for lookupd in cluster.lookupds:
        lookupd.kill()
    publish_at_once(guest, known_topic)
    assert guest.received(known_topic, "a", len(ALL)) == ALL
