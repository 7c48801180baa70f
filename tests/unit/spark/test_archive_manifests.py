"""The manifest of nsq-to-file leaves files out before they are opened, and never one that may hold what is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from nsq_spark.archive.listing import Hints, list_files
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import Wanted, plan_splits
from nsq_spark.archive.storage import Storage
from nsq_tools.to_file.output import Manifest, ManifestEntry
from tests.support.archives import BASE_NS, framed, messages

EARLY = Wanted(start_ns=BASE_NS, end_ns=BASE_NS + 100)


def entry(file: Path, topic: str = "orders", **changes: Any) -> ManifestEntry:
    fields: dict[str, Any] = {
        "path": file.name,
        "topic": topic,
        "channel": "archive",
        "format": "framed",
        "compress": "none",
        "messages": 100,
        "first_timestamp": BASE_NS,
        "last_timestamp": BASE_NS + 99,
        "offset": 0,
        "bytes": file.stat().st_size,
        "crc32c": None,
        "repaired": False,
        "cut_bytes": 0,
        "closed": 0,
    }
    return ManifestEntry(**{**fields, **changes})


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """`early` holds messages 0 to 99 of orders, `late` 100 to 199, and `clicks` those of another topic."""
    orders = messages(200)
    contents = {"early": orders[:100], "late": orders[100:], "clicks": messages(100, topic="clicks")}
    for name, some in contents.items():
        (tmp_path / f"{name}.framed").write_bytes(framed([some]))
    manifest = Manifest(tmp_path)
    manifest.add(entry(tmp_path / "early.framed"))
    manifest.add(entry(tmp_path / "late.framed", first_timestamp=BASE_NS + 100, last_timestamp=BASE_NS + 199))
    manifest.add(entry(tmp_path / "clicks.framed", "clicks"))
    return tmp_path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were opened, in order."""
    found: list[str] = []
    unwatched = Storage.open

    def watched(self: Storage, path: str) -> Any:
        file = unwatched(self, path)
        found.append(Path(path).name)
        return file

    monkeypatch.setattr(Storage, "open", watched)
    return found


def read_from(directory: Path, wanted: Wanted, hints: Hints | None = None) -> int:
    splits = plan_splits(list_files([str(directory)], Storage(), hints, wanted), wanted=wanted)
    return sum(chunk.count for split in splits for chunk in read(split, Storage(), wanted))


@pytest.mark.parametrize(
    ("wanted", "names", "count"),
    [
        (EARLY, ["clicks", "early"], 200),
        (Wanted(frozenset({"orders"})), ["early", "late"], 200),
        (Wanted(topic_pattern="^cl"), ["clicks"], 100),
        (Wanted(frozenset({"orders"}), start_ns=BASE_NS + 150), ["late"], 50),
        (Wanted(frozenset({"none"})), [], 0),
        (Wanted(), ["clicks", "early", "late"], 300),
    ],
)
def test_only_files_that_may_hold_something_are_opened(
    archive: Path, opened: list[str], wanted: Wanted, names: list[str], count: int
) -> None:
    assert read_from(archive, wanted) == count
    assert sorted(set(opened) - {"_nsq_manifest", "_manifest.jsonl"}) == [f"{name}.framed" for name in names]
    assert opened.count("_nsq_manifest") == (1 if wanted.has_range or wanted.has_topics else 0)


def test_a_manifest_above_directories(archive: Path, opened: list[str]) -> None:
    directory = archive / "orders" / "2023"
    directory.mkdir(parents=True)
    path = (archive / "late.framed").rename(directory / "late.framed")
    Manifest(archive).add(entry(path, path="orders/2023/late.framed", first_timestamp=BASE_NS + 100))
    assert read_from(path.parent, Wanted(frozenset({"clicks"}))) == 0
    assert opened == ["_nsq_manifest"]


@pytest.mark.parametrize(
    "changes",
    [
        {"bytes": 100},  # others wrote behind it
        {"offset": 10},  # what is before is not described
        {"first_timestamp": None},
        {"format": "newer"},
    ],
)
def test_a_file_that_the_manifest_does_not_describe_is_opened(archive: Path, changes: dict[str, Any]) -> None:
    path = archive / "late.framed"
    (archive / "_nsq_manifest").unlink()
    Manifest(archive).add(entry(path, **{"last_timestamp": BASE_NS, **changes}))
    assert read_from(path, Wanted(start_ns=BASE_NS + 100)) == 100


def test_parts_of_a_file_that_was_appended_to(archive: Path, opened: list[str]) -> None:
    path = archive / "late.framed"
    size = path.stat().st_size
    (archive / "_nsq_manifest").unlink()
    Manifest(archive).add(entry(path, bytes=size - 50))
    assert read_from(path, Wanted(frozenset({"clicks"}))) == 0
    assert "late.framed" in opened
    opened.clear()
    Manifest(archive).add(entry(path, offset=size - 50, bytes=50))
    assert read_from(path, Wanted(frozenset({"clicks"}))) == 0
    assert "late.framed" not in opened
    Manifest(archive).add(entry(path, bytes=size - 50))  # a new file of the same name
    assert read_from(path, Wanted(frozenset({"clicks"}))) == 0
    assert "late.framed" in opened


def test_the_manifest_of_an_earlier_version_is_read_too(archive: Path, opened: list[str]) -> None:
    path = archive / "_nsq_manifest"
    lines = path.read_bytes().splitlines(keepends=True)
    path.rename(archive / "_manifest.jsonl").write_bytes(b"".join(lines[:1]))
    path.write_bytes(b"".join(lines[1:]))
    assert read_from(archive, Wanted(frozenset({"none"}))) == 0
    assert sorted(opened) == ["_manifest.jsonl", "_nsq_manifest"]


def test_a_manifest_that_is_damaged(archive: Path) -> None:
    path = archive / "_nsq_manifest"
    path.write_bytes(b"[]\n\xff\n" + path.read_bytes()[:-40])
    assert read_from(archive, EARLY) == 200
    assert [info.is_unwanted for info in list_files([str(archive)], Storage(), None, EARLY)] == [False, False, True]


def test_what_the_user_says_of_files_goes_before(archive: Path) -> None:
    """Lines have the topic of their names, whatever they were written for."""
    path = archive / "late.log"
    path.write_bytes(b"a\nb\n")
    Manifest(archive).add(entry(path, "orders", format="lines"))
    assert read_from(path, Wanted(frozenset({"late"}))) == 2
    assert read_from(path, Wanted(frozenset({"other"})), Hints(topic="other")) == 2
    assert read_from(path, Wanted(frozenset({"late"})), Hints(format="lines")) == 2
