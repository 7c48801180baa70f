"""`--standby-on-timeout=alone`: a standby that is back in time has what was answered without it."""

from __future__ import annotations

import pytest

from tests.standby.hosts import DEADLINE_S
from tests.support.nsqd_process import wait_until
from tests.support.wire import Client, bodies

pytestmark = [pytest.mark.ours, pytest.mark.slow]

TOPIC, CHANNEL = "t", "c"
ALONE, AFTER = ([b"%s %d" % (name, number) for number in range(20)] for name in (b"alone", b"after"))


def test_a_standby_that_is_back_in_time_has_all_of_it(make_hosts):
    hosts = make_hosts("--standby-on-timeout=alone")
    primary, standby = hosts.wait_until_whole()
    primary.create(TOPIC, CHANNEL)
    hosts.network.cut(primary.host, standby.host)
    with Client(primary.tcp_port, address=primary.host.address) as client:
        client.pub(TOPIC, *ALONE)
        hosts.network.heal_all()
        wait_until(lambda: not primary.stats()["standbys"]["is_alone"], DEADLINE_S, "the standby to be back")
        client.pub(TOPIC, *AFTER)
    primary.kill()
    hosts.wait_until_it_serves(standby)
    assert sorted(_consumed(standby.tcp_port, standby.host.address, 40)) == sorted(ALONE + AFTER)


def _consumed(port: int, address: str, count: int) -> list[bytes]:
    """Take that many messages and finish them; fail if there are more."""
    with Client(port, address=address) as client:
        client.sub(TOPIC, CHANNEL, 1000)
        found = bodies(client.consume(count, DEADLINE_S))
        client.expect_silence()
    return found
