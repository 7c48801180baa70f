"""Which files there are, and what they are."""

from __future__ import annotations

import os
import pickle
import re
from contextlib import nullcontext
from datetime import tzinfo
from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("pyarrow")

from nsq_spark.archive.listing import Hints, list_files, survey
from nsq_spark.archive.names import time_in, zone_of
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import ArchiveError, Compression, DamagedArchive, Format, Requested, plan_splits
from nsq_spark.archive.storage import Storage, local_path
from nsq_tools.to_file.output import ManifestEntry, add_to_manifest
from nsqd_py.go_import import FOLDER
from nsqd_py.settings.durations import parse_time
from nsqd_py.standby.copies.set_aside import ALONE_PREFIX, REMOVED_PREFIX
from nsqd_py.store.restoring.restoration import directory_aside
from tests.support.archives import (
    BASE_NS,
    Published,
    TopicLogFile,
    compressed,
    finished_file,
    framed,
    messages,
)

LINE = b'{"timestamp":1700000000,"id":"0123","attempts":1,"topic":"t","channel":"c","nsqd":"n","body":"b"}\n'
LOG = TopicLogFile("orders", first_seq=7)
LOG.add(Published([b"a"]))


def names(tmp_path: Path, *paths: str, hints: Hints | None = None) -> list[str]:
    found = list_files([str(tmp_path / path) for path in paths or ("",)], Storage(), hints)
    return [str(Path(info.path).relative_to(tmp_path)) for info in found]


def write(tmp_path: Path, **files: bytes) -> None:
    for name, data in files.items():
        path = tmp_path / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


# ---- what a file is


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize(
    ("name", "data", "form", "topic"),
    [
        ("orders.host.2024-01-01_00.log", b"a line\n", Format.LINES, "orders"),
        ("orders.log", LINE, Format.JSONL, "orders"),
        ("x", b'{"nsqd":"n","id":"i","timestamp":1,"body_base64":""}\n{}', Format.JSONL, "x"),
        ("x.json", b'{"timestamp":1,"value":3}\n', Format.LINES, "x"),
        ("x.log", b'{"timestamp":1,"id":"i","body":"%b"}\n' % (b"y" * 300_000), Format.JSONL, "x"),
        ("anything", framed([messages(2)]), Format.FRAMED, "anything"),
        ("orders.00000000000000000007.log", bytes(LOG.data), Format.TOPIC_LOG, "orders"),
        ("a.copy", bytes(LOG.data), Format.TOPIC_LOG, "a"),
        ("x.parquet", b"PAR1....PAR1", Format.PARQUET, "x"),
    ],
)
def test_a_file_is_recognised(
    tmp_path: Path, name: str, data: bytes, form: Format, topic: str, compression: Compression
) -> None:
    suffix = {Compression.GZIP: ".gz", Compression.ZSTD: ".zst"}.get(compression, "")
    path = tmp_path / (name + suffix)
    path.write_bytes(compressed(data, compression))
    (info,) = list_files([str(path)], Storage())
    assert (info.format, info.compression, info.topic) == (form, compression, topic)
    assert (info.path, info.size_bytes, info.modified_ns) == (
        str(path),
        path.stat().st_size,
        path.stat().st_mtime_ns,
    )


@pytest.mark.parametrize(
    ("name", "data", "form", "compression"),
    [
        ("x.framed", b"NSQx" + framed([messages(2)])[4:], Format.FRAMED, Compression.NONE),
        ("x", b"NSQx" + framed([messages(2)])[4:], Format.FRAMED, Compression.NONE),
        ("orders.00000000000000000007.log", b"\0" * 100, Format.TOPIC_LOG, Compression.NONE),
        ("x.parquet", b"PAR7", Format.PARQUET, Compression.NONE),
        ("x.log.gz", b"\x1f\x8c\x08", Format.LINES, Compression.GZIP),
        ("x.log", b"\x1f\x8b\x08 is how a message begins\n", Format.LINES, Compression.NONE),
    ],
)
def test_a_damaged_file_is_what_its_name_says(
    tmp_path: Path, name: str, data: bytes, form: Format, compression: Compression
) -> None:
    (tmp_path / name).write_bytes(data)
    (info,) = list_files([str(tmp_path / name)], Storage())
    assert (info.format, info.compression) == (form, compression)


def test_a_name_with_a_compression_of_what_compresses_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "orders.framed.zst"
    path.write_bytes(framed([messages(2)], zstd_level=3))
    (info,) = list_files([str(path)], Storage())
    assert (info.format, info.compression) == (Format.FRAMED, Compression.NONE)
    assert sum(chunk.count for split in plan_splits([info]) for chunk in read(split, Storage())) == 2


def test_hints_know_better(tmp_path: Path) -> None:
    write(tmp_path, **{"archive__topic=clicks__part-1.log": LINE})
    (info,) = list_files(
        [str(tmp_path)], Storage(), Hints(format="lines", topic_from_name=r"topic=(?P<topic>[^/]+)/")
    )
    assert (info.format, info.topic) == (Format.LINES, "clicks")
    (info,) = list_files([str(tmp_path)], Storage(), Hints(topic="other"))
    assert (info.format, info.topic) == (Format.JSONL, "other")


@pytest.mark.parametrize(
    ("hints", "text"),
    [
        (Hints(format="csv"), "'csv' is no format; there are lines, jsonl, framed, parquet, topic_log"),
        (Hints(topic_from_name="("), r"the expression for topics '\(' is no regular expression"),
        (Hints(topic_from_name="x"), r"has no group \(\?P<topic>"),
    ],
)
def test_hints_that_are_none(tmp_path: Path, hints: Hints, text: str) -> None:
    with pytest.raises(ArchiveError, match=text):
        list_files([str(tmp_path)], Storage(), hints)


# ---- which files there are


def test_paths_globs_and_directories(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{"a__x.log": b"1\n", "a__deep__y.log": b"2\n", "b__x.log": b"3\n", "b__odd[1].log": b"4\n"},
    )
    assert names(tmp_path) == ["a/deep/y.log", "a/x.log", "b/odd[1].log", "b/x.log"]
    assert names(tmp_path, "a") == ["a/deep/y.log", "a/x.log"]
    assert names(tmp_path, "*/x.*") == ["a/x.log", "b/x.log"]
    assert names(tmp_path, "{a,c}") == ["a/deep/y.log", "a/x.log"]
    assert names(tmp_path, "b/odd[1].log") == ["b/odd[1].log"]
    assert names(tmp_path, "b/x.log", "a/x.log", "*/x.log") == ["b/x.log", "a/x.log"]
    (info,) = list_files([(tmp_path / "a/x.log").as_uri()], Storage())
    assert info.path == str(tmp_path / "a/x.log")


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, x=b"1\n")
    monkeypatch.chdir(tmp_path)
    assert [info.path for info in list_files(["x", "."], Storage())] == [str(tmp_path / "x")]


@pytest.mark.parametrize(
    ("path", "topics", "text"),
    [
        ("nothing", (), "nothing is not there"),
        ("no*", (), r"no\* matches no file"),
        ("empty", (), "there are no files with messages in .*/empty$"),
        ("other", (), "no files with messages in .*/other; other files are there, such as README$"),
        ("", ("a", "b", "typo"), "there is no topic typo in .*; there are a, b, started$"),
        ("", ("a", "b", "started"), ""),
    ],
)
def test_what_is_not_there(tmp_path: Path, path: str, topics: tuple[str, ...], text: str) -> None:
    write(
        tmp_path, **{"a.host.log": b"1\n", "b.host.log.gz": b"1\n", "started.log": b"", "other__README": b"1"}
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArchiveError, match=text) if text else nullcontext():
        list_files([str(tmp_path / path)], Storage(), None, Requested(frozenset(topics) or None))


def test_what_holds_no_messages_is_passed_over(tmp_path: Path) -> None:
    write(
        tmp_path, _manifest=b"{}\n", _temporary__x=b"1\n", empty=b"", **{".hidden": b"1\n", ".dir__x": b"1\n"}
    )
    write(tmp_path, **{"nsqd.dat": b"{}", "orders:c.cursor": b"1", "orders.spare": b"1", "a.log.gone": b"1"})
    write(tmp_path, **{"a.5.damaged": b"1", "q.diskqueue.meta.dat": b"1", "q.diskqueue.000001.dat.bad": b"1"})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    write(
        tmp_path, **{"data.log": b"1\n", "README.txt": b"1\n", "old.log.bak": b"1\n", "sums__x.md5": b"1\n"}
    )
    assert names(tmp_path) == ["data.log"]
    listing = survey([str(tmp_path)], Storage())
    assert listing.skipped == [str(tmp_path / name) for name in ("README.txt", "old.log.bak", "sums/x.md5")]
    assert survey([str(tmp_path / "README.txt"), str(tmp_path / "data.log")], Storage()).skipped == []
    assert len(list_files([str(tmp_path)], Storage(), Hints(format="lines"))) > 4
    with pytest.raises(
        ArchiveError,
        match=r"\*.txt matches no file with the name of an archive \(format takes others\): README.txt",
    ):
        names(tmp_path, "*.txt")


@pytest.mark.parametrize("left_bytes", [0, 4])
def test_a_finished_file_that_was_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left_bytes: int
) -> None:
    """At the end of a line, nothing else says so. A file that is larger, or has another name, is as the user wants it."""
    finished_file(tmp_path, "whole.log", b"1\n2\n")
    path = finished_file(tmp_path, "cut.log", b"1\n2\n3\n", topic="clicks")
    os.truncate(path, left_bytes)
    what = f"cut.log is damaged at {left_bytes}: the end is missing, .* has noted 6 bytes; option skipDamaged"
    for given in (tmp_path, path):
        with pytest.raises(ArchiveError, match=what):
            list_files([str(given)], Storage())
    requested = Requested(frozenset(("orders",)))
    found = list_files([str(tmp_path)], Storage(), None, requested)
    assert [Path(info.path).name for info in found if info.may_hold(requested)] == ["whole.log"]
    assert caplog.text == ""
    found = list_files([str(tmp_path)], Storage(), skips_damaged=True)
    assert len(found) == 1 + bool(left_bytes)
    assert f"{path} is damaged at {left_bytes}" in caplog.text
    path.write_bytes(b"1\n2\n3\n4\n")
    list_files([str(tmp_path)], Storage())
    path.write_bytes(b"1\n")
    path.rename(tmp_path / "other.log")
    list_files([str(tmp_path)], Storage())


SET_ASIDE = (
    f"{REMOVED_PREFIX}20261130",
    f"{REMOVED_PREFIX}20261130.1",
    f"{REMOVED_PREFIX}20261130T100000Z",
    f"{ALONE_PREFIX}20261130T100000Z",
    "go-nsqd-20261130T100000Z-again",
)


def test_what_nsqd_sets_aside_in_its_data_path_is_passed_over(tmp_path: Path) -> None:
    """These are hard links of files that may be in the data path, or of another log. Named as the path, they are read."""
    directories = [*SET_ASIDE, directory_aside(tmp_path).name, FOLDER]
    write(tmp_path, **{"nsqd.dat": b"{}", "a.log": b"1\n"})
    for directory in directories:
        write(tmp_path / directory, **{"a.log": b"1\n"})
    assert names(tmp_path) == ["a.log"]
    assert names(tmp_path, "*") == ["a.log"]
    assert names(tmp_path, *directories) == [f"{directory}/a.log" for directory in directories]


def test_a_topic_has_the_name_of_what_nsqd_sets_aside(tmp_path: Path) -> None:
    write(tmp_path, **{f"{topic}__x.log": b"1\n" for topic in (FOLDER, "store-alone-eu", "go-nsqd-metrics")})
    assert len(names(tmp_path)) == 3


def test_a_topic_may_begin_with_an_underscore(tmp_path: Path) -> None:
    write(tmp_path, **{"_orders.host.log": b"1\n", "_orders.host.jsonl": b'{"body":"1"}\n'})
    write(
        tmp_path,
        **{
            "_manifest.jsonl": b"{}\n",
            "_nsq_manifest": b"{}\n",
            "_SUCCESS": b"1",
            "_temporary__x.log": b"1\n",
        },
    )
    write(tmp_path, **{"_clicks__host.log": b"1\n", "_delta_log__5.parquet": b"PAR1"})
    assert (
        names(tmp_path)
        == names(tmp_path, "_*")
        == ["_clicks/host.log", "_orders.host.jsonl", "_orders.host.log"]
    )


def test_a_file_in_progress_is_left_out_unless_it_is_named(tmp_path: Path) -> None:
    write(tmp_path, **{"x.log": b"1\n", "sub__y.log": b"2\n", "z.log": b"3\n"})
    claim = orjson.dumps({"work_name": "sub/y.log", "topic": "y"})
    write(tmp_path, **{".nsq_to_file.00ff.json": claim, ".nsq_to_file.00fe.json": b"not yet"})
    listing = survey([str(tmp_path)], Storage())
    assert [info.path for info in listing.files] == [str(tmp_path / "x.log"), str(tmp_path / "z.log")]
    assert listing.in_progress == [str(tmp_path / "sub/y.log")]
    assert names(tmp_path, "**/*.log") == ["x.log", "z.log"]
    assert names(tmp_path, "sub/y.log") == ["sub/y.log"]
    assert survey([str(tmp_path), str(tmp_path / "sub/y.log")], Storage()).in_progress == []


@pytest.mark.parametrize("pattern", ["[z-a].log", "x[z-a]/*"])
def test_a_pattern_that_is_none(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "[z-a]").mkdir()
    write(tmp_path, **{"[z-a]__x.log": b"1\n"})
    assert names(tmp_path, "[z-a]") == ["[z-a]/x.log"]
    with pytest.raises(ArchiveError, match=r"is no pattern of paths: bad character range"):
        names(tmp_path, pattern)


# ---- data directories


def test_the_last_log_of_a_topic_may_be_written_to(tmp_path: Path) -> None:
    for topic, first_seq in (("a", 0), ("a", 100), ("b.c", 5)):
        log = TopicLogFile(topic, first_seq)
        log.add(Published([b"x"]))
        log.write(tmp_path)
    found = {
        Path(info.path).name: (info.topic, info.is_live) for info in list_files([str(tmp_path)], Storage())
    }
    assert found == {
        "a.00000000000000000000.log": ("a", False),
        "a.00000000000000000100.log": ("a", True),
        "b.c.00000000000000000005.log": ("b.c", True),
    }
    (info,) = list_files([str(tmp_path / "a.00000000000000000000.log")], Storage())
    assert not info.is_live  # though it is the last of those that were asked for


@pytest.mark.parametrize("name", ["orders.diskqueue.000003.dat", "orders:ch.diskqueue.000003.dat.gz"])
def test_a_queue_of_go_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"any")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(ArchiveError, match=f"{name} is a queue of Go's nsqd: start our nsqd on a copy"):
            list_files([str(path)], Storage())


# ---- other file systems


def test_what_travels_between_processes() -> None:
    storage = pickle.loads(pickle.dumps(Storage({"fs.s3a.endpoint": "x"})))
    assert storage.options == {"fs.s3a.endpoint": "x"}
    error = pickle.loads(pickle.dumps(DamagedArchive("/a/b", 77, "torn")))
    assert (error.path, error.position, error.what) == ("/a/b", 77, "torn")
    assert str(error) == "/a/b is damaged at 77: torn; --skip-damaged reads what is left of it"
    assert str(pickle.loads(pickle.dumps(ArchiveError("/a is not there")))) == "/a is not there"


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"1\n")
    (split,) = plan_splits(list_files([str(tmp_path)], Storage()))
    (tmp_path / "x.log").unlink()
    with pytest.raises(ArchiveError, match=r"x\.log cannot be read: No such file or directory"):
        list(read(split, Storage()))


@pytest.mark.parametrize(
    "spelling", ["link/../out", "link/../out/", "./link/../out", "file:{here}/link/../out"]
)
def test_a_way_back_from_a_symbolic_link(
    tmp_path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`..` is the parent of where the link leads to, as for the system; not what remains of the text."""
    here = tmp_path / "here"
    for directory in (here, here / "out", tmp_path / "far" / "away", tmp_path / "far" / "out"):
        directory.mkdir(parents=True, exist_ok=True)
    (here / "link").symlink_to(tmp_path / "far" / "away")
    monkeypatch.chdir(here)
    assert local_path(spelling.format(here=here)) == str(tmp_path / "far" / "out")
    assert local_path("out/../link/x*") == str(here / "link" / "x*")
    assert local_path("link/x") == str(here / "link" / "x")


# ---- the manifest of nsq-to-file leaves files out before they are opened, and never one that may hold what is wanted

EARLY = Requested(start_ns=BASE_NS, end_ns=BASE_NS + 100)


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
    add_to_manifest(tmp_path, entry(tmp_path / "early.framed"))
    add_to_manifest(
        tmp_path, entry(tmp_path / "late.framed", first_timestamp=BASE_NS + 100, last_timestamp=BASE_NS + 199)
    )
    add_to_manifest(tmp_path, entry(tmp_path / "clicks.framed", "clicks"))
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


def read_from(directory: Path, requested: Requested, hints: Hints | None = None) -> int:
    splits = plan_splits(survey([str(directory)], Storage(), hints, requested).files, requested=requested)
    return sum(chunk.count for split in splits for chunk in read(split, Storage(), requested))


@pytest.mark.parametrize(
    ("requested", "names", "count"),
    [
        (EARLY, ["clicks", "early"], 200),
        (Requested(frozenset({"orders"})), ["early", "late"], 200),
        (Requested(topic_pattern="^cl"), ["clicks"], 100),
        (Requested(frozenset({"orders"}), start_ns=BASE_NS + 150), ["late"], 50),
        (Requested(frozenset({"none"})), [], 0),
        (Requested(), ["clicks", "early", "late"], 300),
    ],
)
def test_only_files_that_may_hold_something_are_opened(
    archive: Path, opened: list[str], requested: Requested, names: list[str], count: int
) -> None:
    assert read_from(archive, requested) == count
    assert sorted(set(opened) - {"_nsq_manifest", "_manifest.jsonl"}) == [f"{name}.framed" for name in names]
    assert opened.count("_nsq_manifest") == 1


def test_a_manifest_above_directories(archive: Path, opened: list[str]) -> None:
    directory = archive / "orders" / "2023"
    directory.mkdir(parents=True)
    path = (archive / "late.framed").rename(directory / "late.framed")
    add_to_manifest(archive, entry(path, path="orders/2023/late.framed", first_timestamp=BASE_NS + 100))
    assert read_from(path.parent, Requested(frozenset({"clicks"}))) == 0
    assert opened == ["_nsq_manifest"]


@pytest.mark.parametrize(
    "changes",
    [
        {"bytes": 100},  # others wrote behind it
        {"offset": 10},  # what is before is not described
        {"first_timestamp": None},
        {"damaged_bytes": 1},
        {"format": "newer"},
    ],
)
def test_a_file_that_the_manifest_does_not_describe_is_opened(archive: Path, changes: dict[str, Any]) -> None:
    path = archive / "late.framed"
    (archive / "_nsq_manifest").unlink()
    add_to_manifest(archive, entry(path, **{"last_timestamp": BASE_NS, **changes}))
    assert read_from(path, Requested(start_ns=BASE_NS + 100)) == 100


def test_parts_of_a_file_that_was_appended_to(archive: Path, opened: list[str]) -> None:
    path = archive / "late.framed"
    size = path.stat().st_size
    (archive / "_nsq_manifest").unlink()
    add_to_manifest(archive, entry(path, bytes=size - 50))
    assert read_from(path, Requested(frozenset({"clicks"}))) == 0
    assert "late.framed" in opened
    opened.clear()
    add_to_manifest(archive, entry(path, offset=size - 50, bytes=50))
    assert read_from(path, Requested(frozenset({"clicks"}))) == 0
    assert "late.framed" not in opened
    add_to_manifest(archive, entry(path, bytes=size - 50))  # a new file of the same name
    assert read_from(path, Requested(frozenset({"clicks"}))) == 0
    assert "late.framed" in opened


def test_the_manifest_of_an_earlier_version_is_read_too(archive: Path, opened: list[str]) -> None:
    path = archive / "_nsq_manifest"
    lines = path.read_bytes().splitlines(keepends=True)
    path.rename(archive / "_manifest.jsonl").write_bytes(b"".join(lines[:1]))
    path.write_bytes(b"".join(lines[1:]))
    with pytest.raises(ArchiveError, match=r"there is no topic none in .*; there are clicks, orders$"):
        list_files([str(archive)], Storage(), None, Requested(frozenset({"none"})))
    assert sorted(opened) == ["_manifest.jsonl", "_nsq_manifest"]


def test_a_manifest_that_is_damaged(archive: Path) -> None:
    path = archive / "_nsq_manifest"
    lines = path.read_bytes()
    odd = [{**orjson.loads(lines.splitlines()[0]), "path": value} for value in ([], {}, 7, None)]
    path.write_bytes(b"[]\n\xff\n" + b"".join(orjson.dumps(line) + b"\n" for line in odd) + lines[:-40])
    assert read_from(archive, EARLY) == 200
    assert [info.is_unwanted for info in list_files([str(archive)], Storage(), None, EARLY)] == [
        False,
        False,
        True,
    ]


# ---- times of files without timestamps: those in their names

HOUR_NS = 3600 * 10**9


def at(text: str) -> int:
    return parse_time(text, 0)


def bodies(directory: Path, requested: Requested | None = None, hints: Hints | None = None) -> list[bytes]:
    storage = Storage()
    splits = plan_splits(survey([str(directory)], storage, hints).files, requested=requested)
    return [
        body
        for split in splits
        for chunk in read(split, storage, requested)
        for body in chunk.bodies.to_pylist()
    ]


# ---- times


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("orders.host.2024-01-31_13.log", "2024-01-31T13:00:00Z", "2024-01-31T14:00:00Z"),
        ("orders.host-000001.2024-01-31_13.log.gz", "2024-01-31T13:00:00Z", "2024-01-31T14:00:00Z"),
        ("orders.2023-01-01.2024-01-31_13-000002.log", "2024-01-31T13:00:00Z", "2024-01-31T14:00:00Z"),
        ("orders.2024-01-31_1330.log", "2024-01-31T13:30:00Z", "2024-01-31T13:31:00Z"),
        ("orders.2024-01-31.log", "2024-01-31T00:00:00Z", "2024-02-01T00:00:00Z"),
    ],
)
def test_the_hour_in_a_name(name: str, first: str, last: str) -> None:
    assert time_in(name, zone_of("UTC")) == (at(first), at(last))


def test_the_hour_is_that_of_a_zone() -> None:
    summer = time_in("x.2024-07-01_13.log", zone_of("Europe/Rome"))
    assert summer == (at("2024-07-01T11:00:00Z"), at("2024-07-01T12:00:00Z"))
    for name in ("Rome", "+25:00", "UTC-99:99"):
        with pytest.raises(
            ArchiveError, match=f"'{re.escape(name)}' is no time zone; it has to be a name such as UTC"
        ):
            zone_of(name)


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("x.2024-10-27_02.log", "2024-10-27T00:00:00Z", "2024-10-27T02:00:00Z"),  # the hour comes twice
        ("x.2024-10-27_0230.log", "2024-10-27T00:30:00Z", "2024-10-27T01:31:00Z"),
        ("x.2024-10-27_03.log", "2024-10-27T02:00:00Z", "2024-10-27T03:00:00Z"),
        ("x.2024-10-27.log", "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z"),
        ("x.2024-03-31_02.log", "2024-03-31T01:00:00Z", "2024-03-31T02:00:00Z"),  # there is no such hour
    ],
)
def test_the_hours_of_a_change_of_clocks(name: str, first: str, last: str) -> None:
    assert time_in(name, zone_of("Europe/Rome")) == (at(first), at(last))


@pytest.mark.parametrize(
    "name",
    [
        *("orders.log", "orders.2024-13-01_00.log", "orders.12024-01-01.log", "2024-01.log"),
        *(
            "orders.9999-12-31_23.log",
            "orders.9999-12-31.log",
            "orders.0001-01-01_00.log",
            "orders.0000-00-00.log",
        ),
    ],
)
@pytest.mark.parametrize("zone", [zone_of("UTC"), zone_of("Europe/Rome"), None])
def test_a_name_without_a_time(name: str, zone: tzinfo | None) -> None:
    assert time_in(name, zone) is None


def test_files_of_lines_are_taken_by_the_hours_in_their_names(tmp_path: Path) -> None:
    for hour in range(10, 15):
        (tmp_path / f"orders.host.2024-01-31_{hour}.log").write_bytes(b"%d\n" % hour)
    noon = at("2024-01-31T12:00:00Z")
    in_utc = Hints(time_zone="UTC")
    assert bodies(tmp_path, Requested(start_ns=noon, end_ns=noon + HOUR_NS), in_utc) == [b"12"]
    assert bodies(tmp_path, Requested(start_ns=noon - 1, end_ns=noon + 1), in_utc) == [b"11", b"12"]
    assert bodies(tmp_path, Requested(start_ns=noon + HOUR_NS), in_utc) == [b"13", b"14"]
    in_rome = bodies(
        tmp_path, Requested(start_ns=noon, end_ns=noon + HOUR_NS), Hints(time_zone="Europe/Rome")
    )
    assert in_rome == [b"13"]


def test_a_time_of_files_that_tell_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "orders.log").write_bytes(b"1\n")
    assert bodies(tmp_path, Requested()) == [b"1"]
    with pytest.raises(
        ArchiveError, match=r"orders\.log: files of lines keep no times.* no hour such as 2024-01-31_13"
    ):
        bodies(tmp_path, Requested(start_ns=1))
    assert bodies(tmp_path, Requested(frozenset(("other",)), start_ns=1)) == []


def test_a_time_in_the_manifest_that_is_zero(tmp_path: Path) -> None:
    path = finished_file(tmp_path, "orders.log", b"1\n", first_timestamp=0, last_timestamp=0)
    assert bodies(tmp_path, Requested(end_ns=1)) == [b"1"]
    assert bodies(path, Requested(start_ns=1)) == []
