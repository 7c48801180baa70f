"""Objects in a directory, in memory and in buckets of all three clouds behave the same."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nsqd_py.objects.calls import Changed, Exists, Listed, Missing, Objects, StoreError, StoreRefused
from nsqd_py.objects.opening import open_objects, parse_store_url
from tests.support.azurite import COMMAND, ENVIRONMENT, Azurite, azurite
from tests.support.bucket_faults import FaultProxy, refused
from tests.support.gcs import CloudStorage, cloud_storage
from tests.support.gcs import environment_of as environment_of_google
from tests.support.s3 import environment_of, make_bucket

KINDS = (
    "file",
    "memory",
    "s3",
    "gs",
    pytest.param("az", marks=pytest.mark.skipif(COMMAND is None, reason="no azurite")),
)
BIG = 11 * 1024 * 1024  # more than two parts


@pytest.fixture
def s3_environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in environment_of(endpoint).items():
        monkeypatch.setenv(name, value)
    return endpoint


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running


@pytest.fixture(scope="module")
def google() -> Iterator[CloudStorage]:
    with cloud_storage() as running:
        yield running


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "file":
        return open_objects(f"file://{tmp_path}/new/store")
    if request.param == "memory":
        return open_objects("memory://")
    if request.param == "az":
        emulator = request.getfixturevalue("emulator")
        with mock.patch.dict(os.environ, ENVIRONMENT):
            return open_objects(f"{emulator.make_container()}/a/prefix", emulator.endpoint)
    if request.param == "gs":
        google = request.getfixturevalue("google")
        with mock.patch.dict(os.environ, environment_of_google(google.endpoint, tmp_path)):
            return open_objects(f"{google.make_bucket()}/a/prefix", google.endpoint)
    endpoint = request.getfixturevalue("s3_environment")
    return open_objects(f"{make_bucket(endpoint)}/a/prefix")


def test_an_object_is_created_once(objects: Objects) -> None:
    objects.create("rounds/1", b"first")
    with pytest.raises(Exists, match="rounds/1 exists already"):
        objects.create("rounds/1", b"second")
    assert objects.get("rounds/1")[0] == b"first"


def test_of_many_that_create_an_object_one_succeeds(objects: Objects) -> None:
    created: list[int] = []

    def create(number: int) -> None:
        try:
            objects.create("rounds/1", b"%d" % number)
        except Exists:
            return
        created.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [objects.get("rounds/1")[0]] == [b"%d" % number for number in created]


def test_a_swap_needs_the_version_that_is_there(objects: Objects) -> None:
    first = objects.swap("head", b"one", None)
    second = objects.swap("head", b"two", first)
    for version in (first, None):
        with pytest.raises(Changed):
            objects.swap("head", b"three", version)
    assert objects.get("head") == (b"two", second)
    with pytest.raises(Changed):
        objects.swap("other", b"three", second)
    with pytest.raises(Missing):
        objects.get("other")


def test_of_many_that_swap_an_object_each_sees_what_was_before(objects: Objects) -> None:
    objects.create("count", b"0")

    def count() -> None:
        done = 0
        while done < 5:
            data, version = objects.get("count")
            try:
                objects.swap("count", b"%d" % (int(data) + 1), version)
            except (Changed, StoreError):  # 409: another one is under way
                continue
            done += 1

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert objects.get("count")[0] == b"15"


def test_ranges(objects: Objects) -> None:
    objects.create("files/t/1", b"0123456789")
    assert objects.get_range("files/t/1", 2, 5) == b"234"
    assert objects.get_range("files/t/1", 8, 20) == b"89"
    assert objects.get_range("files/t/1", 10, 20) == b""
    assert objects.get_range("files/t/1", 5, 5) == b""
    with pytest.raises(Missing, match="files/t/2 is missing"):
        objects.get_range("files/t/2", 0, 5)


@pytest.mark.parametrize("size_bytes", [0, 1000, BIG])
def test_the_first_bytes_of_a_file(objects: Objects, tmp_path: Path, size_bytes: int) -> None:
    path = tmp_path / "growing.log"
    data = os.urandom(size_bytes + 500)
    path.write_bytes(data)
    objects.put_file("files/=../1.log", path, size_bytes)
    assert objects.get("files/=../1.log")[0] == data[:size_bytes]


def test_a_file_that_is_too_short_is_no_object(objects: Objects, tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    path.write_bytes(b"x" * 10)
    with pytest.raises(StoreError, match="short.log has"):
        objects.put_file("files/t/1", path, 11)
    with pytest.raises(Missing):
        objects.get("files/t/1")
    with pytest.raises(FileNotFoundError):
        objects.put_file("files/t/1", tmp_path / "none", 11)


def test_lists(objects: Objects) -> None:
    for name in ("rounds/1", "rounds/2", "rounds-more/3", "files/t/4"):
        objects.create(name, name.encode())
    assert sorted(objects.list("rounds")) == [Listed("rounds/1", 8), Listed("rounds/2", 8)]
    assert list(objects.list("none")) == []
    objects.delete(["rounds/1", "rounds/none"])
    objects.delete([])
    assert list(objects.list("rounds")) == [Listed("rounds/2", 8)]


@pytest.mark.parametrize("name", ["../x", "a//b", "a/./b"])
def test_names_lead_nowhere_else(objects: Objects, name: str) -> None:
    with pytest.raises(StoreRefused):
        objects.create(name, b"x")


# ---- refusals


def refusal_of(act: Callable[[], Any]) -> str:
    with pytest.raises(StoreRefused) as refused:
        act()
    return str(refused.value)


def test_a_bucket_that_is_not_there(s3_environment: str, tmp_path: Path) -> None:
    objects = open_objects("s3://no-such-bucket/prefix")
    path = tmp_path / "file"
    path.write_bytes(b"x")
    acts: list[Callable[[], Any]] = [
        lambda: objects.create("a", b"x"),
        lambda: objects.get("a"),
        lambda: objects.swap("a", b"x", {"e_tag": '"x"'}),
        lambda: objects.put_file("a", path, 1),
        lambda: list(objects.list("a")),
    ]
    assert {refusal_of(act).partition(": ")[2] for act in acts} == {
        "NoSuchBucket: The specified bucket does not exist"
    }


def test_a_server_that_does_not_answer(s3_environment: str) -> None:
    objects = open_objects("s3://bucket/prefix", "http://127.0.0.1:1", timeout_s=1)
    with pytest.raises(StoreError, match="^head.json: "):
        objects.get("head.json")


def test_a_write_that_meets_404_may_be_repeated(s3_environment: str, tmp_path: Path) -> None:
    """A proxy answers so for a server that is just beginning: it says nothing of the object."""
    path = tmp_path / "log"
    path.write_bytes(b"log")
    with FaultProxy(s3_environment) as proxy:
        objects = open_objects(f"{make_bucket(s3_environment)}/p", proxy.endpoint)
        calls: list[Callable[[], object]] = [
            lambda: objects.create("rounds/1", b"1"),
            lambda: objects.put_file("files/1", path, 3),
            lambda: list(objects.list("rounds")),
        ]
        for call in calls:
            proxy.add(refused(404))
            with pytest.raises(StoreError):
                call()
            call()
        proxy.add(refused(404), "PUT")
        with pytest.raises(Changed):
            objects.swap("rounds/1", b"2", objects.get("rounds/1")[1])
        proxy.add(refused(404))
        objects.delete(["rounds/1", "files/1"])
        assert list(objects.list("rounds")) == []


def test_a_directory_that_is_renamed_under_a_write(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}/store")
    with (
        mock.patch("os.link", side_effect=FileNotFoundError),
        pytest.raises(StoreError, match="rounds/1 is missing"),
    ):
        objects.create("rounds/1", b"1")
    with pytest.raises(Changed):
        open_objects(f"file://{tmp_path}/nothing").swap("head.json", b"2", b"1")


def test_a_package_that_is_not_there() -> None:
    with mock.patch.dict("sys.modules", {"obstore": None}):
        text = refusal_of(lambda: open_objects("s3://bucket/prefix"))
    assert text.startswith("s3://bucket: ")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_directory_that_refuses(tmp_path: Path, code: int) -> None:
    objects = open_objects(f"file://{tmp_path}")
    with mock.patch("os.link", side_effect=OSError(code, os.strerror(code))):
        assert refusal_of(lambda: objects.create("rounds/1", b"x")) == f"rounds/1: {os.strerror(code)}"
    assert list(objects.list("rounds")) == []


def test_a_directory_on_a_full_disk(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch("os.fsync", side_effect=full), pytest.raises(StoreError, match="No space left"):
        objects.create("rounds/1", b"x")
    assert list(tmp_path.rglob("*")) == [tmp_path / "rounds"]
    objects.create("rounds/1", b"x")


# ---- URLs


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a", "gs://bucket/a/b", "az://container/a"])
@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:1", "https://store.example.com"])
def test_the_clients_of_all_clouds_are_made(url: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    assert repr(open_objects(url, endpoint)) == url


def test_a_client_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert "Account must be specified" in refusal_of(lambda: open_objects("az://container/a"))


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("s3://bucket", ("s3", "bucket", "")),
        ("gs://bucket/a/b/", ("gs", "bucket", "a/b")),
        ("az://container/a", ("az", "container", "a")),
        ("file:///var/store", ("file", "", "/var/store")),
        ("memory://", ("memory", "", "")),
    ],
)
def test_urls(url: str, parts: tuple[str, str, str]) -> None:
    assert parse_store_url(url) == parts


@pytest.mark.parametrize(
    "url",
    [
        "",
        "bucket",
        "http://x/y",
        "s3:///x",
        "s3://b/a/../c",
        "s3://b/a//c",
        "s3://k:s@b/c",
        "s3://b/?c",
        "file://x/y",
        "file:x/y",
    ],
)
def test_other_urls_are_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(ValueError, match="^must "):
        parse_store_url(url)
