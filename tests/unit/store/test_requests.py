"""The number of requests of a day."""

from __future__ import annotations

from nsqd_py.objects.opening import open_objects
from nsqd_py.settings.durations import HOUR_NS
from nsqd_py.store.requests import Requests, counted

DAY_NS = 24 * HOUR_NS


def test_each_call_counts_until_midnight_in_utc(tmp_path) -> None:
    requests = Requests()
    objects = counted(open_objects(f"file://{tmp_path}"), requests)
    objects.create("a", b"1")
    assert requests.today(10 * DAY_NS) == 1
    assert objects.get("a")[0] == b"1"
    assert requests.today(11 * DAY_NS - 1) == 2
    assert requests.today(11 * DAY_NS) == 0
    objects.delete(["a"])
    assert requests.today(11 * DAY_NS + 1) == 1
    assert repr(objects) == f"file://{tmp_path}"
