"""Leases of a real etcd, which is stopped and continued. Skipped where there is no etcd (Debian: etcd-server)."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from nsqd_py.lease.keeper import LeaseKeeper
from tests.support.consumer_drivers import SHELLS
from tests.support.etcd import ETCD, Etcd
from tests.support.etcd_operator import EtcdOperator
from tests.unit.fakes import FakeLog

TTL_S = 2
wait_here = SHELLS["gevent"].wait  # greenlets run in the meantime

pytestmark = pytest.mark.skipif(ETCD is None, reason="no etcd here")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory) -> Iterator[Etcd]:
    running = Etcd(tmp_path_factory.mktemp("etcd"))
    try:
        running.wait_until_it_answers()
        yield running
    finally:
        running.end()


def test_a_lease_that_nobody_renews_ends(etcd):
    store = etcd.store("two")
    assert store.acquire("first:1", store.poll()) is not None

    def take():
        state = store.poll()
        return store.acquire("second:1", state) if state.holder is None else None

    store.release(wait_here(take))


def test_a_compaction_and_writes_to_other_keys_end_no_lease(etcd):
    store, operator = etcd.store("compacted"), EtcdOperator(etcd.address)
    lease = store.acquire("first:1", store.poll())
    assert lease is not None
    operator.put("nsqd-py/compacted-2", "x")
    operator.compact()
    store.renew(lease)
    assert store.poll(lease.handle).holder == "first:1"
    store.release(lease)
    assert store.poll().is_released


def test_a_keeper_stops_its_holder_while_etcd_is_stopped_and_competes_again_afterwards(etcd):
    said = []
    keeper = LeaseKeeper(
        etcd.store("three"),
        "first:1",
        TTL_S,
        FakeLog(),
        lambda: True,
        lambda: said.append("taken" if keeper.is_held else "lost"),
    )
    keeper.start()

    wait_here(lambda: said == ["taken"])
    etcd.process.send_signal(signal.SIGSTOP)
    wait_here(lambda: said == ["taken", "lost"])
    assert not keeper.is_held
    etcd.process.send_signal(signal.SIGCONT)
    wait_here(lambda: said == ["taken", "lost", "taken"])
    keeper.close()
    assert etcd.store("three").poll().holder is None
