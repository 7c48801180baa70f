"""Topology-aware consumption: a consumer in nsqd's zone is served before one in its region, and that before others."""

from __future__ import annotations

import pytest

from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import Client

# v1.3.0 has no topology; the master branch of Go's nsqd hands messages on one by one, and only prefers.
pytestmark = pytest.mark.ours

FLAGS = ["--topology-zone=z1", "--topology-region=r1"]
AWARE = "--enable-experiment=topology-aware-consumption"


def consumer(nsqd: NsqdProcess, zone: str, region: str, rdy_count: int) -> Client:
    client = nsqd.connect(topology_zone=zone, topology_region=region)
    client.sub("topic", "channel", rdy_count)
    client.round_trip()
    return client


def test_the_nearest_are_served_first_and_what_they_cannot_take_goes_further(make_nsqd):
    nsqd = make_nsqd(*FLAGS, AWARE)
    elsewhere, region, zone = (
        consumer(nsqd, *place, rdy_count=10) for place in (("z9", "r9"), ("z2", "r1"), ("z1", "r1"))
    )
    with nsqd.connect() as publisher:
        publisher.mpub("topic", [b"%d" % number for number in range(6)])
        assert len(zone.messages(6)) == 6
        publisher.mpub("topic", [b"%d" % number for number in range(6, 22)])
    assert len(zone.messages(4)) == 4
    assert len(region.messages(10)) == 10
    assert len(elsewhere.messages(2)) == 2
    channel = nsqd.wait_for_channel("topic", "channel", in_flight_count=22)
    counts = [channel[f"{place}_msg_count"] for place in ("zone_local", "region_local", "global")]
    assert counts == [10, 10, 2]
    for client in (elsewhere, region, zone):
        client.close()


def test_consumers_of_one_zone_share(make_nsqd):
    nsqd = make_nsqd(*FLAGS, AWARE)
    near = [consumer(nsqd, "z1", "r1", rdy_count=10) for _ in range(2)]
    far = consumer(nsqd, "z2", "r1", rdy_count=10)
    nsqd.mpub("topic", [b"%d" % number for number in range(10)])
    for client in near:
        assert len(client.messages(5)) == 5
    far.expect_silence(0.2)
    for client in (*near, far):
        client.close()


def test_without_the_experiment_all_are_alike(make_nsqd):
    nsqd = make_nsqd(*FLAGS)
    near, far = consumer(nsqd, "z1", "r1", rdy_count=10), consumer(nsqd, "z2", "r2", rdy_count=10)
    nsqd.mpub("topic", [b"%d" % number for number in range(10)])
    for client in (near, far):
        assert len(client.messages(5)) == 5
        client.close()
    channel = nsqd.channel_stats("topic", "channel")
    assert channel is not None
    assert "zone_local_msg_count" not in channel
    assert channel["global_msg_count"] == 10
