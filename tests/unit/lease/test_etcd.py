"""The URLs of leases; and etcd as a store, both a real one and the one in memory that other tests use."""

from __future__ import annotations

import pytest

from nsqd_py.lease.etcd import EtcdStore
from nsqd_py.lease.store import LeaseError, LeaseUrl, parse_lease_url
from nsqd_py.net.http.client import HttpClient

CLIENT = HttpClient(5, 5)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("etcd://a:2379/orders", LeaseUrl(False, ("a:2379",), "orders")),
        (
            "etcds://me:secret@a:1,b:2/team/orders/",
            LeaseUrl(True, ("a:1", "b:2"), "team/orders", "me:secret"),
        ),
    ],
)
def test_urls(text: str, url: LeaseUrl) -> None:
    assert parse_lease_url(text) == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("zookeeper://a:2181/orders", "begins with etcd://"),
        ("etcd://a:2379", "ends with its name"),
        ("etcd:///orders", "has the address of its store"),
        ("consul://a:8500/orders", "consul:// is not supported any more: use a lease of etcd"),
        ("kubernetes:///queues/orders", "kubernetes:// is not supported any more: use a lease of etcd"),
    ],
)
def test_urls_that_name_no_lease(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_lease_url(text)


def test_a_store_that_does_not_answer() -> None:
    store = EtcdStore(parse_lease_url("etcd://127.0.0.1:1,127.0.0.1:2/orders"), 10, CLIENT)
    with pytest.raises(LeaseError, match="127.0.0.1:1 - .*127.0.0.1:2 - "):
        store.poll()
