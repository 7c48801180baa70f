"""The claim of a store at the start of an nsqd with a lease."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsqd_py.objects.opening import open_objects
from nsqd_py.server.options import read_options
from nsqd_py.store.layout import HEAD_NAME
from nsqd_py.store.ownership import Claims, claim
from nsqd_py.store.requests import CountedObjects
from nsqd_py.store.start import StoreStart


class LeaseLost(Exception):
    """Another nsqd has the lease now."""


def test_who_has_lost_the_lease_during_a_request_does_not_take_the_store(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    others = tmp_path / "others"
    mine.mkdir()
    others.mkdir()
    url = f"file://{tmp_path}/store"
    objects = open_objects(url)
    claim(objects, "other", Claims(others), lambda _: None)
    serving = objects.get(HEAD_NAME)[0]
    Claims(mine).add(
        Claims(others).store, "an earlier claim"
    )  # so that this data path may go on with the store

    options = read_options([f"--store={url}", f"--lease=file://{tmp_path}/lease"])
    log = SimpleNamespace(info=lambda *_: None, error=lambda *_: None, warning=lambda *_: None)
    notifier = SimpleNamespace(status=lambda _: None)
    services = SimpleNamespace(directory=mine, threadpool=None)
    broker = SimpleNamespace(options=options, services=services, log=log)
    host: Any = SimpleNamespace(broker=broker, notifier=notifier)

    def lose() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        StoreStart(host, CountedObjects(objects), lose, is_copy=False).run()
    assert objects.get(HEAD_NAME)[0] == serving
