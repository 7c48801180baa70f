"""The server and the proxy that tests of stores use do what they say, seen by obstore."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support import bucket_faults
from tests.support.bucket_faults import Fault, FaultProxy, late, refused, slow
from tests.support.buckets import Bucket, MotoServer
from tests.support.nsqd_process import wait_until

obstore = pytest.importorskip("obstore")

pytestmark = pytest.mark.ours

WRITERS, RACES = 8, 20
# obstore raises a FileNotFoundError for an object that is missing.
FAILURES = (obstore.exceptions.BaseError, OSError)
NO_RETRIES = {"max_retries": 0, "retry_timeout": timedelta(seconds=5)}


def store_at(bucket: Bucket, endpoint: str) -> Any:
    return obstore.store.S3Store(
        bucket.name,
        endpoint=endpoint,
        access_key_id="key",
        secret_access_key="secret",
        region="us-east-1",
        client_options={"allow_http": True, "timeout": "2s"},
        retry_config=NO_RETRIES,
    )


@pytest.fixture
def store(s3_bucket: Bucket, s3_faults: FaultProxy) -> Any:
    return store_at(s3_bucket, s3_faults.endpoint)


# ---- the server


@pytest.mark.parametrize("is_new", [True, False])
def test_one_of_many_conditional_writes_wins(s3_server: MotoServer, s3_bucket: Bucket, is_new: bool) -> None:
    store = store_at(s3_bucket, s3_server.endpoint)
    for race in range(RACES):
        mode: Any = "create" if is_new else {"e_tag": s3_bucket.put(f"race{race}", b"before")}
        assert len(winners(store, f"race{race}", mode)) == 1


def winners(store: Any, name: str, mode: Any) -> list[int]:
    """Return the writers that were told that they have written."""
    start = threading.Barrier(WRITERS)
    won: list[int] = []

    def write(number: int) -> None:
        start.wait()
        try:
            obstore.put(store, name, b"%d" % number, mode=mode)
        except FAILURES:
            return
        won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_a_condition_that_does_not_hold_changes_nothing(s3_bucket: Bucket) -> None:
    old = s3_bucket.put("a", b"1")
    s3_bucket.put("a", b"2")
    assert s3_bucket.request("PUT", "a", b"3", If_Match=old)[0] == 412
    assert s3_bucket.request("PUT", "a", b"3", If_None_Match="*")[0] == 412
    assert s3_bucket.request("PUT", "missing", b"3", If_Match=old)[0] == 404
    assert s3_bucket.objects() == {"a": b"2"}


# ---- the proxy


def test_requests_pass_as_they_are(store: Any, s3_bucket: Bucket, s3_faults: FaultProxy) -> None:
    obstore.put(store, "dir/a b", b"1", mode="create")
    obstore.put(store, "big", bytes(12 << 20), use_multipart=True, chunk_size=6 << 20)
    assert bytes(obstore.get_range(store, "dir/a b", start=0, end=1)) == b"1"
    assert bytes(obstore.get(store, "big").bytes()) == bytes(12 << 20)
    assert obstore.head(store, "big")["size"] == 12 << 20
    assert [each["path"] for batch in obstore.list(store, "dir") for each in batch] == ["dir/a b"]
    obstore.delete(store, ["dir/a b"])
    assert s3_bucket.names() == ["big"]
    assert s3_faults.count("PUT", "^dir/a b$", fault="") == 1


@pytest.mark.parametrize(
    ("fault", "is_done"),
    [
        (bucket_faults.answer_lost, True),
        (bucket_faults.answer_hangs, True),
        (bucket_faults.hangs, False),
        (bucket_faults.cut, False),
        (bucket_faults.torn_upload, False),
        (refused(409), False),
        (refused(412), False),
        (refused(404), False),
        (refused(503), False),
        (bucket_faults.done_but_refused(503), True),
    ],
)
def test_a_write_that_meets_a_fault(
    store: Any, s3_bucket: Bucket, s3_faults: FaultProxy, fault: Fault, is_done: bool
) -> None:
    s3_faults.add(fault, method="PUT", name="^a$")
    with pytest.raises(FAILURES):
        obstore.put(store, "a", b"12", mode="create")
    assert s3_bucket.objects() == ({"a": b"12"} if is_done else {})
    assert s3_faults.count("PUT", "a", fault=fault.__name__) == 1
    s3_faults.flush_late()
    obstore.put(store, "b", b"1", mode="create")  # the next request passes


def test_a_write_that_is_carried_out_late(store: Any, s3_bucket: Bucket, s3_faults: FaultProxy) -> None:
    s3_faults.add(late(60), method="PUT")
    with pytest.raises(FAILURES):
        obstore.put(store, "a", b"1", mode="create")
    assert s3_bucket.names() == []
    s3_faults.flush_late()
    assert s3_bucket.names() == ["a"]


def test_an_answer_that_is_torn(store: Any, s3_bucket: Bucket, s3_faults: FaultProxy) -> None:
    s3_bucket.put("a", b"12")
    s3_faults.add(bucket_faults.torn_answer, method="GET")
    with pytest.raises(FAILURES):
        obstore.get(store, "a").bytes()


def test_an_answer_that_is_slow(store: Any, s3_faults: FaultProxy) -> None:
    s3_faults.add(slow(0.2), method="PUT")
    began_s = time.monotonic()
    obstore.put(store, "a", b"1")
    assert time.monotonic() - began_s >= 0.2


def test_a_list_that_lags(store: Any, s3_bucket: Bucket, s3_faults: FaultProxy) -> None:
    def names() -> list[str]:
        return [each["path"] for batch in obstore.list(store) for each in batch]

    s3_bucket.put("old", b"1")
    s3_bucket.put("gone", b"1")
    s3_faults.list_lag_s = 3600
    obstore.put(store, "new", b"1")
    obstore.delete(store, ["gone"])
    assert names() == ["old", "gone"]
    s3_faults.list_lag_s = 0.1
    wait_until(lambda: names() == ["new", "old"], what="the list")


def test_a_clock_that_is_wrong(store: Any, s3_bucket: Bucket, s3_faults: FaultProxy) -> None:
    s3_bucket.put("a", b"1")
    s3_faults.clock_off_s = -86400 * 365
    changed = obstore.head(store, "a")["last_modified"]
    assert changed < datetime.now(UTC) - timedelta(days=300)


def test_faults_at_random_are_the_same_for_a_seed(s3_server: MotoServer, s3_bucket: Bucket) -> None:
    met = [
        faults_met(s3_server, s3_bucket, 7),
        faults_met(s3_server, s3_bucket, 7),
        faults_met(s3_server, s3_bucket, 8),
    ]
    assert met[0] == met[1] != met[2]
    assert {"", "refused_503"} < set(met[0])


def faults_met(s3_server: MotoServer, s3_bucket: Bucket, seed: int) -> list[str]:
    with FaultProxy(s3_server.endpoint) as proxy:
        proxy.at_random(seed, 0.5, (refused(503), refused(409), bucket_faults.cut))
        store = store_at(s3_bucket, proxy.endpoint)
        for number in range(30):
            attempt(lambda: obstore.put(store, f"{number}", b"1"))  # noqa: B023 - it is called at once
        return [each.fault for each in proxy.seen]


def attempt(call: Callable[[], object]) -> None:
    with suppress(FAILURES):
        call()
