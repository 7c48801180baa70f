"""Two nsqds with `--lease`, beside a Consul in memory; `test_lease_failovers.py` does the same with a real etcd."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lease_servers import Consul, serving
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import consume_all, figures_of, is_primary, wait_until_it_has_all

DEADLINE_S = 40.0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Consul, NsqdProcess, NsqdProcess]]:
    """The first has messages before there is a lease, and so is the primary."""
    consul = Consul()
    with serving(consul.answer) as port:
        ports = free_ports(4)
        flags = (f"--lease=consul://127.0.0.1:{port}/orders", "--lease-ttl=10s", "--standby-acks=1")
        NsqdProcess(tmp_path / "a").start().stop()
        nsqds = [
            NsqdProcess(tmp_path / name, *flags, ports=(ports[2 * number], ports[2 * number + 1]))
            for number, name in enumerate("ab")
        ]
        try:
            yield consul, *(nsqd.start() for nsqd in nsqds)
        finally:
            for nsqd in nsqds:
                nsqd.destroy()


def test_the_holder_of_the_lease_serves_and_the_other_one_takes_over(
    pair: tuple[Consul, NsqdProcess, NsqdProcess],
) -> None:
    consul, first, second = pair
    assert is_primary(first)
    wait_until(lambda: figures_of(second)["state"] == "following", DEADLINE_S, "the standby to follow")
    assert figures_of(second)["primary"] == f"127.0.0.1:{first.tcp_port}"
    assert second.http("POST", "/promote").status == 409
    first.create("t", "c")
    with first.connect() as client:
        client.pub("t", b"1", b"2")
    wait_until_it_has_all(first)
    note = _note(consul)
    first.stop()
    wait_until(lambda: is_primary(second), DEADLINE_S, "the standby to serve")
    assert _note(consul)["epoch"] > note["epoch"]
    first.start()  # it follows now
    assert figures_of(first)["primary"] == f"127.0.0.1:{second.tcp_port}"
    wait_until(lambda: figures_of(first)["state"] == "following", DEADLINE_S, "the old primary to follow")
    assert sorted(consume_all(second, "t", "c")) == [b"1", b"2"]


def test_an_old_copy_does_not_serve(pair: tuple[Consul, NsqdProcess, NsqdProcess]) -> None:
    consul, first, second = pair
    wait_until(lambda: figures_of(second)["state"] == "following", DEADLINE_S, "the standby to follow")
    first.kill()
    consul.end_all()
    wait_until(lambda: is_primary(second), DEADLINE_S, "the standby to serve")
    second.kill()
    consul.end_all()
    first.launch()  # its epoch is older than that of the last primary
    wait_until(lambda: "waiting for consul" in first.log_text(), DEADLINE_S, "the first to start")
    second.start()
    assert is_primary(second)
    first.wait_until_it_listens()
    assert figures_of(first)["primary"] == f"127.0.0.1:{second.tcp_port}"


def _note(consul: Consul) -> dict[str, int]:
    assert consul.note is not None
    note: dict[str, int] = json.loads(b64decode(consul.note["Value"]))
    return note
