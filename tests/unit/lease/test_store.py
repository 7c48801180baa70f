"""The URLs of leases, and the stores of Consul and Kubernetes beside servers in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nsqd_py.lease.consul import ConsulStore
from nsqd_py.lease.kubernetes import KubernetesStore
from nsqd_py.lease.store import LeaseError, LeaseLost, LeaseUrl, parse_lease_url
from nsqd_py.lease.stores import open_store
from nsqd_py.net.http.client import HttpClient, parse_url
from tests.support.lease_servers import Consul, Kubernetes, serving

CLIENT = HttpClient(5, 5)
NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("etcd://a:2379/orders", LeaseUrl("etcd", False, ("a:2379",), "orders")),
        ("etcds://me:secret@a:1,b:2/team/orders/", LeaseUrl("etcd", True, ("a:1", "b:2"), "team/orders", "me:secret")),
        ("consul://a:8500/orders", LeaseUrl("consul", False, ("a:8500",), "orders")),
        ("kubernetes:///queues/orders", LeaseUrl("kubernetes", True, (), "queues/orders")),
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
        ("kubernetes://a:443/queues/orders", "kubernetes:///namespace/name"),
        ("kubernetes:///orders", "kubernetes:///namespace/name"),
    ],
)
def test_urls_that_name_no_lease(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_lease_url(text)


def test_a_time_to_live_that_the_store_does_not_allow() -> None:
    with pytest.raises(ValueError, match="a lease of consul lives at least 10 seconds, got 5"):
        open_store(parse_lease_url(f"consul://{NOWHERE}/orders"), 5, CLIENT)


@pytest.mark.parametrize("kind", ["etcd", "consul"])
def test_a_store_that_nobody_answers_for(kind: str) -> None:
    store = open_store(parse_lease_url(f"{kind}://{NOWHERE},127.0.0.1:2/orders"), 10, CLIENT)
    with pytest.raises(LeaseError, match="127.0.0.1:1 - .*127.0.0.1:2 - "):
        store.acquire("a")


# ---- Consul


@pytest.fixture
def consul() -> Iterator[tuple[Consul, str]]:
    server = Consul()
    with serving(server.answer) as port:
        yield server, f"consul://127.0.0.1:{port}/orders"


def test_consul_gives_the_lease_to_one(consul: tuple[Consul, str]) -> None:
    server, url = consul
    first, second = (ConsulStore(parse_lease_url(url), 10, CLIENT) for _ in range(2))
    assert first.holder() is None
    lease = first.acquire("first")
    assert lease is not None
    assert second.acquire("second") is None
    assert second.holder() == "first"
    first.renew(lease)
    assert second.note() == ""
    first.write_note(lease, "5")
    first.release(lease)
    assert second.note() == "5"
    later = second.acquire("second")
    assert later is not None
    assert later.number > lease.number
    with pytest.raises(LeaseLost):
        first.write_note(lease, "6")
    server.end_all()
    with pytest.raises(LeaseLost):
        second.renew(later)
    assert server.sessions == set()  # none is left behind


# ---- Kubernetes


def test_kubernetes_gives_the_lease_to_one_and_a_watcher_takes_it_when_it_is_not_renewed() -> None:
    server = Kubernetes()
    now_s = [100.0]
    with serving(server.answer) as port:
        api = parse_url(f"http://127.0.0.1:{port}/")
        first, second = (
            KubernetesStore(
                parse_lease_url("kubernetes:///queues/orders"), 5, CLIENT, api, lambda: "token", lambda: now_s[0]
            )
            for _ in range(2)
        )
        lease = first.acquire("first")
        assert lease is not None
        assert second.acquire("second") is None
        now_s[0] += 4
        first.renew(lease)
        assert second.note() == ""
        first.write_note(lease, "5")
        assert second.note() == "5"
        assert second.acquire("second") is None  # it sees the renewal now
        now_s[0] += 4.9
        assert second.acquire("second") is None
        assert second.holder() == "first"
        now_s[0] += 0.2
        later = second.acquire("second")
        assert later is not None
        assert later.number == lease.number + 1
        with pytest.raises(LeaseLost):
            first.renew(lease)
        with pytest.raises(LeaseLost):
            first.write_note(lease, "6")
        assert second.note() == "5"
        second.release(later)
        assert first.holder() is None
        assert first.acquire("first") is not None  # at once


def test_two_watchers_cannot_both_take_a_lease_of_kubernetes() -> None:
    server = Kubernetes()
    taken: list[object] = []

    def answer(method: str, path: str, query: str, body: bytes) -> tuple[int, object]:
        if method == "POST" and not taken:
            taken.append(None)
            taken[0] = stores[1].acquire("second")  # after the first has seen that there is none
        return server.answer(method, path, query, body)

    with serving(answer) as port:
        api = parse_url(f"http://127.0.0.1:{port}/")
        url = parse_lease_url("kubernetes:///queues/orders")
        stores = [KubernetesStore(url, 5, CLIENT, api, lambda: "token") for _ in range(2)]
        assert stores[0].acquire("first") is None
        assert taken != [None]
        assert stores[0].holder() == "second"
