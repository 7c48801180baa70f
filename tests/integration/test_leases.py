"""Leases of a real store, which is stopped and continued: etcd, skipped where there is none, and a bucket of moto."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from subprocess import Popen
from threading import Event
from typing import Any, NamedTuple

import pytest

from nsqd_py.lease.bucket import BucketStore, InThreads, open_bucket
from nsqd_py.lease.keeper import LeaseKeeper
from nsqd_py.lease.store import LeaseError, LeaseLost, LeaseStore, parse_lease_url
from nsqd_py.objects.opening import open_objects
from tests.support import bucket_faults
from tests.support.bucket_faults import FaultProxy, late, refused
from tests.support.buckets import Bucket, MotoServer
from tests.support.consumer_drivers import SHELLS
from tests.support.etcd import ETCD, Etcd
from tests.unit.fakes import FakeLog

TTL_S = 2
PATIENT_TTL_S = 600
wait_here = SHELLS["gevent"].wait  # greenlets run in the meantime

pytestmark = pytest.mark.ours


class World(NamedTuple):
    """A store: its process, and what makes a lease of a name."""

    process: Popen[bytes]
    store: Callable[[str], LeaseStore]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if ETCD is None:
        pytest.skip("no etcd here")
    with Etcd(tmp_path_factory.mktemp("etcd")) as running:
        yield World(running.process, running.store)


@pytest.fixture
def bucket(s3_server: MotoServer, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> World:
    pytest.importorskip("obstore")
    set_environment(monkeypatch, s3_bucket)

    def store(name: str) -> LeaseStore:
        url = parse_lease_url(f"{s3_bucket.url('group')}/{name}")
        return open_bucket(url, TTL_S, timeout_s=1, endpoint=s3_bucket.endpoint)

    return World(s3_server.process, store)


def set_environment(monkeypatch: pytest.MonkeyPatch, bucket: Bucket) -> None:
    for name, value in bucket.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["etcd", "bucket"])
def world(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue(request.param)
    return found


def test_a_lease_that_nobody_renews_ends(world: World) -> None:
    first, second = world.store("two"), world.store("two")
    assert first.acquire("first:1", first.poll()) is not None

    def take() -> Any:
        state = second.poll()
        return second.acquire("second:1", state) if state.holder is None else None

    second.release(wait_here(take))
    assert first.poll().is_released


def test_a_keeper_stops_its_holder_while_the_store_is_stopped_and_competes_again_afterwards(
    world: World,
) -> None:
    said: list[str] = []
    keeper = LeaseKeeper(
        world.store("three"),
        "first:1",
        TTL_S,
        FakeLog(),
        lambda: True,
        lambda: said.append("taken" if keeper.is_held else "lost"),
    )
    keeper.start()
    try:
        wait_here(lambda: said == ["taken"])
        world.process.send_signal(signal.SIGSTOP)
        wait_here(lambda: said == ["taken", "lost"])
        assert not keeper.is_held
        world.process.send_signal(signal.SIGCONT)
        wait_here(lambda: said == ["taken", "lost", "taken"])
    finally:
        world.process.send_signal(signal.SIGCONT)
        keeper.close()
    assert world.store("three").poll().holder is None


# ---- a bucket, through a proxy of faults


@pytest.fixture
def store(s3_bucket: Bucket, s3_faults: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> BucketStore:
    pytest.importorskip("obstore")
    set_environment(monkeypatch, s3_bucket)
    url = parse_lease_url(s3_bucket.url("orders"))
    objects = open_objects(url.bucket, s3_faults.endpoint, 0.5)
    return BucketStore(url, PATIENT_TTL_S, objects, InThreads(2))


@pytest.mark.parametrize(
    "fault",
    [
        bucket_faults.answer_lost,
        bucket_faults.answer_hangs,
        bucket_faults.hangs,
        bucket_faults.cut,
        bucket_faults.torn_upload,
        bucket_faults.done_but_refused(503),
        bucket_faults.done_but_refused(409),
        refused(409),
        refused(404),
        refused(412),
        refused(503),
        late(0.1),
    ],
    ids=lambda fault: fault.__name__,
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_holder_goes_on_after_faults(
    store: BucketStore, s3_faults: FaultProxy, fault: bucket_faults.Fault, times: int
) -> None:
    lease = store.acquire("a:1", store.poll())
    assert lease is not None
    revision = store.write_note(lease, "{}", 0)
    s3_faults.add(fault, method="PUT", times=times)
    try:
        store.renew(lease)
    except LeaseError as error:
        assert not isinstance(error, LeaseLost)
    s3_faults.stop_faults()
    s3_faults.flush_late()
    wait_here(lambda: renews(store, lease))
    assert store.note() == ("{}", revision)
    store.release(lease)
    assert store.poll().is_released


def renews(store: BucketStore, lease: Any) -> bool:
    """True if the holder could renew its lease. Raises LeaseLost."""
    try:
        store.renew(lease)
    except LeaseLost:
        raise
    except LeaseError:
        return False
    return True


@pytest.mark.parametrize("fault", [bucket_faults.answer_lost, refused(503)], ids=lambda fault: fault.__name__)
def test_a_lease_taken_without_an_answer_is_taken_by_the_next_attempt(
    store: BucketStore, s3_faults: FaultProxy, fault: bucket_faults.Fault
) -> None:
    state = store.poll()
    s3_faults.add(fault, method="PUT", times=9)
    with pytest.raises(LeaseError):
        wait_here(lambda: store.acquire("a:1", state))
    s3_faults.stop_faults()
    lease = store.acquire("a:1", store.poll())
    assert lease is not None
    store.renew(lease)


def test_torn_answers_and_wrong_clocks_change_nothing(store: BucketStore, s3_faults: FaultProxy) -> None:
    lease = store.acquire("a:1", store.poll())
    assert lease is not None
    s3_faults.clock_off_s = 10 * 365 * 86400
    s3_faults.add(bucket_faults.torn_answer, method="GET", times=9)
    with pytest.raises(LeaseError, match="no answer from s3://"):
        store.poll()
    s3_faults.stop_faults()
    other = BucketStore(
        parse_lease_url(store.key.removesuffix(".lease")), PATIENT_TTL_S, store._objects, InThreads(2)
    )
    assert other.poll().holder == "a:1"
    store.renew(lease)
    assert other.poll().holder == "a:1"


def test_requests_without_an_end_fail_at_once_when_there_are_too_many() -> None:
    released = Event()
    ask = InThreads(0.01)
    for _ in range(8):
        with pytest.raises(LeaseError, match=r"no answer from the store in 0.01 s"):
            ask(released.wait)
    with pytest.raises(LeaseError, match="8 earlier requests"):
        ask(released.wait)
    released.set()
    wait_here(lambda: not len(ask._threads))
    assert ask(lambda: 7) == 7


def test_a_bucket_that_is_not_there(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, s3_bucket)
    url = parse_lease_url("s3://no-such-bucket/orders")
    store = open_bucket(url, TTL_S, timeout_s=5, endpoint=s3_bucket.endpoint)
    with pytest.raises(LeaseError, match="NoSuchBucket|does not exist"):
        store.poll()
