"""Answers that etcd does not give count as no answer: a primary ends with its lease, a waiting nsqd asks on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.lease import answers
from nsqd_py.lease.answers import Pair
from nsqd_py.lease.etcd import EtcdStore
from nsqd_py.lease.keeper import LeaseKeeper, LeaseWatch
from nsqd_py.lease.store import Lease, LeaseError, LeaseState, check_holder, parse_lease_url
from nsqd_py.net.http.client import HttpClient
from tests.support.disk_calls import WRITES
from tests.support.fake_etcd import GRANT, KEEPALIVE, ODD, RANGE, TIME_TO_LIVE, TXN, FakeEtcd
from tests.support.faulty_nsqd import FaultyNsqd
from tests.support.network import port_pairs
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.sweeps import sampled
from tests.support.wire import Closed, pub
from tests.unit.fakes import FakeLog

pytestmark = pytest.mark.ours

TTL_S = 2
# A busy machine takes its time for answers that come; some odd ones do not end.
PATIENCE_S, TIMEOUT_S = 30.0, 0.2
ENDLESS = ("drip", "700 MB", "continues")
FIELDS = (
    *(
        "ID",
        "TTL",
        "grantedTTL",
        "result",
        "header",
        "revision",
        "kvs",
        "count",
        "key",
        "value",
        "mod_revision",
        "lease",
    ),
    *("succeeded", "responses", "response_range"),
)


@pytest.fixture
def etcd() -> Iterator[FakeEtcd]:
    with FakeEtcd() as etcd:
        yield etcd


def store_of(etcd: FakeEtcd, timeout_s: float = PATIENCE_S) -> EtcdStore:
    url = parse_lease_url(f"etcd://{etcd.address}/orders")
    return EtcdStore(url, round(10 * PATIENCE_S), HttpClient(timeout_s, timeout_s))


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_answer_is_no_answer(etcd, odd):
    store = store_of(etcd)
    asked_oddly = store_of(etcd, TIMEOUT_S) if odd in ENDLESS else store
    lease = store.acquire("a:1", store.poll())
    state = store.poll(lease.handle)
    assert state.lives_s is not None
    etcd.odd = {TIME_TO_LIVE: ODD[odd]}
    assert asked_oddly.poll(lease.handle) == state._replace(lives_s=None), "how long it lives is not known"
    etcd.odd = {}
    revision = store.write_note(lease, "{}", 0)
    asking: list[tuple[str, Callable[[], object]]] = [
        (KEEPALIVE, lambda: asked_oddly.renew(lease)),
        (TXN, lambda: asked_oddly.renew(lease)),
        (TXN, asked_oddly.poll),
        (RANGE, asked_oddly.note),
        (TXN, lambda: asked_oddly.write_note(lease, "1", revision)),
    ]
    for path, ask in asking:
        etcd.odd = {path: ODD[odd]}
        with pytest.raises(LeaseError):
            ask()
    etcd.odd = {}
    store.release(lease)
    for path in (GRANT, TXN):
        state = store.poll()
        etcd.odd = {path: ODD[odd]}
        with suppress(LeaseError):
            assert asked_oddly.acquire("a:1", state) is None
        etcd.odd = {}
    assert store.acquire("a:1", store.poll()) is not None


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.sampled_from(["7", "5", "YQ==", "-1"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner),
        max_leaves=20,
    )
)
def test_the_reader_of_answers_raises_nothing_else(answer):
    for read in (
        lambda: int(answers.lease_id(answer, TTL_S)),
        lambda: answers.is_renewed(answer, "7", TTL_S) in (True, False),
        lambda: (answers.written(answer) or 1) > 0,
        lambda: (answers.entry(answer, "a") or Pair(b"", 1, "")).revision > 0,
        lambda: len(answers.entries(answer, ("a", "b"))) == 2,
        lambda: answers.failed(answer, "a")[0] in (True, False),
        lambda: (answers.remaining_s(answer, "7") or 0) >= 0,
        lambda: answers.token(answer).isascii(),
    ):
        with suppress(ValueError):
            assert read()


@pytest.mark.parametrize(
    "holder", ["", "a:", ":1", "a:0", "a:65536", "a b:1", "a\n:1", "a:\u0665", "a" * 999 + ":1"]
)
def test_holders_that_are_not_addresses(etcd, holder):
    with pytest.raises(ValueError, match="is not an address"):
        check_holder(holder)
    store = store_of(etcd)
    assert store.acquire(holder, store.poll()) is not None
    state = store.poll()
    assert state.holder is None
    assert "with the lease" in state.stranger
    assert state.handle, "it holds the lease"


def test_a_member_that_does_not_understand_leaves_it_to_the_next_one(etcd):
    with FakeEtcd() as other:
        other.odd = {TXN: ODD["503"]}
        store = EtcdStore(
            parse_lease_url(f"etcd://{other.address},{etcd.address}/orders"), TTL_S, HttpClient(5, 5)
        )
        assert store.poll().holder is None
        assert store.poll().holder is None
        assert other.asked == [TXN]


# ---- the keeper, and what does not depend on it


class Store:
    """A store in memory that raises what no store should."""

    key = title = note_title = "nsqd-py/orders"
    delete_command = "etcdctl del nsqd-py/orders"

    def __init__(self) -> None:
        self.defects: set[str] = set()
        self.renewed = 0

    def _call(self, name: str) -> None:
        if name in self.defects:
            raise AttributeError(name)

    def acquire(self, holder: str, state: LeaseState) -> Lease | None:
        self._call("acquire")
        return Lease(1, "", holder)

    def renew(self, lease: Lease) -> None:
        self._call("renew")
        self.renewed += 1

    def release(self, lease: Lease) -> None:
        pass

    def poll(self, handle: str = "") -> LeaseState:
        self._call("poll")
        return LeaseState(turn=1, is_released=True)


def test_the_end_of_the_keeper_is_the_end_of_the_lease():
    for defect in ("poll", "acquire", "renew"):
        store, changes, log = Store(), [], FakeLog()
        keeper = LeaseKeeper(store, "a:1", 0.3, log, lambda: True, lambda: changes.append(keeper.is_held))  # noqa: B023
        keeper.start()
        if defect == "renew":
            wait_for(lambda: store.renewed)  # noqa: B023
        store.defects = {defect}
        if defect != "renew":
            wait_for(lambda: keeper.is_held or keeper.has_failed)  # noqa: B023
        wait_for(lambda: keeper.has_failed or keeper.is_held and defect != "renew")  # noqa: B023
        if keeper.has_failed:
            assert changes[-1] is False
            assert not keeper.is_held
            assert any(defect in line for line in log.errors)
        keeper.close()


def test_serving_ends_with_the_lease_though_nothing_else_runs():
    """The process was suspended: the first thing that runs is the end, before any input is read."""
    now_s = [100.0]
    keeper = LeaseKeeper(Store(), "a:1", 1000, FakeLog(), lambda: True, lambda: None, lambda: now_s[0])
    keeper.start()
    wait_for(lambda: keeper.is_held)
    happened: list[str] = []
    loop = gevent.get_hub().loop
    watch = LeaseWatch(keeper, loop, FakeLog(), lambda: happened.append("end"))
    try:
        now_s[0] += 799
        gevent.sleep(0.01)
        assert happened == []
        now_s[0] += 2
        loop.run_callback(lambda: happened.append("something else"))
        wait_for(lambda: len(happened) == 2)
        assert happened == ["end", "something else"]
    finally:
        watch.close()
        keeper.close()


def wait_for(condition: Callable[[], object]) -> None:
    wait_until(lambda: gevent.sleep(0.005) or condition(), what="the greenlet")  # type: ignore[func-returns-value]


# ---- nsqd


@pytest.fixture
def nsqd(etcd, tmp_path) -> Iterator[FaultyNsqd]:
    flags = (f"--lease=etcd://{etcd.address}/orders", f"--lease-ttl={TTL_S}s")
    NsqdProcess(tmp_path / "nsqd").start().stop()  # else it lets one with messages take the lease first
    with FaultyNsqd(tmp_path / "nsqd", *flags, ports=port_pairs(1)[0]).start() as nsqd:
        wait_until(lambda: publishes(nsqd), what="a publish")
        yield nsqd


def publishes(nsqd: NsqdProcess) -> bool:
    try:
        with nsqd.connect() as client:
            client.pub("t", b"1")
    except (OSError, Closed, AssertionError):
        return False
    return True


@pytest.mark.parametrize(
    "odd", sampled(['{"result":null}', "[1]", '{"result":{"ID":"7587","TTL":"x"}}', "drip"], "[1]", "drip")
)
def test_a_primary_serves_no_longer_than_its_lease(etcd, nsqd, odd):
    etcd.odd = {KEEPALIVE: ODD[odd]}
    wait_until(lambda: "kvs" not in etcd.answer(RANGE, _ORDERS), what="the end of the lease")
    assert not publishes(nsqd)
    assert nsqd.is_running
    etcd.odd = {}
    wait_until(lambda: publishes(nsqd), what="a publish under the next lease")


def test_a_primary_that_was_suspended_past_its_lease_answers_nothing(etcd, nsqd):
    with nsqd.connect() as client:
        client.pub("t", b"1")
        nsqd.signal(signal.SIGSTOP)
        client.send(b"PUB t\n" + (1).to_bytes(4, "big") + b"2")
        wait_until(lambda: "kvs" not in etcd.answer(RANGE, _ORDERS), what="the end of the lease")
        nsqd.signal(signal.SIGCONT)
        with pytest.raises((Closed, OSError)):
            client.frame()
    wait_until(lambda: publishes(nsqd), what="a publish under the next lease")


def test_a_primary_whose_disk_stalled_past_its_lease_answers_nothing(nsqd):
    """The write is done in an iteration of the event loop, at the end of which the answer would leave."""
    with nsqd.connect() as client:
        client.pub("t", b"1")
        nsqd.set_rules(*({"call": call, "path": "t.*.log", "delay_s": TTL_S + 1} for call in WRITES))
        client.send(pub("t", b"2"))
        with pytest.raises((Closed, OSError)):
            client.frame()
    assert nsqd.delayed_calls()[0], "the event loop has written"
    nsqd.set_rules()
    wait_until(lambda: publishes(nsqd), what="a publish under the next lease")


_ORDERS = {"key": answers.encoded("nsqd-py/orders")}
