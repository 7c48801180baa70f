"""Damage of files that nsq-to-file finishes: it is reported with its place, and no byte goes that was not copied."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from nsq_tools.to_file import finishing
from nsq_tools.to_file.archive import Archive, taken
from nsq_tools.to_file.finishing import repair
from nsq_tools.to_file.output import ManifestEntry, left_behind
from nsqd_py.diskqueue.messages import record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader
from tests.support.written_files import bodies, leftovers, manifest
from tests.unit.to_file_fakes import FakeBatch
from tests.unit.tools.test_to_file_archive import ArchiveHarness, killed, store

ORIGINAL = "_nsq_damaged."


@pytest.fixture
def harness(tmp_path: Path) -> ArchiveHarness:
    return ArchiveHarness(tmp_path)


def three_records(harness: ArchiveHarness, form: str, codec: str = "none") -> Archive:
    """An archive whose file has the messages one, two and three in a record or member each."""
    archive = harness.archive(form, codec, work_dir=harness.work)
    for body in (b"one", b"two", b"three"):
        store(archive, FakeBatch(body * 20))
    return archive


def work_file(harness: ArchiveHarness) -> Path:
    (path,) = (path for path in harness.work.iterdir() if path.suffix != ".json")
    return path


def flip(path: Path, offset: int) -> bytes:
    """Flip a bit of the file, and return what it holds then."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    return bytes(data)


def record_ranges(path: Path) -> list[tuple[int, int]]:
    data = path.read_bytes()
    found = record_positions(data, FILE_HEADER_BYTES, FileHeader.decode(data).salt)
    return [(position, position + header.record_bytes) for position, header in found]


def finish_all(archive: Archive) -> list[ManifestEntry]:
    archive.close()
    return [file.finish() for file in taken(archive.finished)]


def repair_all(harness: ArchiveHarness) -> list[ManifestEntry]:
    files = [repair(claim) for claim in left_behind(harness.work, harness.output)]
    return [file.finish() for file in files if file is not None]


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_record_is_not_converted_and_its_file_is_kept(
    harness: ArchiveHarness, which: int, is_killed: bool
) -> None:
    archive = three_records(harness, "parquet")
    source = work_file(harness)
    start, end = record_ranges(source)[which]
    damaged = flip(source, start + 80)
    if is_killed:
        killed(archive)
        (entry,) = repair_all(harness)
    else:
        (entry,) = finish_all(archive)
    expected = [body * 20 for body in (b"one", b"two", b"three")]
    del expected[which]
    assert bodies(harness.output / entry.path) == expected
    assert (entry.damaged_ranges, entry.damaged_bytes) == ([[start, end]], end - start)
    assert entry.messages == 2
    original = harness.work / entry.original
    assert entry.original.startswith(ORIGINAL)
    assert original.read_bytes() == damaged
    (listed,) = manifest(harness.output)
    assert (listed["messages"], listed["damaged_bytes"], listed["original"]) == (
        2,
        end - start,
        entry.original,
    )
    assert leftovers(harness.root) == []
    assert os.listdir(harness.work) == [entry.original]
    assert repair_all(harness) == [], "the next start does not find it again"


def test_nothing_is_kept_of_a_file_that_is_whole(harness: ArchiveHarness) -> None:
    (entry,) = finish_all(three_records(harness, "parquet"))
    assert (entry.damaged_ranges, entry.damaged_bytes, entry.original, entry.messages) == ([], 0, "", 3)
    assert os.listdir(harness.work) == []


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("form", ["framed", "parquet"])
def test_a_damaged_header_costs_no_message(harness: ArchiveHarness, form: str, is_killed: bool) -> None:
    """The records have checksums of their own."""
    archive = three_records(harness, form)
    flip(work_file(harness), 24)
    if is_killed:
        killed(archive)
        (entry,) = repair_all(harness)
        assert entry.messages == 3
        assert entry.damaged_ranges == [[0, FILE_HEADER_BYTES]]
    else:
        (entry,) = finish_all(archive)
    if form == "parquet":
        assert len(bodies(harness.output / entry.path)) == 3
        assert (harness.work / entry.original).stat().st_size


@pytest.mark.parametrize("form", ["framed", "parquet"])
def test_a_file_that_cannot_be_read_at_all_is_not_removed(harness: ArchiveHarness, form: str) -> None:
    archive = three_records(harness, form)
    source = work_file(harness)
    killed(archive)
    garbage = b"\xa5" * source.stat().st_size
    source.write_bytes(garbage)
    (entry,) = repair_all(harness)
    assert (entry.messages, entry.damaged_ranges) == (0, [[0, len(garbage)]])
    kept = harness.work / entry.original if form == "parquet" else harness.output / entry.path
    assert kept.read_bytes() == garbage


@pytest.mark.parametrize(
    ("form", "codec"), [("framed", "none"), ("framed", "zstd"), ("lines", "gzip"), ("jsonl", "zstd")]
)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_repair_cuts_no_damage_off(harness: ArchiveHarness, form: str, codec: str, which: int) -> None:
    """What was synced was finished, so nsqd does not deliver it again; only an incomplete write was not."""
    archive = harness.archive(form, codec, work_dir=harness.work)
    ends = []
    for body in (b"one", b"two", b"three"):
        store(archive, FakeBatch(body * 20))
        ends.append(work_file(harness).stat().st_size)
    source = work_file(harness)
    killed(archive)
    damaged = flip(source, ends[which] - 6)  # the checksum of a member of gzip, the content of the others
    (entry,) = repair_all(harness)
    assert (harness.output / entry.path).read_bytes() == damaged
    assert (entry.repaired, entry.cut_bytes, entry.original) == (True, 0, "")
    start = ([FILE_HEADER_BYTES if form == "framed" else 0, *ends])[which]
    assert entry.damaged_ranges[0][0] == start
    assert entry.damaged_bytes > 0
    if form == "framed":
        assert (entry.messages, entry.damaged_ranges) == (2, [[start, ends[which]]])


@pytest.mark.parametrize(
    ("form", "codec"), [("framed", "none"), ("lines", "gzip"), ("jsonl", "zstd"), ("parquet", "none")]
)
def test_an_incomplete_write_is_no_damage(harness: ArchiveHarness, form: str, codec: str) -> None:
    archive = three_records(harness, form, codec)
    killed(archive)
    source = work_file(harness)
    whole = source.read_bytes()
    os.truncate(source, len(whole) - 1)
    (entry,) = repair_all(harness)
    assert entry.messages == 2
    assert entry.cut_bytes > 0
    assert (entry.damaged_ranges, entry.original) == ([], "")


@pytest.mark.parametrize("form", ["framed", "lines"])
def test_a_copy_that_differs_leaves_the_original(
    harness: ArchiveHarness, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was changed after it was synced: its checksum is that of the bytes that were written."""
    real_link = os.link

    def link(source: Path, target: Path) -> None:
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, "another file system", str(source))
        real_link(source, target)

    monkeypatch.setattr("nsq_tools.to_file.finishing.os.link", link)
    archive = three_records(harness, form)
    source = work_file(harness)
    damaged = flip(source, source.stat().st_size - 5)
    (entry,) = finish_all(archive)
    assert entry.damaged_bytes > 0
    assert (harness.work / entry.original).read_bytes() == damaged
    assert (harness.output / entry.path).read_bytes() == damaged


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "step",
    ["link_into", "Claim.update", "keep_original", "remove_other_names", "add_to_manifest", "Claim.release"],
)
def test_a_kill_between_any_two_steps_keeps_the_original(
    harness: ArchiveHarness, step: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = three_records(harness, "parquet")
    source = work_file(harness)
    damaged = flip(source, record_ranges(source)[1][0] + 80)
    archive.close()
    (file,) = taken(archive.finished)
    holder, _, name = step.rpartition(".")
    place_of_step = getattr(finishing, holder) if holder else finishing
    real = getattr(place_of_step, name)

    def interrupted(*arguments: object) -> None:
        if moment == "after":
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place_of_step, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.finish()
    file.claim.drop()
    repair_all(harness)
    (listed,) = manifest(harness.output)
    assert (harness.work / listed["original"]).read_bytes() == damaged
    assert parquet.read_table(harness.output / listed["path"]).num_rows == 2
    assert os.listdir(harness.work) == [listed["original"]]
    assert leftovers(harness.root) == []


def test_a_placed_file_that_was_taken_away_is_made_again_from_the_original(
    harness: ArchiveHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = three_records(harness, "parquet")
    source = work_file(harness)
    flip(source, record_ranges(source)[1][0] + 80)
    archive.close()
    (file,) = taken(archive.finished)
    with monkeypatch.context() as patch:
        patch.setattr(
            finishing, "add_to_manifest", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "no"))
        )
        with pytest.raises(OSError, match="no"):
            file.finish()
    (placed,) = harness.output.glob("*.parquet")
    placed.unlink()
    entry = file.finish()
    assert parquet.read_table(harness.output / entry.path).num_rows == 2
    assert (harness.work / entry.original).exists()
