"""Three nsqds with a lease of a real etcd, and --standby-acks=1: only a standby that has all may take over."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.etcd import ETCD, Etcd
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    consume_all,
    is_standby,
    lease_holders,
    wait_for_a_primary,
    wait_until_it_follows,
    wait_until_it_serves,
)
from tests.support.wire import pub

pytestmark = [pytest.mark.ours, pytest.mark.skipif(ETCD is None, reason="no etcd here")]

TOPIC, CHANNEL = "t", "c"


class Group(NamedTuple):
    """An etcd, the primary, and its two standbys, which have everything."""

    etcd: Etcd
    primary: NsqdProcess
    standbys: list[NsqdProcess]

    def note(self) -> dict[str, Any]:
        return json.loads(self.etcd.store("orders").note().text)

    def members(self) -> set[str]:
        return set(self.note()["members"].values())

    def wait_for_members(self, *nsqds: NsqdProcess) -> None:
        addresses = {f"127.0.0.1:{nsqd.tcp_port}" for nsqd in nsqds}
        wait_until(lambda: self.members() == addresses, DEADLINE_S, f"the members {addresses}")


@pytest.fixture
def group(tmp_path, request, processes) -> Iterator[Group]:
    with Etcd(tmp_path) as etcd:
        flags = (
            f"--lease={etcd.url('orders')}",
            "--lease-ttl=2s",
            "--standby-acks=1",
            "--standby-timeout=4s",
            *getattr(request, "param", ()),
        )
        processes += lease_holders(tmp_path, "abc", *flags)
        for nsqd in processes:
            nsqd.start()
        first = wait_for_a_primary(processes)
        others = [nsqd for nsqd in processes if nsqd is not first]
        for nsqd in others:
            wait_until_it_follows(nsqd)
        first.create(TOPIC, CHANNEL)
        group = Group(etcd, first, others)
        group.wait_for_members(*processes)
        yield group


def publish(nsqd: NsqdProcess, *bodies: bytes) -> None:
    with nsqd.connect() as client:
        client.pub(TOPIC, *bodies)


def refuses(nsqd: NsqdProcess) -> bool:
    with nsqd.connect() as client:
        return client.ask(pub(TOPIC, b"refused")).data.startswith(b"E_PUB_FAILED")


def test_the_one_that_has_all_wins_and_others_wait_for_it(group):
    has_all, lags = group.standbys
    lags.signal(signal.SIGSTOP)
    bodies = [b"%d" % number for number in range(20)]
    publish(group.primary, *bodies)  # after half of the time-out, the one that lags is out of the set
    assert group.members() == {f"127.0.0.1:{nsqd.tcp_port}" for nsqd in (group.primary, has_all)}
    has_all.signal(signal.SIGSTOP)
    group.primary.kill()
    lags.signal(signal.SIGCONT)
    wait_until(lambda: "waiting for one of" in lags.log_text(), DEADLINE_S, "the one that lags to wait")
    assert is_standby(lags)
    has_all.signal(signal.SIGCONT)
    wait_until_it_serves(has_all)
    group.wait_for_members(has_all, lags)  # it has caught up
    assert sorted(consume_all(has_all, TOPIC, CHANNEL)) == sorted(bodies)


def test_a_standby_that_is_back_is_in_the_set_before_publishers_count_on_it(group):
    first, second = group.standbys
    second.stop()
    publish(group.primary, b"1")
    group.wait_for_members(group.primary, first)
    second.start()
    group.wait_for_members(group.primary, first, second)
    first.stop()
    publish(group.primary, b"2")
    group.wait_for_members(group.primary, second)
    group.primary.kill()
    wait_until_it_serves(second)
    assert sorted(consume_all(second, TOPIC, CHANNEL)) == [b"1", b"2"]


def test_without_standbys_the_set_stays_and_publishers_are_refused(group):
    for standby in group.standbys:
        standby.stop()
    before = group.note()
    assert refuses(group.primary)
    assert group.note()["epoch"] == before["epoch"]
    # At least one that went has everything, and may take over when it is back.
    assert len(group.members()) > 1
    has_all = next(nsqd for nsqd in group.standbys if f"127.0.0.1:{nsqd.tcp_port}" in group.members())
    group.primary.kill()
    has_all.start()
    wait_until_it_serves(has_all)


@pytest.mark.parametrize("group", [("--standby-on-timeout=alone",)], indirect=True)
def test_what_was_answered_alone_waits_for_the_primary(group):
    for standby in group.standbys:
        standby.signal(signal.SIGSTOP)
    publish(group.primary, b"alone")
    group.wait_for_members(group.primary)
    assert "without a standby" in group.primary.http("GET", "/ping").text
    group.primary.kill()
    for standby in group.standbys:
        standby.signal(signal.SIGCONT)
        wait_until(lambda: "waiting for one of" in standby.log_text(), DEADLINE_S, "the standby to wait")  # noqa: B023
    group.primary.start()
    wait_until_it_serves(group.primary)
    group.wait_for_members(group.primary, *group.standbys)
    wait_until(lambda: group.primary.http("GET", "/ping").text == "OK", DEADLINE_S, "the end of being alone")
    assert consume_all(group.primary, TOPIC, CHANNEL) == [b"alone"]
