"""The files of one topic: when they begin and end, what a failing disk does, and what a kill leaves behind."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from nsq_spark.archive.names import time_in
from nsq_tools.to_file import finishing
from nsq_tools.to_file.archive import Archive, Plan, Rotation, taken
from nsq_tools.to_file.finishing import repair
from nsq_tools.to_file.formats import FORMATS
from nsq_tools.to_file.output import Claim, OutputFile, left_behind
from nsq_tools.to_file.program import PROGRAM
from nsq_tools.to_file.service import common_plan
from nsqd_py.settings.durations import SECOND_NS, parse_duration
from nsqd_py.stores.compression import CODECS
from tests.support.archives import BASE_NS
from tests.support.disk_calls import watched
from tests.support.nsqd_process import REPOSITORY
from tests.support.written_files import all_bodies, bodies, leftovers, manifest, message_files
from tests.unit.fakes import FakeLog
from tests.unit.to_file_fakes import FakeBatch, plan_of

KINDS = [(form.name, codec) for form in FORMATS.values() for codec in form.codecs]
EACH_KIND = pytest.mark.parametrize(("form", "codec"), KINDS)


@dataclass
class ArchiveHarness:
    """Archives on one directory, at a time that the test says."""

    root: Path
    now_ns: int = 0

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def output(self) -> Path:
        return self.root / "output"

    def plan(self, form: str = "lines", codec: str = "none", **changes: object) -> Plan:
        settings = {"datetime_format": "%S", **changes}
        return plan_of(self.output, "topic<REV>.<DATETIME>", form, codec, **settings)

    def archive(self, form: str = "lines", codec: str = "none", **changes: object) -> Archive:
        plan = self.plan(form, codec, **changes)
        plan.work_dir.mkdir(exist_ok=True)
        plan.output_dir.mkdir(exist_ok=True)
        return Archive(plan, FakeLog(), lambda text: None, lambda: self.now_ns)  # type: ignore[arg-type]

    def repair_all(self) -> list[str]:
        """The names of what was repaired."""
        files = [repair(claim) for claim in left_behind(*filter(Path.exists, (self.work, self.output)))]
        return [Path(file.finish().path).name for file in files if file is not None]


@pytest.fixture
def harness(tmp_path: Path) -> ArchiveHarness:
    return ArchiveHarness(tmp_path)


def store(archive: Archive, batch: FakeBatch, *, sync: bool = True) -> None:
    archive.waiting.extend([batch])
    archive.store(is_sync_due=sync)
    answer(archive)


def answer(archive: Archive) -> None:
    for batch in taken(archive.synced):
        batch.finish()


def close(archive: Archive) -> list[str]:
    archive.close()
    answer(archive)
    return [Path(file.finish().path).name for file in taken(archive.finished)]


def names(directory: Path) -> list[str]:
    return [path.name for path in message_files(directory)]


# --- from file to file


@EACH_KIND
@pytest.mark.parametrize("in_work_dir", [False, True])
def test_what_is_finished_is_in_a_file(
    harness: ArchiveHarness, form: str, codec: str, in_work_dir: bool
) -> None:
    archive = harness.archive(form, codec, work_dir=harness.work if in_work_dir else harness.output)
    first, second = FakeBatch(b"one", b"two"), FakeBatch(b"three")
    store(archive, first, sync=False)
    assert first.finished == []
    store(archive, second)
    assert (first.finished, second.finished) == (first.ids, second.ids)
    (name,) = close(archive)
    assert bodies(harness.output / name) == [b"one", b"two", b"three"]
    (entry,) = manifest(harness.output)
    assert (entry["path"], entry["messages"], entry["repaired"]) == (name, 3, False)
    assert (entry["first_timestamp"], entry["last_timestamp"]) == (1000, 1001)
    assert entry["bytes"] == (harness.output / name).stat().st_size
    assert leftovers(harness.root) == []
    assert not harness.work.exists() or names(harness.work) == []


def test_the_checksum_is_that_of_the_file(harness: ArchiveHarness) -> None:
    import google_crc32c

    archive = harness.archive(codec="gzip")
    store(archive, FakeBatch(b"one"))
    (name,) = close(archive)
    assert (
        manifest(harness.output)[0]["crc32c"]
        == f"{google_crc32c.value((harness.output / name).read_bytes()):08x}"
    )


@pytest.mark.parametrize(("form", "size_bytes"), [("lines", 10), ("framed", 8)])
def test_a_file_ends_with_the_message_that_goes_beyond_its_size(
    harness: ArchiveHarness, form: str, size_bytes: int
) -> None:
    """What is synced with the old file is finished."""
    archive = harness.archive(form, rotation=Rotation(size_bytes=size_bytes))
    batches = [FakeBatch(b"12345", b"1234"), FakeBatch(b"1", b"x" * 100, b"2", b"3"), FakeBatch(b"y")]
    archive.waiting.extend(batches)  # type: ignore[arg-type]
    archive.store(is_sync_due=False)
    answer(archive)
    assert [len(batch.finished) for batch in batches] == [2, 2, 0]
    close(archive)
    expected = [[b"12345", b"1234"], [b"1", b"x" * 100], [b"2", b"3", b"y"]]
    assert [bodies(path) for path in message_files(harness.output)] == expected


def test_a_file_ends_when_the_name_changes_or_after_a_time(harness: ArchiveHarness) -> None:
    archive = harness.archive(rotation=Rotation(interval_ns=30 * SECOND_NS), datetime_format="%M")
    for number in range(6):
        harness.now_ns = number * 20 * SECOND_NS
        store(archive, FakeBatch(b"%d" % number))
    close(archive)
    assert {path.name: bodies(path) for path in message_files(harness.output)} == {
        "topic-000000.00.log": [b"0", b"1"],
        "topic-000001.00.log": [b"2"],
        "topic-000000.01.log": [b"3", b"4"],
        "topic-000001.01.log": [b"5"],
    }


def test_a_file_ends_although_the_clock_was_set_back(harness: ArchiveHarness) -> None:
    """Else it would have no end until the clock is again where it was."""
    harness.now_ns = 3600 * SECOND_NS
    archive = harness.archive(rotation=Rotation(interval_ns=30 * SECOND_NS), datetime_format="")
    store(archive, FakeBatch(b"one"))
    harness.now_ns = 0
    archive.tick()
    assert [file.entry.messages for file in taken(archive.finished)] == [1]


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ([], "orders.web1.2023-11-14_17.log"),
        (["--datetime-utc"], "orders.web1.2023-11-14_22Z.log"),
        (["--datetime-utc", "--datetime-format=%Y-%m-%d"], "orders.web1.2023-11-14.log"),
        (["--datetime-format=%Y-%m-%d_%H%z"], "orders.web1.2023-11-14_17-0500.log"),
    ],
)
def test_the_hour_in_a_name_is_local_unless_utc_is_asked_for(
    flags: list[str], name: str, harness: ArchiveHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The readers of archives find the same time in each that has a zone."""
    options = PROGRAM.read(["--topic=orders", "--nsqd-tcp-address=127.0.0.1:4150", *flags])
    template = "orders.web1.<DATETIME>.log"
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        plan = harness.plan(
            template=template,
            datetime_format=common_plan(options).datetime_format,
            is_utc=options.datetime_utc,
        )
        assert plan.name(BASE_NS) == name
    finally:
        monkeypatch.undo()
        time.tzset()
    hour = BASE_NS - BASE_NS % (3600 * SECOND_NS)
    if "Z" in name or "-0500" in name:
        assert time_in(name, None) == (hour, hour + 3600 * SECOND_NS)


@pytest.mark.parametrize("skips_empty", [False, True])
def test_empty_files(harness: ArchiveHarness, skips_empty: bool) -> None:
    archive = harness.archive(codec="gzip", skips_empty=skips_empty)
    archive.tick()
    harness.now_ns += SECOND_NS
    archive.tick()
    close(archive)
    for file in taken(archive.finished):
        file.finish()
    assert [bodies(path) for path in message_files(harness.output)] == ([] if skips_empty else [[], []])


def test_no_file_takes_the_name_of_another(harness: ArchiveHarness) -> None:
    """Neither when it is opened, nor when it is moved; not even of one that came in between."""
    archive = harness.archive(work_dir=harness.work)
    (harness.output / "topic-000000.00.log").write_bytes(b"mine\n")
    store(archive, FakeBatch(b"one"))
    (harness.output / "topic-000001.00.log").write_bytes(b"mine too\n")
    assert close(archive) == ["topic-000002.00.log"]
    assert sorted(all_bodies(harness.output)) == [b"mine", b"mine too", b"one"]


def test_directories_in_names(harness: ArchiveHarness) -> None:
    archive = harness.archive(work_dir=harness.work, template="a/<DATETIME>/b<REV>.log")
    store(archive, FakeBatch(b"one"))
    assert close(archive) == ["b-000000.log"]
    assert bodies(harness.output / "a/00/b-000000.log") == [b"one"]
    assert manifest(harness.output)[0]["path"] == "a/00/b-000000.log"


# --- files that several append to


def test_a_file_that_is_there_is_appended_to(harness: ArchiveHarness) -> None:
    harness.output.mkdir()
    (harness.output / "topic.00.log").write_bytes(b"before\ntorn")
    archive = harness.archive(template="topic.<DATETIME>.log", is_shared=True)
    store(archive, FakeBatch(b"one"))
    close(archive)
    assert bodies(harness.output / "topic.00.log") == [b"before", b"torn", b"one"]
    entry = manifest(harness.output)[0]
    assert (entry["offset"], entry["bytes"], entry["messages"]) == (len(b"before\ntorn\n"), len(b"one\n"), 1)


def test_two_append_to_one_file(harness: ArchiveHarness) -> None:
    archives = [harness.archive(template="topic.<DATETIME>.log", is_shared=True) for _ in range(2)]
    for number in range(4):
        store(archives[number % 2], FakeBatch(b"%d" % number))
    for archive in archives:
        close(archive)
    assert bodies(harness.output / "topic.00.log") == [b"0", b"1", b"2", b"3"]
    assert [entry["crc32c"] for entry in manifest(harness.output)] == [None, None]


# --- a disk that takes nothing


class FullDisk:
    """Writes `room` bytes more, then nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self._write = os.write
        monkeypatch.setattr("nsq_tools.to_file.output.os.write", self.write)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        taken = min(self.room, len(data))
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= taken
        return self._write(descriptor, data[:taken])


@EACH_KIND
@pytest.mark.parametrize("room", [0, 3, 70])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_full_disk_loses_nothing_and_leaves_nothing_torn(
    harness: ArchiveHarness, form: str, codec: str, room: int, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch, 1 << 30)
    archive = harness.archive(form, codec)
    before = FakeBatch(*([] if is_new else [b"before"]))
    if not is_new:
        store(archive, before)
    unsynced, refused = FakeBatch(b"unsynced"), FakeBatch(os.urandom(100).replace(b"\n", b""))
    store(archive, unsynced, sync=False)
    disk.room = room
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            store(archive, refused)
            store(archive, FakeBatch())
        archive.synced.clear()
    assert (before.finished, unsynced.finished, refused.finished) == (before.ids, [], [])
    disk.room = 1 << 30
    archive.store(is_sync_due=True)
    answer(archive)
    assert (unsynced.finished, set(refused.finished)) == (unsynced.ids, set(refused.ids))
    (name,) = close(archive)
    assert bodies(harness.output / name) == [
        *before.bodies,
        b"unsynced",
        refused.bodies[0],
        refused.bodies[0],
    ]


def test_a_file_that_could_not_be_begun_uses_up_no_name(
    harness: ArchiveHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = harness.archive()
    with monkeypatch.context() as patch:
        FullDisk(patch, 0)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                store(archive, FakeBatch(b"one"))
    archive.store(is_sync_due=True)
    assert close(archive) == ["topic-000000.00.log"]


def test_after_a_sync_that_failed_all_is_written_again(
    harness: ArchiveHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system forgets what it could not write: another sync alone would say that all is well."""
    archive = harness.archive()
    store(archive, FakeBatch(b"synced"))
    batch = FakeBatch(b"one")
    written: list[int] = []

    def fail(descriptor: int) -> None:
        written.append(os.fstat(descriptor).st_size)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("nsq_tools.to_file.output.os.fdatasync", fail)
        with pytest.raises(OSError, match="Input/output"):
            store(archive, batch)
    assert (written, batch.finished) == ([11], [])
    assert (harness.output / "topic-000000.00.log").stat().st_size == len(b"synced\n")
    archive.store(is_sync_due=True)
    answer(archive)
    assert batch.finished == batch.ids
    assert bodies(harness.output / close(archive)[0]) == [b"synced", b"one"]


def test_what_cannot_be_written_can_be_given_back(
    harness: ArchiveHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    FullDisk(monkeypatch, 0)
    archive = harness.archive()
    batch = FakeBatch(b"one")
    with pytest.raises(OSError, match="No space left"):
        store(archive, batch)
    (waiting,) = taken(archive.waiting)
    waiting.requeue()
    assert (batch.requeued, list(archive.waiting)) == (batch.ids, [])


# --- what a kill leaves behind


def killed(archive: Archive) -> None:
    """As the system does it: descriptors are closed, locks end, files stay."""
    archive.abandon()


@EACH_KIND
@pytest.mark.parametrize("in_work_dir", [False, True])
def test_a_torn_file_is_repaired_and_finished(
    harness: ArchiveHarness, form: str, codec: str, in_work_dir: bool
) -> None:
    archive = harness.archive(form, codec, work_dir=harness.work if in_work_dir else harness.output)
    store(archive, FakeBatch(b"one", b"two"))
    killed(archive)
    directory = harness.work if in_work_dir else harness.output
    (torn,) = [path for path in directory.iterdir() if path.suffix != ".json"]
    interrupted = (
        CODECS[codec].compress(b"three", 3)[:8]
        if FORMATS[form].is_appendable and codec != "none"
        else b"NSQrtorn"
    )
    with torn.open("ab") as file:
        file.write(interrupted)
    (name,) = harness.repair_all()
    assert bodies(harness.output / name) == [b"one", b"two"]
    (entry,) = manifest(harness.output)
    assert (entry["repaired"], entry["cut_bytes"], entry["messages"]) == (True, 8, 2)
    assert leftovers(harness.root) == []
    assert harness.repair_all() == []


def test_a_file_that_is_being_written_is_left_alone(harness: ArchiveHarness) -> None:
    archive = harness.archive()
    store(archive, FakeBatch(b"one"))
    assert harness.repair_all() == []
    assert len(leftovers(harness.root)) == 1
    store(archive, FakeBatch(b"two"))
    close(archive)
    assert all_bodies(harness.output) == [b"one", b"two"]


def test_a_file_without_messages_goes(harness: ArchiveHarness) -> None:
    archive = harness.archive("framed")
    archive.tick()
    killed(archive)
    assert harness.repair_all() == []
    assert os.listdir(harness.output) == []


def test_a_claim_whose_file_another_process_writes_is_dropped(harness: ArchiveHarness) -> None:
    archive = harness.archive()
    store(archive, FakeBatch(b"one"))
    killed(archive)
    with (harness.output / "topic-000000.00.log").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert harness.repair_all() == []
    assert leftovers(harness.root) == []
    assert all_bodies(harness.output) == [b"one"]


def test_only_the_torn_line_of_a_shared_file_is_cut(harness: ArchiveHarness) -> None:
    harness.output.mkdir()
    path = harness.output / "topic.00.log"
    path.write_bytes(b"before\n")
    archive = harness.archive(template="topic.<DATETIME>.log", is_shared=True)
    store(archive, FakeBatch(b"one"))
    killed(archive)
    with path.open("ab") as file:
        file.write(b"torn")
    assert harness.repair_all() == ["topic.00.log"]
    assert bodies(path) == [b"before", b"one"]
    (entry,) = manifest(harness.output)
    assert (entry["offset"], entry["messages"], entry["bytes"]) == (7, 1, 4)


def test_a_kill_before_the_first_write_to_a_shared_file_takes_nothing_of_others(
    harness: ArchiveHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.output.mkdir()
    path = harness.output / "topic.00.log"
    path.write_bytes(b"of another program\n")
    archive = harness.archive(template="topic.<DATETIME>.log", is_shared=True)
    claims: list[Claim] = []
    real = Claim.make

    def make(*arguments: Any) -> Claim:
        claims.append(real(*arguments))
        return claims[-1]

    def killed_here(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("nsq_tools.to_file.archive.Claim.make", make)
        patch.setattr("nsq_tools.to_file.archive.OutputFile", killed_here)
        with pytest.raises(KeyboardInterrupt):
            store(archive, FakeBatch(b"one"))
    claims[0].drop()
    harness.repair_all()
    (entry,) = manifest(harness.output)
    assert (entry["offset"], entry["messages"]) == (len(b"of another program\n"), 0)
    assert leftovers(harness.root) == []


@pytest.mark.parametrize("in_work_dir", [False, True])
def test_a_power_cut_leaves_the_directories_of_a_file(harness: ArchiveHarness, in_work_dir: bool) -> None:
    """The name of a directory is on the disk when the one that contains it is synced."""
    work = harness.work if in_work_dir else harness.output
    archive = harness.archive("jsonl", "gzip", template="a/b/<DATETIME><REV>.jsonl.gz", work_dir=work)
    unsynced: list[str] = []

    def note(name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        is_new = name == "open" and bool(arguments[1] & os.O_CREAT) and not os.path.exists(path)
        result = real(*arguments)
        if is_new or name in ("mkdir", "rename"):
            unsynced.append(os.path.dirname(path))
        elif name == "fsync":
            unsynced[:] = [directory for directory in unsynced if directory != path]
        return result

    with watched(harness.root, note):
        store(archive, FakeBatch(b"one"))
        assert unsynced == []
        close(archive)
        assert unsynced == []
    assert all_bodies(harness.output) == [b"one"]


STEPS = ("link_into", "Claim.update", "add_to_manifest", "Claim.release")


@pytest.mark.parametrize("form", ["lines", "parquet"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_between_any_two_steps_of_finishing_costs_nothing(
    harness: ArchiveHarness, form: str, step: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = harness.archive(form, work_dir=harness.work)
    store(archive, FakeBatch(b"one"))
    archive.close()
    (file,) = taken(archive.finished)
    with monkeypatch.context() as patch:
        interrupt(patch, step, moment)
        with pytest.raises(KeyboardInterrupt):
            file.finish()
    file.claim.drop()
    harness.repair_all()
    assert all_bodies(harness.output) == [b"one"]
    assert len(manifest(harness.output)) == 1
    assert leftovers(harness.root) == []
    assert names(harness.work) == []


def interrupt(patch: pytest.MonkeyPatch, step: str, moment: str) -> None:
    holder, _, name = step.rpartition(".")
    place_of_step = getattr(finishing, holder) if holder else finishing
    real: Callable[..., object] = getattr(place_of_step, name)

    def interrupted(*arguments: object) -> None:
        if moment == "after":
            real(*arguments)
        raise KeyboardInterrupt

    patch.setattr(place_of_step, name, interrupted)


# --- one file


def test_a_write_that_cannot_even_be_cut_back_is_cut_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = OutputFile(tmp_path / "file")
    output.append(b"one\n")
    with monkeypatch.context() as patch:
        FullDisk(patch, 2)
        refused = OSError(errno.EIO, "no")
        patch.setattr("nsq_tools.to_file.output.os.ftruncate", lambda *_: (_ for _ in ()).throw(refused))
        with pytest.raises(OSError, match="no"):
            output.append(b"two\n")
    output.append(b"three\n")
    output.sync()
    assert (tmp_path / "file").read_bytes() == b"one\nthree\n"


# --- docs/small-files.md

DAY_ROW = re.compile(r"^\| (?:the default, )?`(--[^`]*)` \| (\d+) \|$", re.MULTILINE)


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("utc")
def test_the_page_says_how_many_files_a_day_each_setting_makes(harness: ArchiveHarness) -> None:
    rows = DAY_ROW.findall((REPOSITORY / "docs/small-files.md").read_text("utf-8"))
    assert len(rows) == 5
    for settings, count in rows:
        given = dict(word.removeprefix("--").split("=") for word in settings.split())
        rotation = Rotation(interval_ns=parse_duration(given.get("rotate-interval", "0s")))
        plan = harness.plan(datetime_format=given.get("datetime-format", "%Y-%m-%d_%H"))
        name, opened_ns, files = "", 0, 0
        # A day, from midnight on.
        for now_ns in range(1_700_006_400 * SECOND_NS, 1_700_092_800 * SECOND_NS, SECOND_NS):
            if not name or rotation.reason(name, plan.name(now_ns), 1, now_ns - opened_ns):
                name, opened_ns, files = plan.name(now_ns), now_ns, files + 1
        assert files == int(count), settings
