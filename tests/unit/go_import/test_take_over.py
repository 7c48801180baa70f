"""What becomes of the queues that Go's nsqd left: logs and journals in a directory, without an nsqd."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nsqd_py.diskqueue.journals.journal import Journal
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader
from nsqd_py.errors import StartError
from nsqd_py.go_import import topics as import_topics
from nsqd_py.go_import.go_files import BLOCK_BYTES
from nsqd_py.go_import.take_over import ImportFolder, take_over
from tests.support.go_directory import (
    GoDirectory,
    GoMessage,
    aside_folder,
    go_messages,
    kept_log,
    kept_position,
    kept_queue,
    numbered,
)
from tests.unit.fakes import FakeLog, refuse

NOW_S = 1_700_000_000.0
ASIDE = "go-nsqd-20231114T221320Z"
LARGE = 100 << 20


class Go(GoDirectory):
    """Queues of Go's nsqd, and what becomes of them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.log: Any = FakeLog()

    def name(self, *names: str, paused: Sequence[str] = ()) -> None:
        """Topics, and channels as `topic:channel`, that are in `nsqd.dat`."""
        topics = {}
        for topic, colon, channel in (name.partition(":") for name in names):
            topics.setdefault(topic, []).extend([channel] if colon else [])
        self.name_topics(topics, paused)

    def take_over(self, check: Callable[[], None] = lambda: None) -> None:
        take_over(self.path, LARGE, self.log, NOW_S, check)

    def kept(self, name: str) -> list[GoMessage]:
        return kept_queue(self.path, *name.split(":"))

    @property
    def aside(self) -> Path:
        return aside_folder(self.path)

    @property
    def damaged(self) -> list[str]:
        """Error lines without what is the same in all."""
        return [line.removeprefix("IMPORT: ").removesuffix(f"; kept in {ASIDE}") for line in self.log.errors]


def stored(*messages: GoMessage) -> bytes:
    return b"".join(message.stored for message in messages)


@pytest.fixture
def go(tmp_path: Path) -> Go:
    return Go(tmp_path / "data")


# ---- a tidy directory


def test_the_old_files_are_set_aside_with_what_was_done(go: Go) -> None:
    go.name("t:a")
    go.queue("t:a", numbered("a", 5))
    go.queue("t")
    names = go.names
    before = {name: (go.path / name).read_bytes() for name in names}
    go.take_over()
    aside = go.aside
    assert aside.name == ASIDE
    assert go.names == []
    assert {name: (aside / name).read_bytes() for name in names} == before
    assert (aside / "nsqd.dat").read_bytes() == (go.path / "nsqd.dat").read_bytes()
    reported = json.loads((aside / "imported.json").read_bytes())
    assert reported["summary"]["messages"] == 5 and [old["name"] for old in reported["old"]] == names


def test_a_message_larger_than_a_piece_that_is_read(go: Go) -> None:
    messages = go_messages([b"small", b"x" * (2 * BLOCK_BYTES), b"small"])[::-1]
    go.queue("t:a", messages)
    go.take_over()
    assert go.log.errors == []
    assert go.kept("t:a") == messages
    last = max(go.path.glob("t.*.log"))
    assert FileHeader.decode(last.read_bytes()).used_id == messages[0].id


def test_without_nsqd_dat_the_queues_say_what_there_is(go: Go) -> None:
    go.queue("t:a", numbered("a", 3))
    go.queue("t:b")
    go.queue("u")
    go.take_over()
    assert len(go.kept("t:a")) == 3
    assert go.kept("t:b") == []
    assert kept_log(go.path, "u") == {} and list(go.path.glob("u.*.log"))


def test_a_channel_that_nsqd_dat_misses_keeps_its_messages(go: Go) -> None:
    """Made just before the end, as a crash may have it."""
    go.name("t")
    go.queue("t:late", numbered("a", 3))
    go.queue("other:gone")
    go.take_over()
    assert "IMPORT: 1 topics, 1 channels, 3 messages" in go.log.infos[2]
    assert len(go.kept("t:late")) == 3
    assert not list(go.path.glob("other*"))


def test_a_lasting_channel_of_an_ephemeral_topic_is_no_damage(go: Go) -> None:
    """Go's nsqd writes its queue, and its next start knows neither of them."""
    go.name("t:a")
    go.queue("t:a", numbered("a", 2))
    go.queue("news#ephemeral:lasting", numbered("n", 3))
    go.queue("empty#ephemeral:lasting")
    go.take_over()
    assert go.log.errors == []
    assert any("0 damaged places" in line for line in go.log.infos)
    assert [line for line in go.log.infos if "news" in line] == [
        f"IMPORT: news#ephemeral:lasting: not imported, since an ephemeral topic ends with its nsqd; kept in {ASIDE}"
    ]
    aside = go.aside
    assert json.loads((aside / "imported.json").read_bytes())["summary"]["damaged"] == []
    assert (aside / "news#ephemeral:lasting.diskqueue.000000.dat").exists()
    assert not list(go.path.glob("news*"))


# ---- killed, behind, ahead


@pytest.mark.parametrize("read", [(3, 0), (7, 50), (2, 10_000), (0, 10_000)], ids=str)
def test_a_position_behind_its_files_is_none(go: Go, read: tuple[int, int]) -> None:
    """As after a copy that has the position of another time than the files."""
    messages = numbered("a", 6)
    go.name("t:a")
    go.queue("t:a", messages[:2], messages[2:4], messages[4:])
    go.position("t:a", 0, read, read)
    go.take_over()
    assert go.kept("t:a") == messages
    assert go.damaged == [
        "t:a.diskqueue.meta.dat: bytes 0 to 0: it does not say where the queue stood; all messages are taken"
    ]


def test_a_queue_that_is_read_to_its_end_has_no_messages(go: Go) -> None:
    messages = numbered("a", 2)
    size = len(stored(*messages))
    go.name("t:a", "t:b")
    go.queue("t:a", messages, read=(0, size))
    go.position("t:b", 0, (4, 0), (4, 0))  # it has removed its last file
    go.take_over()
    assert any("2 channels, 0 messages" in line for line in go.log.infos)
    assert (list(go.path.glob("t.*.log")), go.log.errors) == ([], [])


def test_what_was_written_behind_the_position_comes(go: Go) -> None:
    """A killed nsqd knew less than it had written: more in the last file, and files behind it."""
    messages = numbered("a", 9)
    go.name("t:a")
    go.queue("t:a", messages[:3], messages[3:6], messages[6:])
    go.position("t:a", 1, (0, len(messages[0].stored)), (0, len(messages[0].stored)))
    go.take_over()
    assert go.kept("t:a") == messages[1:]
    assert go.log.errors == []


# ---- damage


def test_every_truncation_leaves_all_whole_messages(go: Go) -> None:
    messages = numbered("a", 2)
    data = stored(*messages)
    for size in range(len(messages[0].stored) - 1, len(data)):
        directory = Go(go.path / str(size))
        directory.write("t:a", 0, data[:size])
        directory.take_over()
        whole = size // len(messages[0].stored)
        assert directory.kept("t:a") == messages[:whole]
        assert len(directory.log.errors) == (size % len(messages[0].stored) > 0)


def test_a_wrong_byte_anywhere_costs_at_most_one_message(go: Go) -> None:
    messages = numbered("a", 3)
    data = stored(*messages)
    size = len(messages[0].stored)
    for place in range(size, 2 * size):
        directory = Go(go.path / str(place))
        wrong = bytearray(data)
        wrong[place] ^= 0xFF
        directory.write("t:a", 0, wrong)
        directory.take_over()
        right = [message for message in directory.kept("t:a") if message in messages]
        assert len(right) >= 2, place
        assert len(right) == 2 or len(directory.log.errors) == 1


def test_a_file_that_cannot_be_read_is_kept_and_told(go: Go) -> None:
    """Reading a directory fails as reading from a bad disk does."""
    go.queue("t:a", numbered("a", 2), numbered("a", 2, 2), numbered("a", 2, 4))
    go.file("t:a", 1).unlink()
    go.file("t:a", 1).mkdir()
    go.take_over()
    assert go.kept("t:a") == numbered("a", 2) + numbered("a", 2, 4)
    assert len(go.damaged) == 1 and "t:a.diskqueue.000001.dat: bytes 0 to " in go.log.errors[0]
    assert (go.aside / "t:a.diskqueue.000001.dat").exists()


def test_files_that_are_missing_are_told(go: Go) -> None:
    go.name("t:a")
    go.queue("t:a", *[numbered("a", 2, 2 * number) for number in range(6)])
    for number in (1, 3, 4, 5):
        go.file("t:a", number).unlink()
    go.take_over()
    assert [message.body for message in go.kept("t:a")] == [b"a0", b"a1", b"a4", b"a5"]
    assert go.damaged == [
        "t:a.diskqueue.000001.dat: bytes 0 to 0: it is missing",
        "t:a.diskqueue.000003.dat: bytes 0 to 0: it and 2 more are missing",
    ]


def test_of_a_file_that_go_gave_up_comes_what_it_never_saw(go: Go) -> None:
    """It had read up to the damage; one without any it had read to the end."""
    go.name("t:a")
    go.write("t:a", 3, stored(*numbered("later", 2, 20)))
    parts = [message.stored for message in numbered("a", 6)]
    read = stored(*numbered("read", 3, 10))
    (go.path / "t:a.diskqueue.000001.dat.bad").write_bytes(
        b"".join([*parts[:2], b"\x7f" + parts[2][1:], *parts[3:]])
    )
    (go.path / "t:a.diskqueue.000002.dat.bad").write_bytes(read)
    go.take_over()
    assert go.kept("t:a") == numbered("a", 3, 3) + numbered("later", 2, 20)
    start = len(parts[0] + parts[1])
    assert go.damaged == [
        f"t:a.diskqueue.000001.dat.bad: bytes {start} to {start + len(parts[2])}: no message"
    ]
    assert (go.aside / "t:a.diskqueue.000002.dat.bad").read_bytes() == read


# ---- back to Go's nsqd, and here again


def test_a_second_import_comes_behind_the_first(go: Go) -> None:
    first, second = go_messages([b"first", b"tried"], attempts=2), numbered("second", 4, 10)
    go.name("t:a", "t:b")
    go.queue("t:a", first)
    go.queue("t", numbered("own", 2, 5))
    go.take_over()
    go.queue("t:b", second)
    go.queue("t:new", numbered("new", 2, 30))
    go.take_over()
    own = numbered("own", 2, 5)
    assert go.kept("t:a") == first + own
    assert go.kept("t:b") == own + second
    assert go.kept("t:new") == numbered("new", 2, 30)
    assert go.log.errors == []
    assert sorted(path.name for path in go.path.glob("go-nsqd-*")) == [ASIDE, f"{ASIDE}-again"]
    last = max(go.path.glob("t.*.log"))
    assert FileHeader.decode(last.read_bytes()[:FILE_HEADER_BYTES]).used_id == numbered("new", 2, 30)[-1].id


@pytest.mark.parametrize("has_more", [False, True])
def test_what_a_paused_topic_held_before(go: Go, has_more: bool) -> None:
    """It still does, unless its channels get something that is behind it."""
    go.name("t:a", paused=["t"])
    go.queue("t", numbered("held", 3))
    go.take_over()
    go.queue("t", numbered("more", 2, 3))
    if has_more:
        go.queue("t:a", numbered("a", 4, 10))
    go.take_over()
    assert kept_position(go.path, "t").finished.floor == (7 if has_more else 0)


def test_the_first_channel_of_all_gets_what_was_held(go: Go) -> None:
    go.name("t")
    go.queue("t", numbered("held", 3))
    go.take_over()
    go.name("t:a")
    go.queue("t:a", numbered("a", 4, 10))
    go.take_over()
    assert go.kept("t:a") == numbered("held", 3) + numbered("a", 4, 10)


def test_a_channel_that_was_deleted_begins_anew(go: Go) -> None:
    go.name("t:a", "t:b")
    go.queue("t:a", numbered("a", 3))
    go.take_over()
    journal = Journal(go.path / "t:a.cursor")
    journal.load()
    journal.mark_deleted()
    go.queue("t:a", numbered("a", 2, 5))
    go.take_over()
    assert go.kept("t:a") == numbered("a", 2, 5)
    assert go.kept("t:b") == []


def test_a_file_that_was_written_to_since_the_commit_is_imported_again(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever went back to Go's nsqd between a kill and the next start loses nothing."""
    go.queue("t:a", numbered("a", 3))
    monkeypatch.setattr(ImportFolder, "finish", lambda folder, marker: None)
    go.take_over()
    monkeypatch.undo()
    go.queue("t:a", numbered("a", 4))
    go.take_over()
    assert go.kept("t:a") == numbered("a", 3) + numbered("a", 4)
    assert go.names == []


# ---- what is durable, and when


def test_every_step_is_durable_before_the_next(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut at any time leaves Go's files where they are, or all of ours."""
    go.name("t:a")
    go.queue("t:a", numbered("a", 3))
    root = str(go.path)
    steps = []
    sync, rename = os.fsync, os.rename

    def noted_sync(descriptor: int) -> None:
        steps.append("sync " + os.readlink(f"/proc/self/fd/{descriptor}").replace(root, "data"))
        sync(descriptor)

    def noted_rename(source: Path, target: Path) -> None:
        steps.append(f"{source} to {Path(target).parent.name}".replace(root, "data"))
        rename(source, target)

    with mock.patch.multiple(os, fsync=noted_sync, rename=noted_rename):
        go.take_over()
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


def test_a_full_disk_leaves_everything_as_it_was(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    go.name("t:a")
    go.queue("t:a", numbered("a", 3))
    before = sorted(go.path.iterdir())
    monkeypatch.setattr(import_topics.LogWriter, "open", refuse)
    with pytest.raises(StartError, match="No space left"):
        go.take_over()
    assert sorted(go.path.iterdir()) == before


@pytest.mark.parametrize("name", ["holiday.jpg", "yesterday.log"])
def test_something_else_in_the_folder_is_not_deleted(go: Go, name: str) -> None:
    go.queue("t:a", numbered("a", 3))
    (go.path / "import").mkdir()
    (go.path / "import" / "t.00000000000000000000.log").touch()
    (go.path / "import" / name).touch()
    with pytest.raises(StartError, match=f"{name} is in the way"):
        go.take_over()
    assert len(list((go.path / "import").iterdir())) == 2


def test_it_can_be_stopped_between_two_pieces(go: Go) -> None:
    go.queue("t:a", numbered("a", 3))
    before = sorted(go.path.iterdir())
    with pytest.raises(ZeroDivisionError):
        go.take_over(lambda: 1 // 0)
    assert sorted(go.path.iterdir()) == before
