"""A standby's copy: only files of a data path are written, and messages that only it has are set aside."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from nsqd_py.broker.data_path import DataPath
from nsqd_py.diskqueue.files.log_file import log_file_name
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epoch, encode_epoch_file
from nsqd_py.diskqueue.journals.journal import CHANGE, SNAPSHOT, encode_entry
from nsqd_py.diskqueue.records import FileHeader, encode_record
from nsqd_py.feed.codec import BEGIN, COMMIT, PART, REMOVE, WRITE, FileMessage
from nsqd_py.feed.pieces import TopicListing
from nsqd_py.server.options import read_options
from nsqd_py.standby.copies.copy import Copy
from nsqd_py.standby.copies.data_path import BadFileName
from nsqd_py.standby.follower import Follower
from nsqd_py.standby.messages import BadStandbyMessage
from tests.unit.fakes import FakeLog, FakeThreadPool, make_batch

CREATED = (Epoch(100, 0),)
PROMOTED = (*CREATED, Epoch(200, 2))
LOG = log_file_name("t", 0)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../t.cursor",
        "a/t.cursor",
        f"../{LOG}",
        f"a/{LOG}",
        "nsqd.standby",
        "nsqd.stop",
        "t.log",
        "t.spare",
        "t:../../c.cursor",
        "t:c#ephemeral.cursor",
        "t#ephemeral.cursor",
        ":c.cursor",
        "t\0.cursor",
    ],
)
def test_no_other_file_is_written(name: str, tmp_path: Path) -> None:
    copy = Copy(tmp_path, "now", was_primary=False)
    for kind in (WRITE, BEGIN, REMOVE):
        with pytest.raises(BadFileName):
            copy.apply(FileMessage(kind, name, 0, memoryview(b"x")))
    assert list(tmp_path.iterdir()) == []


def test_no_other_topic_is_listed(tmp_path: Path) -> None:
    with pytest.raises(BadFileName):
        Copy(tmp_path, "now", was_primary=False).list_topic(TopicListing("../t", CREATED))


def log_bytes(*bodies: bytes, salt: int = 7) -> bytes:
    records = [encode_record(make_batch(seq, body), salt) for seq, body in enumerate(bodies)]
    return FileHeader(salt, 0, 0).encode() + b"".join(records)


class Copied(Copy):
    """Takes messages in few words."""

    def take(self, kind: int, offset: int = 0, data: bytes = b"", name: str = LOG) -> None:
        self.apply(FileMessage(kind, name, offset, memoryview(data)))


def copy_of(directory: Path, content: bytes, *, was_primary: bool = False) -> Copied:
    """The copy in a directory with one log file, of the epoch in which it was created."""
    (directory / LOG).write_bytes(content)
    (directory / EPOCHS_FILE).write_bytes(encode_epoch_file(0, {"t": CREATED}))
    copy = Copied(directory, "now", was_primary=was_primary)
    copy.read()
    return copy


ONE, TWO = log_bytes(b"one"), log_bytes(b"one", b"two")


def test_a_torn_end_is_not_offered(tmp_path: Path) -> None:
    copy = copy_of(tmp_path, TWO + b"NSQr torn")
    assert copy.offer("").logs["t"].files[LOG].end_offset == len(TWO)


def test_a_new_version_takes_the_place_of_the_file_at_its_commit(tmp_path: Path) -> None:
    after = log_bytes(b"one", salt=8)
    copy = copy_of(tmp_path, TWO)
    copy.take(BEGIN)
    copy.take(PART, 0, after)
    assert (tmp_path / LOG).read_bytes() == TWO
    copy.take(COMMIT)
    assert (tmp_path / LOG).read_bytes() == after
    assert copy.offer("").logs["t"].files[LOG].salt == 8
    copy.close()


def test_a_file_grows_in_its_new_version(tmp_path: Path) -> None:
    after = log_bytes(b"one", salt=8)
    copy = copy_of(tmp_path, TWO)
    copy.take(WRITE, len(TWO), b"three")
    copy.take(WRITE, len(TWO) + 5, b"four")
    copy.take(BEGIN)
    copy.take(PART, 0, after)
    copy.take(COMMIT)
    copy.take(WRITE, len(after), b"five")
    copy.take(WRITE, len(after) + 4, b"six")
    assert (tmp_path / LOG).read_bytes() == after + b"fivesix"
    with pytest.raises(BadStandbyMessage, match="does not continue"):
        copy.take(WRITE, len(after), b"x")
    copy.close()


@pytest.mark.parametrize("was_primary", [False, True])
def test_what_came_after_the_promotion_of_another_is_set_aside(tmp_path: Path, was_primary: bool) -> None:
    content = log_bytes(b"both", b"both too", b"alone", b"alone too")
    copy = copy_of(tmp_path, content, was_primary=was_primary)
    copy.list_topic(TopicListing("t", PROMOTED, 5, {LOG: 0}))
    assert copy.departures.alone_count == 2
    assert (tmp_path / "standby-alone-now" / LOG).read_bytes() == content


def test_what_the_primary_lost_in_a_power_cut_is_set_aside(tmp_path: Path) -> None:
    copy = copy_of(tmp_path, log_bytes(b"both", b"only here"))
    copy.list_topic(TopicListing("t", CREATED, 1, {LOG: 0}))
    assert copy.departures.alone_count == 1


def test_files_that_the_primary_has_dropped_are_dropped(tmp_path: Path) -> None:
    copy = copy_of(tmp_path, TWO)
    copy.list_topic(TopicListing("t", CREATED, 2, {log_file_name("t", 2): 0}))
    assert copy.departures.alone_count == 0
    assert not (tmp_path / LOG).exists()


@pytest.mark.parametrize(("was_primary", "count"), [(False, 0), (True, 2)])
def test_of_a_topic_that_the_primary_has_not_an_old_primary_keeps_all(
    tmp_path: Path, was_primary: bool, count: int
) -> None:
    copy = copy_of(tmp_path, TWO, was_primary=was_primary)
    copy.end_list()
    assert copy.departures.alone_count == count
    assert not (tmp_path / LOG).exists()
    assert (tmp_path / "standby-alone-now" / LOG).exists() is bool(count)


def test_what_was_removed_is_kept_for_a_week(tmp_path: Path) -> None:
    """Directories that are older go when the next one is made; what this nsqd had alone stays."""
    for name in (
        "standby-removed-20010101",
        "standby-removed-20010101T000000Z",
        "standby-alone-20010101T000000Z",
    ):
        (tmp_path / name).mkdir()
    copy = copy_of(tmp_path, TWO)
    copy.take(REMOVE)
    assert copy.departures.end_round(1.0) == copy.departures.alone_count == 0
    assert copy.departures.set_aside_count == 2
    assert (
        copy.departures.end_round(4.0) == copy.departures.alone_count == copy.departures.set_aside_count == 2
    )
    (kept,) = tmp_path.glob(f"standby-removed-*/{LOG}")
    assert {path.name for path in tmp_path.glob("standby-*")} == {
        "standby-alone-20010101T000000Z",
        kept.parent.name,
    }


@pytest.mark.parametrize("finished", [0, 1, 2])
@pytest.mark.parametrize("at", ["in the round", "a moment later"])
def test_what_is_finished_is_not_set_aside(tmp_path: Path, finished: int, at: str) -> None:
    """The cursor that says so may come a little after the removal."""
    copy, cursor = copy_of(tmp_path, TWO), tmp_path / "t:c.cursor"
    cursor.write_bytes(encode_entry(SNAPSHOT, 0, [], []))
    copy.read()
    copy.take(REMOVE)
    if at == "a moment later":
        assert copy.departures.end_round(1.0) == 0
    copy.take(WRITE, cursor.stat().st_size, encode_entry(CHANGE, finished, [], []), cursor.name)
    assert copy.departures.set_aside_count == 2
    assert [copy.departures.end_round(2.0), copy.departures.end_round(5.0)] == [0, 2 - finished]
    assert copy.departures.set_aside_count == 2 - finished
    assert bool(list(tmp_path.glob(f"standby-removed-*/{LOG}"))) is (finished < 2)


@pytest.mark.parametrize("offset", [1, 1 << 20, 1 << 60])
@pytest.mark.parametrize("name", [LOG, "t:c.cursor", "nsqd.dat"])
def test_a_file_only_grows_at_its_end(tmp_path: Path, name: str, offset: int) -> None:
    copy = copy_of(tmp_path, ONE)
    with pytest.raises(BadStandbyMessage):
        copy.take(WRITE, offset, b"x", name)
    copy.take(BEGIN, name=name)
    with pytest.raises(BadStandbyMessage):
        copy.take(PART, offset, b"x", name)
    copy.close()
    assert (tmp_path / LOG).read_bytes() == ONE


@pytest.mark.parametrize("kind", [PART, COMMIT])
def test_a_new_version_must_begin(tmp_path: Path, kind: int) -> None:
    with pytest.raises(BadStandbyMessage):
        Copy(tmp_path, "now", was_primary=False).apply(FileMessage(kind, LOG, 0, memoryview(b"x")))


def test_what_a_failed_sync_was_to_cover_is_written_again_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was forgotten, so that the next round was acknowledged as if it were on the disk."""
    copy = Copy(tmp_path, "now", was_primary=False)
    copy.list_topic(TopicListing("t", CREATED))
    copy.apply(FileMessage(WRITE, LOG, 0, memoryview(TWO)))
    disk = Mock(**{"write.side_effect": os.pwrite, "sync.side_effect": OSError("bad disk")})
    monkeypatch.setattr(os, "pwrite", disk.write)
    monkeypatch.setattr(os, "fdatasync", disk.sync)
    follower = Follower.__new__(Follower)
    follower._copy, follower._threadpool, follower._directory = copy, FakeThreadPool(), tmp_path
    follower._options = read_options([])
    follower._place = DataPath(tmp_path, FakeLog())
    for _ in range(2):
        with pytest.raises(OSError, match="bad disk"):
            follower._sync()
    disk.reset_mock()
    disk.sync.side_effect = None
    follower._sync()
    assert [name for name, _, _ in disk.mock_calls] == ["write", "sync"]
    assert bytes(disk.write.call_args.args[1]) == TWO
    disk.reset_mock()
    follower._sync()
    assert disk.mock_calls == [], "once"
