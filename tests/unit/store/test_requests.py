"""The requests to a store are counted by kind and by day."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.objects.calls import PART_BYTES, Missing, Objects, StoreError
from nsqd_py.objects.opening import open_objects
from nsqd_py.store.requests import DELETE, GET, LIST, PUT, CountedObjects, Requests

DAY_NS = 24 * 3600 * 10**9


@pytest.fixture
def objects(tmp_path: Path) -> CountedObjects:
    return CountedObjects(open_objects(f"file://{tmp_path}/bucket"))


def test_requests_are_counted_by_kind(objects: CountedObjects) -> None:
    version = objects.create("a", b"x")
    objects.swap("a", b"y", version)
    objects.get("a")
    objects.get_range("a", 0, 1)
    assert [listed.name for listed in objects.list("rounds")] == []
    objects.delete(["a"])
    assert objects.requests.by_kind() == {PUT: 2, GET: 2, LIST: 1, DELETE: 1}
    assert objects.requests.errors == 0


@pytest.mark.parametrize(
    ("size_bytes", "count"), [(1, 1), (PART_BYTES, 1), (PART_BYTES + 1, 4), (2 * PART_BYTES + 1, 5)]
)
def test_each_part_of_a_large_file_costs_a_request(
    objects: CountedObjects, tmp_path: Path, size_bytes: int, count: int
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(size_bytes))
    objects.put_file("files/t/1.log", path, size_bytes)
    assert objects.requests.by_kind()[PUT] == count


def test_only_what_the_store_did_not_do_is_an_error(objects: CountedObjects) -> None:
    with pytest.raises(Missing):
        objects.get("a")
    assert objects.requests.errors == 0

    class Away(Objects):
        def get(self, name: str) -> tuple[bytes, object]:
            raise StoreError("no answer")

    away = CountedObjects(Away())
    with pytest.raises(StoreError):
        away.get("a")
    assert (away.requests.errors, away.requests.by_kind()[GET]) == (1, 1)


def test_the_requests_of_a_day_begin_again_at_midnight() -> None:
    requests = Requests()
    requests.add(PUT, 5)
    assert requests.today(10 * DAY_NS) == 5
    requests.add(GET)
    assert requests.today(11 * DAY_NS - 1) == 6
    assert requests.today(11 * DAY_NS) == 0
    requests.add(LIST)
    assert requests.today(11 * DAY_NS) == 1
