"""Which `--restore-from` an nsqd with `--store` accepts."""

from __future__ import annotations

import pytest

from nsqd_py.server.options import read_options
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.store.backup import check_with_store


@pytest.mark.parametrize(
    ("store", "restore_from"),
    [
        ("s3://bucket/nsq", "s3://bucket/nsq"),
        ("s3://bucket/nsq", "s3://bucket/nsq/"),
        ("s3://bucket/", "s3://bucket"),
        ("file:///var/lib/store/", "file:///var/lib/store"),
    ],
)
def test_a_slash_at_the_end_makes_no_difference(store: str, restore_from: str) -> None:
    options = read_options([f"--store={store}", f"--restore-from={restore_from}"])
    assert check_with_store(options) == ""


@pytest.mark.parametrize("restore_from", ["s3://bucket/nsq/2", "gs://bucket/nsq", "backup"])
def test_another_store_is_refused(restore_from: str) -> None:
    options = read_options(["--store=s3://bucket/nsq", f"--restore-from={restore_from}"])
    with pytest.raises(
        BadOptions, match=f"^--restore-from={restore_from} must be the same as --store=s3://bucket/nsq"
    ):
        check_with_store(options)
