"""What becomes of the queues that Go's nsqd left: logs and journals in a directory, without an nsqd."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nsqd_py.diskqueue.journal import Journal
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader
from nsqd_py.errors import StartError
from nsqd_py.go_import import topics as import_topics
from nsqd_py.go_import.go_files import BLOCK_BYTES
from nsqd_py.go_import.take_over import ImportFolder, take_over
from nsqd_py.runtime.logs import Log
from tests.support.go_directory import GoDirectory, aside_folder, go_messages, kept_log, kept_position, kept_queue, numbered

NOW_S = 1_700_000_000.0
ASIDE = "go-nsqd-20231114T221320Z"
LARGE = 100 << 20


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.info_lines: list[str] = []
        self.error_lines: list[str] = []

    def info(self, text: str, *args: object) -> None:
        self.info_lines.append(text % args)

    def error(self, text: str, *args: object) -> None:
        self.error_lines.append(text % args)


def imported(directory: Path, max_file_bytes: int = LARGE) -> Lines:
    lines: Any = Lines()
    log: Log = lines
    take_over(directory, max_file_bytes, log, NOW_S, lambda: None)
    found: Lines = lines
    return found


@pytest.fixture
def go(tmp_path: Path) -> GoDirectory:
    return GoDirectory(tmp_path / "data")


# ---- a tidy directory


def test_the_old_files_are_set_aside_with_what_was_done(go: GoDirectory) -> None:
    go.name_topics({"t": ["a"]})
    go.queue("t:a", numbered("a", 5))
    go.queue("t")
    names = go.names
    before = {name: (go.path / name).read_bytes() for name in names}
    imported(go.path)
    aside = aside_folder(go.path)
    assert aside.name == ASIDE
    assert go.names == []
    assert {name: (aside / name).read_bytes() for name in names} == before
    assert (aside / "nsqd.dat").read_bytes() == (go.path / "nsqd.dat").read_bytes()
    reported = json.loads((aside / "imported.json").read_bytes())
    assert reported["summary"]["messages"] == 5 and [old["name"] for old in reported["old"]] == names


def test_a_message_larger_than_a_piece_that_is_read(go: GoDirectory) -> None:
    messages = go_messages([b"small", b"x" * (2 * BLOCK_BYTES), b"small"])[::-1]
    go.queue("t:a", messages)
    assert imported(go.path).error_lines == []
    assert kept_queue(go.path, "t", "a") == messages
    last = max(go.path.glob("t.*.log"))
    assert FileHeader.decode(last.read_bytes()).used_id == messages[0].id


def test_without_nsqd_dat_the_queues_say_what_there_is(go: GoDirectory) -> None:
    go.queue("t:a", numbered("a", 3))
    go.queue("t:b")
    go.queue("u")
    imported(go.path)
    assert len(kept_queue(go.path, "t", "a")) == 3
    assert kept_queue(go.path, "t", "b") == []
    assert kept_log(go.path, "u") == {} and list(go.path.glob("u.*.log"))


def test_a_channel_that_nsqd_dat_misses_keeps_its_messages(go: GoDirectory) -> None:
    """Made just before the end, as a crash may have it."""
    go.name_topics({"t": []})
    go.queue("t:late", numbered("a", 3))
    go.queue("other:gone")
    assert "IMPORT: 1 topics, 1 channels, 3 messages" in imported(go.path).info_lines[2]
    assert len(kept_queue(go.path, "t", "late")) == 3
    assert not list(go.path.glob("other*"))


def test_a_lasting_channel_of_an_ephemeral_topic_is_no_damage(go: GoDirectory) -> None:
    """Go's nsqd writes its queue, and its next start knows neither of them."""
    go.name_topics({"t": ["a"]})
    go.queue("t:a", numbered("a", 2))
    go.queue("news#ephemeral:lasting", numbered("n", 3))
    go.queue("empty#ephemeral:lasting")
    lines = imported(go.path)
    assert lines.error_lines == []
    assert any("0 damaged places" in line for line in lines.info_lines)
    assert [line for line in lines.info_lines if "news" in line] == [
        f"IMPORT: news#ephemeral:lasting: not imported, since an ephemeral topic ends with its nsqd; kept in {ASIDE}"
    ]
    aside = aside_folder(go.path)
    assert json.loads((aside / "imported.json").read_bytes())["summary"]["damaged"] == []
    assert (aside / "news#ephemeral:lasting.diskqueue.000000.dat").exists()
    assert not list(go.path.glob("news*"))


# ---- killed, behind, ahead


@pytest.mark.parametrize("read", [(3, 0), (7, 50), (2, 10_000), (0, 10_000)], ids=str)
def test_a_position_behind_its_files_is_none(go: GoDirectory, read: tuple[int, int]) -> None:
    """As after a copy that has the position of another time than the files."""
    messages = numbered("a", 6)
    go.name_topics({"t": ["a"]})
    go.queue("t:a", messages[:2], messages[2:4], messages[4:])
    go.position("t:a", 0, read, read)
    lines = imported(go.path)
    assert kept_queue(go.path, "t", "a") == messages
    assert damaged(lines) == [
        "t:a.diskqueue.meta.dat: bytes 0 to 0: it does not say where the queue stood; all messages are taken"
    ]


def test_a_queue_that_is_read_to_its_end_has_no_messages(go: GoDirectory) -> None:
    messages = numbered("a", 2)
    size = sum(len(message.stored) for message in messages)
    go.name_topics({"t": ["a", "b"]})
    go.queue("t:a", messages, read=(0, size))
    go.position("t:b", 0, (4, 0), (4, 0))  # it has removed its last file
    lines = imported(go.path)
    assert any("2 channels, 0 messages" in line for line in lines.info_lines)
    assert (list(go.path.glob("t.*.log")), lines.error_lines) == ([], [])


def test_what_was_written_behind_the_position_comes(go: GoDirectory) -> None:
    """A killed nsqd knew less than it had written: more in the last file, and files behind it."""
    messages = numbered("a", 9)
    go.name_topics({"t": ["a"]})
    go.queue("t:a", messages[:3], messages[3:6], messages[6:])
    go.position("t:a", 1, (0, len(messages[0].stored)), (0, len(messages[0].stored)))
    lines = imported(go.path)
    assert kept_queue(go.path, "t", "a") == messages[1:]
    assert lines.error_lines == []


# ---- damage


def damaged(lines: Lines) -> list[str]:
    """Error lines without what is the same in all."""
    return [line.removeprefix("IMPORT: ").removesuffix(f"; kept in {ASIDE}") for line in lines.error_lines]


def test_every_truncation_leaves_all_whole_messages(go: GoDirectory) -> None:
    messages = numbered("a", 2)
    data = b"".join(message.stored for message in messages)
    for size in range(len(messages[0].stored) - 1, len(data)):
        directory = GoDirectory(go.path / str(size))
        directory.write("t:a", 0, data[:size])
        lines = imported(directory.path)
        whole = size // len(messages[0].stored)
        assert kept_queue(directory.path, "t", "a") == messages[:whole]
        assert len(lines.error_lines) == (size % len(messages[0].stored) > 0)


def test_a_wrong_byte_anywhere_costs_at_most_one_message(go: GoDirectory) -> None:
    messages = numbered("a", 3)
    data = b"".join(message.stored for message in messages)
    size = len(messages[0].stored)
    for place in range(size, 2 * size):
        directory = GoDirectory(go.path / str(place))
        wrong = bytearray(data)
        wrong[place] ^= 0xFF
        directory.write("t:a", 0, wrong)
        lines = imported(directory.path)
        right = [message for message in kept_queue(directory.path, "t", "a") if message in messages]
        assert len(right) >= 2, place
        assert len(right) == 2 or len(lines.error_lines) == 1


def test_a_file_that_cannot_be_read_is_kept_and_told(go: GoDirectory) -> None:
    """Reading a directory fails as reading from a bad disk does."""
    go.queue("t:a", numbered("a", 2), numbered("a", 2, 2), numbered("a", 2, 4))
    go.file("t:a", 1).unlink()
    go.file("t:a", 1).mkdir()
    lines = imported(go.path)
    assert kept_queue(go.path, "t", "a") == numbered("a", 2) + numbered("a", 2, 4)
    assert len(damaged(lines)) == 1 and "t:a.diskqueue.000001.dat: bytes 0 to " in lines.error_lines[0]
    assert (aside_folder(go.path) / "t:a.diskqueue.000001.dat").exists()


def test_files_that_are_missing_are_told(go: GoDirectory) -> None:
    go.name_topics({"t": ["a"]})
    go.queue("t:a", *[numbered("a", 2, 2 * number) for number in range(6)])
    for number in (1, 3, 4, 5):
        go.file("t:a", number).unlink()
    lines = imported(go.path)
    assert [message.body for message in kept_queue(go.path, "t", "a")] == [b"a0", b"a1", b"a4", b"a5"]
    assert damaged(lines) == [
        "t:a.diskqueue.000001.dat: bytes 0 to 0: it is missing",
        "t:a.diskqueue.000003.dat: bytes 0 to 0: it and 2 more are missing",
    ]


def test_of_a_file_that_go_gave_up_comes_what_it_never_saw(go: GoDirectory) -> None:
    """It had read up to the damage; one without any it had read to the end."""
    go.name_topics({"t": ["a"]})
    go.write("t:a", 3, b"".join(message.stored for message in numbered("later", 2, 20)))
    parts = [message.stored for message in numbered("a", 6)]
    read = b"".join(message.stored for message in numbered("read", 3, 10))
    (go.path / "t:a.diskqueue.000001.dat.bad").write_bytes(b"".join([*parts[:2], b"\x7f" + parts[2][1:], *parts[3:]]))
    (go.path / "t:a.diskqueue.000002.dat.bad").write_bytes(read)
    lines = imported(go.path)
    assert kept_queue(go.path, "t", "a") == numbered("a", 3, 3) + numbered("later", 2, 20)
    start = len(parts[0] + parts[1])
    assert damaged(lines) == [f"t:a.diskqueue.000001.dat.bad: bytes {start} to {start + len(parts[2])}: no message"]
    assert (aside_folder(go.path) / "t:a.diskqueue.000002.dat.bad").read_bytes() == read


# ---- back to Go's nsqd, and here again


def test_a_second_import_comes_behind_the_first(go: GoDirectory) -> None:
    first, second = go_messages([b"first", b"tried"], attempts=2), numbered("second", 4, 10)
    go.name_topics({"t": ["a", "b"]})
    go.queue("t:a", first)
    go.queue("t", numbered("own", 2, 5))
    imported(go.path)
    go.queue("t:b", second)
    go.queue("t:new", numbered("new", 2, 30))
    lines = imported(go.path)
    own = numbered("own", 2, 5)
    assert kept_queue(go.path, "t", "a") == first + own
    assert kept_queue(go.path, "t", "b") == own + second
    assert kept_queue(go.path, "t", "new") == numbered("new", 2, 30)
    assert lines.error_lines == []
    assert sorted(path.name for path in go.path.glob("go-nsqd-*")) == [ASIDE, f"{ASIDE}-again"]
    last = max(go.path.glob("t.*.log"))
    assert FileHeader.decode(last.read_bytes()[:FILE_HEADER_BYTES]).used_id == numbered("new", 2, 30)[-1].id


@pytest.mark.parametrize("has_more", [False, True])
def test_what_a_paused_topic_held_before(go: GoDirectory, has_more: bool) -> None:
    """It still does, unless its channels get something that is behind it."""
    go.name_topics({"t": ["a"]}, paused=["t"])
    go.queue("t", numbered("held", 3))
    imported(go.path)
    go.queue("t", numbered("more", 2, 3))
    if has_more:
        go.queue("t:a", numbered("a", 4, 10))
    imported(go.path)
    assert kept_position(go.path, "t").finished.floor == (7 if has_more else 0)


def test_the_first_channel_of_all_gets_what_was_held(go: GoDirectory) -> None:
    go.name_topics({"t": []})
    go.queue("t", numbered("held", 3))
    imported(go.path)
    go.name_topics({"t": ["a"]})
    go.queue("t:a", numbered("a", 4, 10))
    imported(go.path)
    assert kept_queue(go.path, "t", "a") == numbered("held", 3) + numbered("a", 4, 10)


def test_a_channel_that_was_deleted_begins_anew(go: GoDirectory) -> None:
    go.name_topics({"t": ["a", "b"]})
    go.queue("t:a", numbered("a", 3))
    imported(go.path)
    journal = Journal(go.path / "t:a.cursor")
    journal.load()
    journal.mark_deleted()
    go.queue("t:a", numbered("a", 2, 5))
    imported(go.path)
    assert kept_queue(go.path, "t", "a") == numbered("a", 2, 5)
    assert kept_queue(go.path, "t", "b") == []


def test_a_file_that_was_written_to_since_the_commit_is_imported_again(go: GoDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever went back to Go's nsqd between a kill and the next start loses nothing."""
    go.queue("t:a", numbered("a", 3))
    monkeypatch.setattr(ImportFolder, "finish", lambda folder, marker: None)
    imported(go.path)
    monkeypatch.undo()
    go.queue("t:a", numbered("a", 4))
    imported(go.path)
    assert kept_queue(go.path, "t", "a") == numbered("a", 3) + numbered("a", 4)
    assert go.names == []


# ---- what is durable, and when


def test_every_step_is_durable_before_the_next(go: GoDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut at any time leaves Go's files where they are, or all of ours."""
    go.name_topics({"t": ["a"]})
    go.queue("t:a", numbered("a", 3))
    root = str(go.path)
    steps: list[str] = []
    sync, rename = os.fsync, os.rename

    def noted_sync(descriptor: int) -> None:
        steps.append("sync " + os.readlink(f"/proc/self/fd/{descriptor}").replace(root, "data"))
        sync(descriptor)

    def noted_rename(source: Path, target: Path) -> None:
        steps.append(f"{source} to {Path(target).parent.name}".replace(root, "data"))
        rename(source, target)

    with mock.patch.multiple(os, fsync=noted_sync, rename=noted_rename):
        imported(go.path)
    written = ["t.00000000000000000000.log", "t.00000000000000000003.log", "t:a.cursor"]
    steps[1:4] = sorted(steps[1:4])
    assert steps == [
        "data/import/t:a.cursor.tmp to import",
        *(f"sync data/import/{name}" for name in written),
        "sync data/import",
        "sync data",
        "sync data/import/imported.json.tmp",
        "data/import/imported.json.tmp to import",
        "sync data/import",
        *(f"data/import/{name} to data" for name in written),
        "sync data",
        "sync data/import",
        f"sync data/{ASIDE}/nsqd.dat.tmp",
        f"data/{ASIDE}/nsqd.dat.tmp to {ASIDE}",
        f"sync data/{ASIDE}",
        *(f"data/t:a.diskqueue.{name}.dat to {ASIDE}" for name in ("000000", "meta")),
        f"sync data/{ASIDE}",
        "sync data",
        f"data/import/imported.json to {ASIDE}",
        f"sync data/{ASIDE}",
        "sync data/import",
        "sync data",
    ]


# ---- what goes wrong


def test_a_full_disk_leaves_everything_as_it_was(go: GoDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(writer: import_topics.LogWriter) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    go.name_topics({"t": ["a"]})
    go.queue("t:a", numbered("a", 3))
    before = sorted(go.path.iterdir())
    monkeypatch.setattr(import_topics.LogWriter, "open", refuse)
    with pytest.raises(StartError, match="No space left"):
        imported(go.path)
    assert sorted(go.path.iterdir()) == before


@pytest.mark.parametrize("name", ["holiday.jpg", "yesterday.log"])
def test_something_else_in_the_folder_is_not_deleted(go: GoDirectory, name: str) -> None:
    go.queue("t:a", numbered("a", 3))
    (go.path / "import").mkdir()
    (go.path / "import" / "t.00000000000000000000.log").touch()
    (go.path / "import" / name).touch()
    with pytest.raises(StartError, match=f"{name} is in the way"):
        imported(go.path)
    assert len(list((go.path / "import").iterdir())) == 2


def test_it_can_be_stopped_between_two_pieces(go: GoDirectory) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    lines: Any = Lines()
    go.queue("t:a", numbered("a", 3))
    before = sorted(go.path.iterdir())
    with pytest.raises(Stopped):
        take_over(go.path, LARGE, lines, NOW_S, stop)
    assert sorted(go.path.iterdir()) == before
