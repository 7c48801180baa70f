"""The claim of a store at the start of an nsqd with a lease."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsqd_py.errors import StartError
from nsqd_py.objects.opening import open_objects
from nsqd_py.server.options import read_options
from nsqd_py.store.layout import HEAD_NAME
from nsqd_py.store.ownership import Claims, claim
from nsqd_py.store.requests import CountedObjects
from nsqd_py.store.start import StoreStart


class LeaseLost(Exception):
    """Another nsqd has the lease now."""


def host_with(directory: Path, *flags: str) -> Any:
    log = SimpleNamespace(info=lambda *_: None, error=lambda *_: None, warning=lambda *_: None)
    notifier = SimpleNamespace(status=lambda _: None)
    services = SimpleNamespace(directory=directory, threadpool=None)
    broker = SimpleNamespace(options=read_options(flags), services=services, log=log)
    return SimpleNamespace(broker=broker, notifier=notifier)


def test_a_store_is_not_begun_in_another_one(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    url = f"file://{tmp_path}/store"
    claim(open_objects(url), "other", Claims(tmp_path / "mine"), lambda _: None)
    (mine / "nsqd.store").unlink()
    inner = CountedObjects(open_objects(f"{url}/inner"))
    with pytest.raises(StartError, match="lies in the store"):
        StoreStart(host_with(mine, f"--store={url}/inner"), inner, lambda: None, is_copy=False).run()
    assert not (tmp_path / "store/inner" / HEAD_NAME).exists()


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

    host = host_with(mine, f"--store={url}", f"--lease=file://{tmp_path}/lease")

    def lose() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        StoreStart(host, CountedObjects(objects), lose, is_copy=False).run()
    assert objects.get(HEAD_NAME)[0] == serving
