"""The URLs of leases; and etcd as a store, both a real one and the one in memory that other tests use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nsqd_py.lease.etcd import EtcdStore
from nsqd_py.lease.store import LeaseError, LeaseLost, LeaseUrl, Note, parse_lease_url
from nsqd_py.net.http.client import HttpClient
from tests.support.etcd import ETCD, Etcd
from tests.support.fake_etcd import FakeEtcd

CLIENT = HttpClient(5, 5)
Open = Callable[[str], EtcdStore]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("etcd://a:2379/orders", LeaseUrl(False, ("a:2379",), "orders")),
        ("etcds://me:secret@a:1,b:2/team/orders/", LeaseUrl(True, ("a:1", "b:2"), "team/orders", "me:secret")),
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
        store.acquire("a:1")


@pytest.fixture(params=["in memory", "real"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    if request.param == "in memory":
        with FakeEtcd() as fake:
            yield lambda name: EtcdStore(parse_lease_url(f"etcd://{fake.address}/{name}"), 2, CLIENT)
        return
    if ETCD is None:
        pytest.skip("no etcd here")
    etcd = Etcd(tmp_path)
    try:
        etcd.wait_until_it_answers()
        yield etcd.store
    finally:
        etcd.end()


def test_etcd_gives_the_lease_to_one(open_store: Open) -> None:
    first, second = open_store("orders"), open_store("orders")
    assert first.holder() is None
    lease = first.acquire("first:1")
    assert lease is not None
    assert second.acquire("second:1") is None
    assert second.holder() == "first:1"
    first.renew(lease)
    assert second.note() == Note("", 0)
    revision = first.write_note(lease, "one", 0)
    assert second.note() == Note("one", revision)
    with pytest.raises(LeaseError, match="was changed"):
        first.write_note(lease, "two", 0)  # a request that arrives late
    first.release(lease)
    later = second.acquire("second:1")
    assert later is not None
    assert later.number > lease.number
    with pytest.raises(LeaseLost, match="another holder"):
        first.write_note(lease, "two", revision)
    with pytest.raises(LeaseLost, match="has ended"):
        first.renew(lease)
    assert second.write_note(later, "three", revision) > revision
