"""Two nsqds that share a lease in a bucket; `make failovers` with `--lease=s3` does it at length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from tests.support.bucket_faults import FaultProxy
from tests.support.buckets import Bucket
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    consume_all,
    is_primary,
    lease_holders,
    wait_for_a_primary,
    wait_until_it_follows,
    wait_until_it_has_all,
    wait_until_it_serves,
)

pytestmark = pytest.mark.ours

OBJECT = "queues/orders.lease"
# Long enough that a busy machine renews in time, and short enough to wait for.
TTL_S = 4


class Group(NamedTuple):
    """A bucket, the way to it, and two nsqds."""

    bucket: Bucket
    proxy: FaultProxy
    nsqds: list[NsqdProcess]

    def pair(self) -> tuple[NsqdProcess, NsqdProcess]:
        """Wait for a primary and a standby that follows it."""
        primary = wait_for_a_primary(self.nsqds)
        (standby,) = (nsqd for nsqd in self.nsqds if nsqd is not primary)
        wait_until_it_follows(standby)
        return primary, standby


@pytest.fixture
def group(tmp_path, processes, s3_bucket, s3_faults, monkeypatch) -> Iterator[Group]:
    pytest.importorskip("obstore")
    for name, value in s3_bucket.environment(s3_faults.endpoint).items():
        monkeypatch.setenv(name, value)
    flags = (f"--lease={s3_bucket.url('queues')}/orders", f"--lease-ttl={TTL_S}s", "--standby-acks=1")
    processes += lease_holders(tmp_path, "ab", *flags)
    for nsqd in processes:
        nsqd.start()
    yield Group(s3_bucket, s3_faults, processes)


def lease_of(nsqd: NsqdProcess) -> dict[str, Any]:
    """What /stats shows of the lease; an nsqd that is between two roles is asked again."""

    def ask() -> dict[str, Any] | None:
        with suppress(OSError):
            return nsqd.stats()["lease"]
        return None

    return wait_until(ask, DEADLINE_S, "statistics")


def test_the_other_one_takes_over(group: Group) -> None:
    primary, standby = group.pair()
    primary.create("t", "c")
    primary.pub("t", b"1", b"2")
    wait_until_it_has_all(primary)
    assert lease_of(standby) == lease_of(primary) | {"holder": f"127.0.0.1:{primary.tcp_port}"}
    assert lease_of(primary)["key"] == f"{group.bucket.url()}/{OBJECT}"
    assert group.bucket.names() == [OBJECT]
    primary.kill()
    wait_until_it_serves(standby)
    primary.start()
    wait_until_it_follows(primary)
    assert sorted(consume_all(standby, "t", "c")) == [b"1", b"2"]
    standby.stop()  # it releases the lease
    wait_until_it_serves(primary)


def test_the_last_primary_goes_on_when_the_bucket_comes_back(group: Group) -> None:
    primary, standby = group.pair()
    group.proxy.is_away = True
    wait_until(lambda: lease_of(primary)["losses"] == 1, DEADLINE_S, "the end of the lease")
    assert not is_primary(primary)
    assert "no answer from s3://" in wait_until(lambda: lease_of(primary)["error"], DEADLINE_S, "an error")
    group.proxy.is_away = False
    assert group.pair() == (primary, standby)


def test_an_object_that_is_deleted_is_written_again(group: Group) -> None:
    primary, _ = group.pair()
    group.bucket.delete(OBJECT)
    wait_until(lambda: "was deleted" in primary.log_text(), DEADLINE_S, "the end of the lease")
    group.pair()
    assert group.bucket.names() == [OBJECT]


def test_an_object_of_another_program_stops_all_until_it_is_deleted(group: Group) -> None:
    primary, standby = group.pair()
    group.bucket.put(OBJECT, b"somebody")
    wait_until(lambda: lease_of(primary)["losses"], DEADLINE_S, "the end of the lease")
    url = f"{group.bucket.url()}/{OBJECT}"
    text = (
        f"no nsqd can take the lease: no nsqd has written the object {url}, it begins with b'somebody'; "
        f"delete it: aws s3 rm {url}"
    )
    for nsqd in (primary, standby):
        wait_until(lambda: lease_of(nsqd)["error"] == text, DEADLINE_S, "the error")  # noqa: B023
        assert not is_primary(nsqd)
    assert group.bucket.objects() == {OBJECT: b"somebody"}
    group.bucket.delete(OBJECT)
    group.pair()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--lease=s3://bucket"], "ends with the lease's name, as in s3://bucket/prefix/orders"),
        (
            ["--lease=s3://bucket/orders", "--lease-password-file=x"],
            "uses the credentials of the environment",
        ),
        (["--lease=ftp://host/orders"], "begins with etcd://, etcds://, s3://, gs://, az:// or file://"),
    ],
)
def test_flags_that_cannot_be_used(tmp_path, flags: list[str], text: str) -> None:
    nsqd = NsqdProcess(tmp_path / "nsqd", *flags, ports=(4150, 4151))
    assert text in nsqd.fails_to_start(2)
