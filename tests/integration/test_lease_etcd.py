"""Leases of a real etcd. Skipped where there is no etcd (Debian: etcd-server). test_leases.py has what all stores do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.etcd import ETCD, Etcd
from tests.support.etcd_operator import EtcdOperator

pytestmark = pytest.mark.skipif(ETCD is None, reason="no etcd here")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory) -> Iterator[Etcd]:
    running = Etcd(tmp_path_factory.mktemp("etcd"))
    try:
        running.wait_until_it_answers()
        yield running
    finally:
        running.end()


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
