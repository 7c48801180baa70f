"""Where files are: names and links of local ones, and which store a path of another scheme is in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import ArchiveError, plan_splits
from nsq_spark.archive.storage import Storage
from tests.support.s3 import s3_store


def bodies(path: str, storage: Storage) -> list[bytes]:
    splits = plan_splits(list_files([path], storage))
    return [body for split in splits for chunk in read(split, storage) for body in chunk.bodies.to_pylist()]


# ---- local


def test_links_that_lead_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "a.log").write_bytes(b"1\n")
    (tmp_path / "day" / "up").symlink_to("..")
    (tmp_path / "day" / "itself").symlink_to("itself")
    (tmp_path / "again").symlink_to("day")
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "b.log").write_bytes(b"2\n")
    (tmp_path / "linked").symlink_to(elsewhere)
    found = [info.path for info in list_files([str(tmp_path)], Storage())]
    assert found == [f"{tmp_path}/day/a.log", f"{tmp_path}/linked/b.log"]
    assert len(list_files([f"{tmp_path}/*/*.log"], Storage())) == 2


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    name = os.fsdecode(b"orders.\xff.log")
    (tmp_path / name).write_bytes(b"1\n2\n")
    storage = Storage()
    for path in (tmp_path, tmp_path / "*.log", tmp_path / name):
        (info,) = list_files([str(path)], storage)
        assert (info.path, info.topic) == (f"file://{tmp_path}/orders.%FF.log", "orders")
    assert bodies(info.path, storage) == [b"1", b"2"]
    (chunk,) = read(plan_splits([info])[0], storage)
    assert chunk.arrow().column("file").to_pylist() == [info.path, info.path]


def test_a_path_without_a_scheme_is_where_hadoop_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "anna")
    monkeypatch.setenv("LOGNAME", "anna")
    store = Storage({"fs.defaultFS": "hdfs://name:8020/"})
    assert store.resolved("/archive/day") == "hdfs://name:8020/archive/day"
    assert store.resolved("./day") == store.resolved("day") == "hdfs://name:8020/user/anna/day"
    assert (store.resolved("file:/archive"), store.resolved("s3a://b/x")) == ("/archive", "s3a://b/x")
    assert Storage({"fs.defaultFS": "file:///"}).resolved("/archive") == "/archive"
    assert Storage().resolved("/archive") == "/archive"


# ---- S3


def test_each_bucket_has_its_own_settings() -> None:
    with s3_store({"mine/day/a.log": b"1\n2\n"}) as mine, s3_store({"theirs/day/b.log": b"3\n"}) as theirs:
        storage = Storage(
            {
                "fs.s3a.endpoint": theirs.endpoint,
                "fs.s3a.access.key": "general",
                "fs.s3a.secret.key": "secret",
                "fs.s3a.endpoint.region": "eu-1",
                "fs.s3a.bucket.mine.endpoint": mine.endpoint,
                "fs.s3a.bucket.mine.access.key": "own",
            }
        )
        assert bodies("s3a://mine/day", storage) == [b"1", b"2"]
        assert bodies("s3a://theirs/*/b.log", storage) == [b"3"]
    assert (mine.requests, theirs.requests) == ({("mine", "own")}, {("theirs", "general")})


@pytest.mark.parametrize("path", ["http://127.0.0.1:4151", "https://host/x.log"])
def test_an_address_is_no_path(path: str) -> None:
    with pytest.raises(
        ArchiveError,
        match=f"^{path} is an address; an archive is a path: .* the option nsqd reads a running nsqd$",
    ):
        list_files([path], Storage())


def test_a_scheme_that_nothing_opens_is_an_error_in_a_line() -> None:
    with pytest.raises(ArchiveError, match=r"^gone://x/y cannot be read: [^\n]+$"):
        list_files(["gone://x/y"], Storage())
