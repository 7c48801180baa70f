"""`--standby-on-timeout=alone`: what the next primary lacks is exactly what was answered without a standby."""

from __future__ import annotations

import pytest

from tests.standby.conftest import MakeHosts
from tests.standby.hosts import DEADLINE_S
from tests.support.nsqd_process import wait_until
from tests.support.standby_processes import figures_of
from tests.support.wire import Client, bodies

pytestmark = [pytest.mark.ours, pytest.mark.slow]

TOPIC, CHANNEL = "t", "c"
BEFORE, ALONE, AFTER = ([b"%s %d" % (name, number) for number in range(20)] for name in (b"before", b"alone", b"after"))


def test_what_is_lost_is_what_was_answered_alone(make_hosts: MakeHosts) -> None:
    hosts = make_hosts("--standby-on-timeout=alone")
    primary, standby = hosts.wait_until_whole()
    primary.create(TOPIC, CHANNEL)
    with Client(primary.tcp_port, address=primary.host.address) as client:
        client.pub(TOPIC, *BEFORE)
        assert not primary.stats()["standbys"]["is_alone"]
        hosts.network.cut(primary.host, standby.host)
        client.pub(TOPIC, *ALONE)
    assert primary.stats()["standbys"]["is_alone"]
    assert "without a standby" in primary.http("GET", "/ping").text
    primary.kill()
    hosts.wait_until_it_serves(standby)
    assert sorted(_consumed(standby.tcp_port, standby.host.address, len(BEFORE))) == sorted(BEFORE)

    hosts.mend()  # the old primary comes back
    _, old = hosts.wait_until_whole()
    assert old is primary
    assert figures_of(old)["set_aside_messages"] == len(ALONE)
    assert list(old.data_path.glob("standby-alone-*/*.log"))
    with Client(standby.tcp_port, address=standby.host.address) as client:
        client.pub(TOPIC, *AFTER)
    assert not standby.stats()["standbys"]["is_alone"]
    standby.kill()
    hosts.wait_until_it_serves(old)
    assert set(_consumed(old.tcp_port, old.host.address, len(AFTER))) >= set(AFTER)


def test_a_standby_that_is_back_in_time_has_all_of_it(make_hosts: MakeHosts) -> None:
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
