"""Two nsqds with `--lease`, and an etcd in memory; `test_lease_failovers.py` does the same with a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fake_etcd import GRANT, KEEPALIVE, RANGE, TXN, FakeEtcd, raw
from tests.support.network import port_pairs
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.standby_processes import (
    DEADLINE_S,
    consume_all,
    figures_of,
    is_primary,
    lease_holders,
    state_of,
    wait_for_a_primary,
    wait_until_it_follows,
    wait_until_it_gives_way,
    wait_until_it_has_all,
    wait_until_it_serves,
)
from tests.support.wire import pub

NAME = "orders"


Pair = tuple[FakeEtcd, NsqdProcess, NsqdProcess]


@pytest.fixture
def pair(tmp_path, processes) -> Iterator[Pair]:
    """The first has messages before there is a lease, and so is the primary."""
    with FakeEtcd() as etcd, NsqlookupdProcess(tmp_path / "nsqlookupd.log").start() as lookupd:
        flags = (
            f"--lease=etcd://{etcd.address}/{NAME}",
            "--lease-ttl=5s",
            "--standby-acks=1",
            f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}",
        )
        NsqdProcess(tmp_path / "a").start().stop()
        processes += lease_holders(tmp_path, "ab", *flags)
        yield etcd, *(nsqd.start() for nsqd in processes)


def test_the_holder_of_the_lease_serves_and_the_other_one_takes_over(pair):
    etcd, first, second = pair
    wait_until_it_serves(first)
    wait_until_it_follows(second)
    assert figures_of(second)["primary"] == f"127.0.0.1:{first.tcp_port}"
    assert second.http("POST", "/promote").status == 409
    first.create("t", "c")
    with first.connect() as client:
        client.pub("t", b"1", b"2")
    wait_until_it_has_all(first)
    note = etcd.note(NAME)
    first.stop()
    wait_until_it_serves(second)
    assert etcd.note(NAME)["epoch"] > note["epoch"]
    first.start()  # it follows now
    assert figures_of(first)["primary"] == f"127.0.0.1:{second.tcp_port}"
    wait_until_it_follows(first)
    assert sorted(consume_all(second, "t", "c")) == [b"1", b"2"]


def test_an_old_copy_does_not_serve(pair):
    etcd, first, second = pair
    wait_until(lambda: len(etcd.note(NAME)["members"]) == 2, DEADLINE_S, "the standby to be in sync")
    first.kill()
    etcd.end_lease()
    wait_until_it_serves(second)
    second.kill()
    etcd.end_lease()
    first.launch()  # its epoch is older than that of the last primary
    wait_until(lambda: "waiting for etcd" in first.log_text(), DEADLINE_S, "the first to start")
    second.start()
    assert is_primary(second)
    first.wait_until_it_listens()
    assert figures_of(first)["primary"] == f"127.0.0.1:{second.tcp_port}"


def test_nsqds_without_a_store_are_alive_and_say_why_they_do_not_serve(pair):
    etcd, first, second = pair
    lease = {
        "name": NAME,
        "key": "nsqd-py/orders",
        "holder": f"127.0.0.1:{first.tcp_port}",
        "error": "",
        "waits_for": "",
        "losses": 0,
        "last_loss": "",
    }
    wait_until_it_serves(first)
    assert first.stats()["lease"] == lease
    assert "\nnsqd_lease_losses_total 0.0\n" in first.http("GET", "/metrics").text
    wait_until_it_follows(second)
    assert second.stats()["lease"] == lease
    etcd.odd = dict.fromkeys((GRANT, TXN, KEEPALIVE, RANGE), raw(b""))
    wait_until_it_gives_way(first)
    for nsqd, state in ((first, "waiting"), (second, "connecting")):
        wait_until(lambda: state_of(nsqd) == state, DEADLINE_S, f"the state {state}")  # noqa: B023
        assert "no answer from etcd" in nsqd.stats()["lease"]["error"]
        assert ("could not be renewed in time" in nsqd.stats()["lease"]["last_loss"]) is (nsqd is first)
        assert nsqd.http("POST", "/promote").json() == {"message": "LEASE_DECIDES"}
        assert nsqd.http("GET", "/health").status == 503
    assert first.http("GET", "/ping").text == "OK - waiting for the lease orders"
    with first.connect() as client:
        refusal = b"E_PUB_FAILED PUB failed nsqd is a standby of none: no nsqd has the lease"
        assert client.ask(pub("t", b"1")).data == refusal
    etcd.odd = {}
    wait_for_a_primary([first, second])


def test_a_holder_that_comes_back_at_another_address_serves_again(pair, start):
    """Its own lease looks like that of another nsqd, which it cannot follow; and there is no one else."""
    etcd, first, second = pair
    second.kill()
    first.kill()
    flags = (f"--lease=etcd://{etcd.address}/{NAME}", "--lease-ttl=5s")
    other = start(first.data_path.name, *flags, ports=port_pairs(1)[0])
    assert figures_of(other)["primary"] == f"127.0.0.1:{first.tcp_port}"
    etcd.end_lease()
    wait_until_it_serves(other)
