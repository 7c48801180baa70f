"""An nsqd whose store is a bucket of Google Cloud Storage: it takes the store over, and another machine gets everything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.gcs import CloudStorage, cloud_storage, environment_of
from tests.support.nsqd_process import StoreNsqd
from tests.support.standby_processes import consume_all

pytestmark = pytest.mark.ours


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudStorage]:
    with cloud_storage() as server:
        for name, value in environment_of(server.endpoint, tmp_path).items():
            monkeypatch.setenv(name, value)
        yield server


def test_another_machine_gets_everything(google: CloudStorage, tmp_path: Path) -> None:
    store = f"{google.make_bucket()}/nsq/1"
    flags = (
        f"--store={store}",
        f"--store-endpoint={google.endpoint}",
        "--store-acks=1",
        "--store-interval=100ms",
        "--max-bytes-per-file=1000000",
    )
    bodies = [b"%04d" % number + os.urandom(10_000) for number in range(300)]
    with ExitStack() as stack:
        first = StoreNsqd(tmp_path / "first", *flags)
        stack.callback(first.destroy)
        first.start()
        first.create("orders", "c")
        first.publish("orders", bodies, batch=20)
        first.kill()
        shutil.rmtree(first.data_path)

        second = StoreNsqd(tmp_path / "second", *flags, f"--restore-from={store}")
        stack.callback(second.destroy)
        second.start()
        assert sorted(consume_all(second, "orders", "c")) == bodies
        assert second.stats()["store"]["epoch"] == 2
