"""A lease in a bucket: its URLs, what its object has, and who may replace it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.lease.bucket import BucketStore
from nsqd_py.lease.document import LeaseDocument
from nsqd_py.lease.store import Lease, LeaseError, LeaseLost, LeaseState, LeaseUrl, Note, parse_lease_url
from nsqd_py.lease.succession import Succession
from nsqd_py.objects.calls import Changed, Missing, Objects, StoreError, StoreRefused
from nsqd_py.objects.directory import DirectoryObjects

T = TypeVar("T")

TTL_S = 10
NAME = "orders.lease"
URL = "file:///directory/orders"


# ---- its URL


@pytest.mark.parametrize(
    ("text", "bucket", "name"),
    [
        ("s3://bucket/prefix/orders", "s3://bucket", "prefix/orders"),
        ("s3://bucket/a/b=1/orders/", "s3://bucket", "a/b=1/orders"),
        ("gs://bucket/orders", "gs://bucket", "orders"),
        ("az://container/orders", "az://container", "orders"),
        ("file:///var/lib/orders", "file:///var/lib", "orders"),
    ],
)
def test_urls(text: str, bucket: str, name: str) -> None:
    assert parse_lease_url(text) == LeaseUrl(not bucket.startswith("file"), (), name, bucket=bucket)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket",
        "s3://bucket/",
        "s3:///orders",
        "s3://user@bucket/orders",
        "s3://bucket/orders?x=1",
        "s3://bucket/a//orders",
        "s3://bucket/../orders",
        "s3://bucket/orders/..",
        "file://host/orders",
        "file:///orders",
    ],
)
def test_urls_that_name_no_lease(text: str) -> None:
    scheme = text.partition(":")[0]
    with pytest.raises(ValueError, match=f"ends with the lease's name, as in {scheme}://.*/orders"):
        parse_lease_url(text)


def test_a_password_is_for_etcd_only() -> None:
    with pytest.raises(ValueError, match="s3:// uses the credentials of the environment"):
        parse_lease_url("s3://bucket/orders", "/etc/password")


# ---- what the object has


def test_what_is_written_is_read() -> None:
    document = LeaseDocument().taken("a:1", "owner", TTL_S).with_note("{}").renewed()
    assert LeaseDocument.of(document.encode()) == document
    assert (document.number, document.revision, document.note_revision) == (1, 3, 2)


def test_no_two_writes_are_the_same() -> None:
    """S3 computes the version of an object from its content."""
    last = LeaseDocument().taken("a:1", "owner", TTL_S)
    assert last.renewed().encode() != last.renewed().encode()


GOOD = json.loads(LeaseDocument().taken("a:1", "owner", TTL_S).encode())


@given(
    st.sampled_from(sorted(GOOD)), st.none() | st.booleans() | st.integers(-5, 5) | st.text() | st.just([])
)
def test_a_document_with_another_value_is_none_or_the_same_again(field: str, value: Any) -> None:
    try:
        found = LeaseDocument.of(json.dumps(GOOD | {field: value}).encode())
    except ValueError:
        return
    assert json.loads(found.encode()) == GOOD | {field: value}


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"\xff", b"somebody", json.dumps(GOOD | {"nonce": "0" * 32, "more": 1}).encode()],
)
def test_other_objects_are_no_leases(data: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        LeaseDocument.of(data)


# ---- who may replace it


class Machine:
    """A process that uses the lease, and when it may take it. `now_s` is the clock of all of them."""

    now_s = 0.0

    def __init__(self, objects: Objects, ttl_s: int = TTL_S) -> None:
        self.store = BucketStore(parse_lease_url(URL), ttl_s, objects, call, lambda: Machine.now_s)
        self._succession = Succession(ttl_s)

    def poll(self) -> LeaseState:
        state = self.store.poll(self._succession.handle)
        self._succession.saw(state, Machine.now_s, Machine.now_s)
        return state

    def take(self) -> Lease | None:
        """Poll, and take the lease if it is free."""
        state = self.poll()
        if not self._succession.is_free(Machine.now_s):
            return None
        return self.store.acquire("a:1", state)

    def wait_and_take(self) -> Lease:
        """Poll each second until the lease is taken."""
        for _ in range(3 * TTL_S):
            lease = self.take()
            if lease is not None:
                return lease
            Machine.now_s += 1
        raise AssertionError("it is never free")


def call(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


class Unreliable:
    """Objects of which the next swap fails in some way."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.next_swap: Callable[[Callable[[], Any]], Any] | None = None
        self.swaps = self.gets = 0

    def swap(self, *arguments: Any) -> Any:
        self.swaps += 1
        fail, self.next_swap = self.next_swap, None
        swap = lambda: self._objects.swap(*arguments)  # noqa: E731
        return fail(swap) if fail is not None else swap()

    def get(self, name: str) -> Any:
        self.gets += 1
        return self._objects.get(name)


def not_done(swap: Callable[[], Any]) -> None:
    raise StoreError("503")


def answer_lost(swap: Callable[[], Any]) -> None:
    swap()
    raise StoreError("the connection was cut")


def meets_itself(swap: Callable[[], Any]) -> None:
    """The client sent the request once more, after its first answer was lost."""
    swap()
    raise Changed("412")


@pytest.fixture
def objects(tmp_path: Any) -> DirectoryObjects:
    Machine.now_s = 0.0
    return DirectoryObjects(tmp_path / "bucket")


@pytest.fixture
def unreliable(objects: DirectoryObjects) -> Unreliable:
    return Unreliable(objects)


@pytest.fixture
def first(unreliable: Unreliable) -> Machine:
    return Machine(unreliable)  # type: ignore[arg-type]


@pytest.fixture
def second(objects: DirectoryObjects) -> Machine:
    return Machine(objects)


def test_a_new_lease_is_taken_after_a_time_to_live(first: Machine) -> None:
    assert first.wait_and_take().number == 1
    assert Machine.now_s == TTL_S


def test_a_lease_that_is_renewed_is_never_free(first: Machine, second: Machine) -> None:
    lease = first.wait_and_take()
    for _ in range(5 * TTL_S):
        first.store.renew(lease)
        assert second.take() is None
        Machine.now_s += 1
    assert second.poll().holder == "a:1"


def test_a_lease_ends_when_it_was_seen_unchanged_for_a_time_to_live(first: Machine, second: Machine) -> None:
    first.store.renew(first.wait_and_take())
    began_s = Machine.now_s
    lease = second.wait_and_take()
    assert Machine.now_s == began_s + TTL_S
    assert lease.number == 3


def test_the_longer_time_to_live_counts(objects: DirectoryObjects) -> None:
    Machine(objects, 2 * TTL_S).wait_and_take()
    began_s = Machine.now_s
    Machine(objects).wait_and_take()
    assert Machine.now_s >= began_s + 2 * TTL_S


def test_a_renewal_that_comes_late_is_refused(
    first: Machine, second: Machine, unreliable: Unreliable
) -> None:
    late: list[Callable[[], Any]] = []
    lease = first.wait_and_take()
    unreliable.next_swap = lambda swap: not_done(late.append(swap))  # type: ignore[func-returns-value, arg-type]
    with pytest.raises(LeaseError):
        first.store.renew(lease)
    second.wait_and_take()
    with pytest.raises(Changed):
        late[0]()


def test_a_renewal_just_before_it_was_taken_keeps_it(first: Machine, second: Machine) -> None:
    lease = first.wait_and_take()
    state = second.poll()
    first.store.renew(lease)
    assert second.store.acquire("b:1", state) is None


def test_a_released_lease_is_free_at_once(first: Machine, second: Machine) -> None:
    lease = first.wait_and_take()
    assert second.take() is None
    first.store.release(lease)
    assert second.take() is not None


def test_its_last_holder_may_take_it_at_once(first: Machine) -> None:
    first.wait_and_take()
    assert first.take() is not None


def test_its_last_holder_waits_where_another_one_was_holder_since(first: Machine, second: Machine) -> None:
    first.wait_and_take()
    second.wait_and_take()
    assert first.poll().handle
    before = json.loads(second.store._mine.document.encode())  # type: ignore[union-attr]
    # Somebody restores what the first one had written.
    restored = before | {"owner": first.store._owner}
    first.store._objects._objects.delete([NAME])  # type: ignore[attr-defined]
    first.store._objects._objects.create(NAME, json.dumps(restored).encode())  # type: ignore[attr-defined]
    assert first.take() is None


@pytest.mark.parametrize("fault", [not_done, answer_lost, meets_itself])
def test_a_renewal_without_an_answer_is_repeated(
    first: Machine, unreliable: Unreliable, fault: Callable[..., Any]
) -> None:
    lease = first.wait_and_take()
    unreliable.next_swap = fault
    if fault is meets_itself:
        first.store.renew(lease)
    else:
        with pytest.raises(LeaseError, match="no answer from file:///directory/orders.lease - "):
            first.store.renew(lease)
    first.store.renew(lease)
    first.store.release(lease)


@pytest.mark.parametrize("fault", [not_done, answer_lost, meets_itself])
def test_a_lease_that_was_taken_without_an_answer_is_taken_at_once(
    first: Machine, second: Machine, unreliable: Unreliable, fault: Callable[..., Any]
) -> None:
    second.store.release(second.wait_and_take())
    unreliable.next_swap = fault
    if fault is not meets_itself:
        with pytest.raises(LeaseError):
            first.take()
    lease = first.take()
    assert lease is not None
    first.store.renew(lease)


@pytest.mark.parametrize("fault", [not_done, answer_lost, meets_itself])
def test_a_note_without_an_answer(first: Machine, unreliable: Unreliable, fault: Callable[..., Any]) -> None:
    lease = first.wait_and_take()
    revision = first.store.write_note(lease, "1", 0)
    unreliable.next_swap = fault
    if fault is meets_itself:
        revision = first.store.write_note(lease, "2", revision)
    else:
        with pytest.raises(LeaseError):
            first.store.write_note(lease, "2", revision)
    first.store.renew(lease)
    text, found = first.store.note()
    assert text == ("1" if fault is not_done else "2")
    if fault is answer_lost:
        with pytest.raises(LeaseError, match="was changed, probably by a request without an answer"):
            first.store.write_note(lease, "3", revision)
    first.store.write_note(lease, "3", found)
    assert first.store.note().text == "3"


def test_the_note_outlives_its_holder(first: Machine, second: Machine) -> None:
    lease = first.wait_and_take()
    revision = first.store.write_note(lease, "1", 0)
    first.store.release(lease)
    assert second.store.note() == Note("1", revision)
    lease = second.wait_and_take()
    assert second.store.note() == Note("1", revision)
    assert second.store.write_note(lease, "2", revision) > revision


@pytest.mark.parametrize("write", ["renew", "write_note", "release"])
def test_who_has_lost_the_lease_writes_nothing(first: Machine, second: Machine, write: str) -> None:
    lease = first.wait_and_take()
    second.wait_and_take()
    state = second.store._read()
    writes = {
        "renew": lambda: first.store.renew(lease),
        "write_note": lambda: first.store.write_note(lease, "x", 0),
        "release": lambda: first.store.release(lease),
    }
    with pytest.raises(LeaseLost, match="orders.lease was overwritten: its holder is a:1"):
        writes[write]()
    assert second.store._read() == state


def test_an_object_that_is_deleted(first: Machine, second: Machine, objects: DirectoryObjects) -> None:
    lease = first.wait_and_take()
    first.store.write_note(lease, "1", 0)
    assert second.take() is None
    objects.delete([NAME])
    assert second.take() is None, "its holder may not have noticed yet"
    with pytest.raises(LeaseLost, match="the object file:///directory/orders.lease was deleted"):
        first.store.renew(lease)
    assert second.store.note().text == "1", "it has seen the note"
    number = second.wait_and_take().number
    assert number > lease.number
    assert second.store.note().text == "1"


def test_an_object_of_another_program_is_never_replaced(
    first: Machine, second: Machine, objects: DirectoryObjects
) -> None:
    lease = first.wait_and_take()
    objects.swap(NAME, b"mine", objects.get(NAME)[1])
    with pytest.raises(LeaseLost, match="was overwritten: it begins with b'mine'"):
        first.store.renew(lease)
    for _ in range(3 * TTL_S):
        Machine.now_s += 1
        assert first.take() is None
        assert second.take() is None
    state = second.poll()
    assert state.stranger == "it begins with b'mine'"
    assert state.holder is None
    assert second.store.acquire("b:1", state) is None
    with pytest.raises(LeaseError, match="no nsqd has written the object"):
        second.store.note()
    objects.delete([NAME])
    began_s = Machine.now_s
    second.wait_and_take()
    assert Machine.now_s == began_s + TTL_S


def test_a_store_that_refuses_is_no_answer(first: Machine, unreliable: Unreliable) -> None:
    def refuse(swap: Callable[[], Any]) -> None:
        raise StoreRefused("AccessDenied: no")

    lease = first.wait_and_take()
    unreliable.next_swap = refuse
    with pytest.raises(LeaseError, match="AccessDenied: no"):
        first.store.renew(lease)


class Careless(Unreliable):
    """Objects in a store that ignores some of the conditions of a write."""

    def __init__(self, objects: Objects, ignored: Callable[[Any], bool]) -> None:
        super().__init__(objects)
        self._ignored = ignored

    def swap(self, name: str, data: bytes, version: Any) -> Any:
        if self._ignored(version):
            with suppress(Missing):
                version = self.get(name)[1]
        return super().swap(name, data, version)


@pytest.mark.parametrize("ignores_new", [True, False])
def test_a_store_without_conditional_writes_is_refused(objects: DirectoryObjects, ignores_new: bool) -> None:
    for _ in range(2):  # the lease is new, or there was a holder
        careless = Careless(objects, lambda version: (version is None) == ignores_new)
        machine = Machine(careless)  # type: ignore[arg-type]
        lease = None
        with suppress(LeaseError):
            lease = machine.wait_and_take()
            machine.store.release(lease)
    assert lease is None
    with pytest.raises(LeaseError, match="orders.lease has no conditional writes, so it can have no lease"):
        machine.take()


def test_a_renewal_is_one_request(first: Machine, unreliable: Unreliable) -> None:
    lease = first.wait_and_take()
    unreliable.swaps = unreliable.gets = 0
    for _ in range(10):
        first.store.renew(lease)
    assert (unreliable.swaps, unreliable.gets) == (10, 0)
