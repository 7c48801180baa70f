"""Somebody deletes or overwrites the key of a lease: the primary ends at once, never two serve, and one serves again.

Two clients publish to both nsqds all the time. Whoever answers OK serves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.background import Background
from tests.support.etcd import ETCD, Etcd
from tests.support.etcd_operator import EtcdOperator
from tests.support.fake_etcd import FakeEtcd
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    is_primary,
    lease_holders,
    state_of,
    wait_until_it_serves,
)
from tests.support.wire import Client, Closed, pub

pytestmark = pytest.mark.ours

TTL_S = 2
PREFIX = "nsqd-py/"
KEY = f"{PREFIX}orders"
_REQUEST_S = 5.0
_PAUSE_S = 0.01
# A lease is renewed every third of its time to live, and others wait while it has more than 0.15 of it left.
_NOT_NEAR_ITS_END = 0.3


class Ok(NamedTuple):
    """An OK, with the times at which its client sent the request and had the answer."""

    nsqd: NsqdProcess
    asked_s: float
    answered_s: float


class Group(Background):
    """Two nsqds that share a lease, and what they answer to those who publish and connect again when they must."""

    def __init__(self, directory: Path, address: str, acks: int) -> None:
        flags = (
            f"--lease=etcd://{address}/orders",
            f"--lease-ttl={TTL_S}s",
            f"--standby-acks={acks}",
            "--standby-timeout=2s",
        )
        self.nsqds = lease_holders(directory, "ab", *flags)
        self.operator = EtcdOperator(address)
        self.answered: list[Ok] = []
        super().__init__(*(partial(self._publish_to, nsqd) for nsqd in self.nsqds))

    def _publish_to(self, nsqd: NsqdProcess) -> None:
        while not self.is_over.wait(_PAUSE_S):
            with suppress(OSError, Closed), nsqd.connect() as client:
                self._publish(nsqd, client)

    def _publish(self, nsqd: NsqdProcess, client: Client) -> None:
        while not self.is_over.wait(_PAUSE_S):
            asked_s = time.monotonic()
            client.send(pub("t", b"1"))
            if client.frame(_REQUEST_S).data != b"OK":
                return
            self.answered.append(Ok(nsqd, asked_s, time.monotonic()))

    def primary(self) -> NsqdProcess:
        """Wait until one nsqd serves and the other one follows it; return the one that serves."""

        def whole() -> NsqdProcess | None:
            for nsqd, other in (self.nsqds, reversed(self.nsqds)):
                if is_primary(nsqd) and state_of(other) == "following" and self._answers(nsqd):
                    return nsqd
            return None

        return wait_until(whole, DEADLINE_S, "a primary and its standby")

    def _answers(self, nsqd: NsqdProcess) -> bool:
        return any(ok.nsqd is nsqd and ok.asked_s > time.monotonic() - 1 for ok in self.answered[-20:])

    def wait_for_a_publish(self) -> NsqdProcess:
        """Wait for an OK to a request of later than now; return who gave it."""
        now_s = time.monotonic()
        new = wait_until(
            lambda: [ok for ok in self.answered[-20:] if ok.asked_s > now_s],
            DEADLINE_S,
            "an nsqd that serves",
        )
        return new[0].nsqd

    def wait_for_a_loss(self, nsqd: NsqdProcess) -> str:
        """Wait for the next line in which an nsqd says that it has lost the lease; return all of its log since then."""
        return wait_until(
            lambda: text if "LEASE: lost by" in (text := self.new_log(nsqd)) else "",
            DEADLINE_S,
            "the end of the lease",
        )

    def mark(self) -> None:
        """Forget what was logged and answered before."""
        self._sizes = {nsqd: len(nsqd.log_text()) for nsqd in self.nsqds}
        self.answered.clear()

    def new_log(self, nsqd: NsqdProcess) -> str:
        return nsqd.log_text()[self._sizes[nsqd] :]


def check_never_two_serve(answered: list[Ok]) -> None:
    """An nsqd that began to answer after another one is the only one that answers from then on."""
    in_order = sorted(answered, key=lambda ok: ok.answered_s)
    nsqds = [ok.nsqd for ok in in_order]
    changes = sum(one is not other for one, other in zip(nsqds, nsqds[1:], strict=False))
    assert changes <= 1, f"the nsqds that answered changed {changes} times"


GROUPS = [
    ("memory", 1),
    *(pytest.param(each, marks=pytest.mark.slow) for each in (("memory", 0), ("etcd", 0), ("etcd", 1))),
]


@pytest.fixture(scope="module", params=GROUPS, ids=lambda param: f"{param[0]}, acks={param[1]}")
def group(request, tmp_path_factory) -> Iterator[Group]:
    kind, acks = request.param
    if kind == "etcd" and ETCD is None:
        pytest.skip("no etcd here")
    directory = tmp_path_factory.mktemp("group")
    with FakeEtcd() if kind == "memory" else Etcd(directory) as etcd, ExitStack() as stack:
        group = Group(directory, etcd.address, acks)
        for nsqd in group.nsqds:
            stack.enter_context(nsqd).start()
        yield stack.enter_context(group)


def delete(operator: EtcdOperator) -> None:
    operator.delete(KEY)


def delete_all(operator: EtcdOperator) -> None:
    operator.delete_prefix(PREFIX)


def overwrite(operator: EtcdOperator) -> None:
    operator.put(KEY, "somebody")


def overwrite_with_an_address(operator: EtcdOperator) -> None:
    operator.put(KEY, "10.9.8.7:4150")


def overwrite_with_its_value(operator: EtcdOperator) -> None:
    """It looks as before, but no lease ends it."""
    operator.put(KEY, operator.pair(KEY)["value"])


def overwrite_with_another_lease(operator: EtcdOperator) -> None:
    operator.put(KEY, "somebody", operator.grant(3))


def create_again(operator: EtcdOperator) -> None:
    """With the same lease and the same value."""
    pair = operator.pair(KEY)
    operator.delete(KEY)
    operator.put(KEY, pair["value"], pair["lease"])


def revoke(operator: EtcdOperator) -> None:
    operator.revoke(operator.pair(KEY)["lease"])


WAYS: dict[Callable[[EtcdOperator], None], str] = {
    delete: "the key nsqd-py/orders was deleted, or its lease has ended",
    delete_all: "the key nsqd-py/orders was deleted, or its lease has ended",
    overwrite: "the key nsqd-py/orders was overwritten: its value is 'somebody', without a lease",
    overwrite_with_an_address: "the key nsqd-py/orders was overwritten: its value is '10.9.8.7:4150', without a lease",
    overwrite_with_its_value: "the key nsqd-py/orders was overwritten: its value is '127.0.0.1:",
    overwrite_with_another_lease: "the key nsqd-py/orders was overwritten: its value is 'somebody', with the lease ",
    create_again: "the key nsqd-py/orders was ",  # overwritten, or deleted: it may look in between
    revoke: "the key nsqd-py/orders was deleted, or its lease has ended",
}


@pytest.mark.parametrize("change", WAYS, ids=lambda change: change.__name__)
def test_never_two_serve_and_one_serves_again(group, change):
    primary = group.primary()
    group.mark()
    change(group.operator)
    lines = group.wait_for_a_loss(primary)
    assert WAYS[change] in lines
    next_primary = group.wait_for_a_publish()
    assert group.primary() is next_primary
    check_never_two_serve(group.answered)
    lease = primary.stats()["lease"]
    # On a busy machine, it may have lost the lease once more since.
    _, _, last_line = group.new_log(primary).rpartition("LEASE: lost by")
    assert lease["last_loss"] in last_line
    assert lease["losses"] > 0
    assert f"\nnsqd_lease_losses_total {float(lease['losses'])}\n" in primary.http("GET", "/metrics").text


def test_a_primary_that_dies_as_its_key_is_deleted(group):
    primary = group.primary()
    group.mark()
    began_s = time.monotonic()
    primary.kill()
    group.operator.delete(KEY)
    is_in_time = time.monotonic() < began_s + _NOT_NEAR_ITS_END * TTL_S
    (other,) = [nsqd for nsqd in group.nsqds if nsqd is not primary]
    wait_until_it_serves(other)
    # On a slow machine the lease may have come near its end before the key was deleted: then nobody has to wait.
    has_waited = time.monotonic() - began_s > TTL_S  # it may also have seen only then that the key is gone
    assert not is_in_time or has_waited or "as the last holder may still serve" in group.new_log(other)
    primary.start()
    group.primary()
    check_never_two_serve(group.answered)
