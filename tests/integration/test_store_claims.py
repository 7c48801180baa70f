"""Processes that claim one store from each other, over HTTP with faults: nothing that one of them has confirmed is missing."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from nsqd_py.errors import StartError
from nsqd_py.feed.pieces import Write
from nsqd_py.objects.calls import StoreError, StoreRefused
from nsqd_py.objects.opening import open_objects
from nsqd_py.store import rounds
from nsqd_py.store.image import StoreImage, StoreReader
from nsqd_py.store.layout import BadObject
from nsqd_py.store.nesting import check_nesting
from nsqd_py.store.ownership import Claims, Owner, Superseded, claim
from tests.support.bucket_faults import ANY, CONFLICTS, FaultProxy, late
from tests.support.buckets import Bucket

pytestmark = pytest.mark.ours

CURSOR = "t:c.cursor"
NUMBER_BYTES = 4
WRITERS = 3
CLAIMS = 4  # of each writer
MOST_ROUNDS = 12
TIMEOUT_S = 2.0
DEADLINE_S = 100.0


def numbers_in(image: StoreImage) -> list[int]:
    content = bytes(image.small.get(CURSOR, b""))
    return [int.from_bytes(content[at : at + NUMBER_BYTES]) for at in range(0, len(content), NUMBER_BYTES)]


class Writer:
    """One data path. Its process claims the store again and again, and adds a number with each round."""

    def __init__(self, directory: Path, url: str, endpoint: str, first_number: int) -> None:
        directory.mkdir()
        self.confirmed: list[int] = []
        self.lost: set[int] = set()
        self.error: BaseException | None = None
        self.superseded_count = 0
        self._claims = Claims(directory)
        self._objects = open_objects(url, endpoint, TIMEOUT_S)
        self._number = first_number

    def run(self, everyone: list[Writer]) -> None:
        try:
            for _ in range(CLAIMS):
                with suppress(Superseded):
                    self._own(everyone)
                    continue
                self.superseded_count += 1
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.error = error

    def _own(self, everyone: list[Writer]) -> None:
        before: set[int] = set()
        owner = None
        while owner is None:
            before = {number for writer in everyone for number in list(writer.confirmed)}
            with suppress(StoreError):
                owner = claim(self._objects, "node", self._claims, lambda _: None)
        assert owner.image is not None
        known = numbers_in(owner.image)
        self.lost |= before - set(known)
        self._add(owner, [*known, self._next()], 0)
        for index in range(MOST_ROUNDS):
            with suppress(StoreError):
                owner.move_head()
            self._add(owner, [self._next()], len(known) + 1 + index)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _add(self, owner: Owner, numbers: list[int], count: int) -> None:
        data = b"".join(number.to_bytes(NUMBER_BYTES) for number in numbers)
        payload = rounds.piece_frame(Write(CURSOR, count * NUMBER_BYTES, data))
        with suppress(StoreError):
            owner.append(payload, is_mark=True, is_base=not count)
        while not owner.is_settled:
            with suppress(StoreError):
                owner.settle()
        self.confirmed.append(numbers[-1])


@pytest.mark.parametrize("seed", [1, 2])
def test_writers_that_supersede_each_other(
    s3_bucket: Bucket, s3_faults: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for name, value in s3_bucket.environment(s3_faults.endpoint).items():
        monkeypatch.setenv(name, value)
    s3_faults.at_random(seed, 0.15, [*ANY, *CONFLICTS, late(0.05)])
    s3_faults.list_lag_s = 0.2
    url = s3_bucket.url("store")
    writers = [
        Writer(tmp_path / str(index), url, s3_faults.endpoint, 1000 * index) for index in range(WRITERS)
    ]
    threads = [threading.Thread(target=writer.run, args=(writers,), daemon=True) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert [writer.error for writer in writers] == [None] * WRITERS
    assert not any(thread.is_alive() for thread in threads)
    s3_faults.stop_faults()
    s3_faults.flush_late()
    reader = StoreReader(open_objects(url, s3_bucket.endpoint))
    reader.refresh()
    found = numbers_in(reader.image)
    assert len(found) == len(set(found))
    assert {number for writer in writers for number in writer.confirmed} <= set(found)
    assert [writer.lost for writer in writers] == [set()] * WRITERS
    assert sum(writer.superseded_count for writer in writers)


def test_a_bucket_that_refuses(s3_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_bucket.environment().items():
        monkeypatch.setenv(name, value)
    s3_bucket.put("store/head.json", b"<html>")
    with pytest.raises(BadObject, match="head.json is damaged or foreign"):
        claim(open_objects(s3_bucket.url("store")), "node", Claims(tmp_path), lambda _: None)
    with pytest.raises(StoreRefused, match="NoSuchBucket"):
        claim(open_objects("s3://no-such-bucket/store"), "node", Claims(tmp_path), lambda _: None)


def test_a_store_is_not_begun_inside_or_around_another_one_of_its_bucket(
    s3_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_bucket.environment().items():
        monkeypatch.setenv(name, value)
    url = s3_bucket.url("outer/nsq")
    claim(open_objects(url), "other", Claims(tmp_path), lambda _: None)
    for inside in ("outer/nsq/inner", "outer/nsq/files/t"):
        with pytest.raises(StartError, match="lies in the store .*outer/nsq of other"):
            check_nesting(s3_bucket.url(inside), "")
    for around in ("outer", ""):
        with pytest.raises(StartError, match="outer/nsq of other lies in --store"):
            check_nesting(s3_bucket.url(around).rstrip("/"), "")
    check_nesting(s3_bucket.url("outer/next"), "")
