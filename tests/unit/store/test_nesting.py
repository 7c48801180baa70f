"""A store is not begun inside another one, and two ways to write a URL are one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.errors import StartError
from nsqd_py.objects.opening import is_one_store, open_objects
from nsqd_py.store.layout import FILES, HEAD_NAME
from nsqd_py.store.nesting import check_nesting
from nsqd_py.store.ownership import Claims, claim


@pytest.fixture
def root(tmp_path: Path) -> str:
    """With the store of the nsqd `other` at a/b."""
    (tmp_path / "data").mkdir()
    url = f"file://{tmp_path}"
    claim(open_objects(f"{url}/a/b"), "other", Claims(tmp_path / "data"), lambda _: None)
    return url


@pytest.mark.parametrize("prefix", ["a/b/c", "a/b/c/d/", "a//b/./files", "a/b/rounds"])
def test_a_store_is_not_begun_in_another_one(root: str, prefix: str) -> None:
    url = f"{root}/{prefix}"
    with pytest.raises(StartError, match=f"^--store={url} lies in the store {root}/a/b of other: choose"):
        check_nesting(url, "")


@pytest.mark.parametrize("prefix", ["a", "a/", ""])
def test_a_store_is_not_begun_around_another_one(root: str, prefix: str) -> None:
    for number in range(50):
        open_objects(f"{root}/a/b").create(f"{FILES}/t/{number:020d}-0-0-0-1.log", b"")
    with pytest.raises(StartError, match=f"^the store {root}/a/b of other lies in --store={root}"):
        check_nesting(f"{root}/{prefix}", "")


@pytest.mark.parametrize("prefix", ["a/c", "a/bc", "b", "a/b2/c"])
def test_a_store_next_to_another_one_is_begun(root: str, prefix: str) -> None:
    check_nesting(f"{root}/{prefix}", "")


def test_an_object_of_another_program_is_no_store(tmp_path: Path) -> None:
    open_objects(f"file://{tmp_path}/a").create(HEAD_NAME, b'{"head": 1}')
    check_nesting(f"file://{tmp_path}/a/b", "")
    check_nesting(f"file://{tmp_path}", "")


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("s3://bucket/nsq", "s3://bucket/nsq/", True),
        ("s3://bucket/nsq", "S3://Bucket/nsq", True),
        ("s3://bucket", "s3://bucket/", True),
        ("file:///srv/nsq", "file:///srv//nsq/./", True),
        ("file:///srv/nsq", "file:///srv/x/../nsq", True),
        ("s3://bucket/nsq", "s3://bucket/Nsq", False),
        ("s3://bucket/nsq", "gs://bucket/nsq", False),
        ("", "", True),
        ("", "s3://bucket", False),
        ("/srv/nsq", "file:///srv/nsq", False),
    ],
)
def test_two_urls_of_one_store(one: str, other: str, is_one: bool) -> None:
    assert is_one_store(one, other) is is_one
    assert is_one_store(other, one) is is_one
