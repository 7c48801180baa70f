"""A data path that continues a store which another nsqd has written in the meantime: the store's messages come first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest import mock

import pytest

from nsqd_py.broker.state_files import METADATA_FILE, STOP_FILE, read_epochs
from nsqd_py.diskqueue.files.log_file import log_file_name
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epoch, Epochs, encode_epoch_file
from nsqd_py.diskqueue.records import FileHeader, encode_record
from nsqd_py.feed.pieces import Begin, Commit, Part, TopicListing, TopicsListed, Write
from nsqd_py.objects.opening import open_objects
from nsqd_py.protocol.batch import Batch
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqd_py.store.image import StoreImage
from nsqd_py.store.restoring.catching_up import catch_up
from nsqd_py.store.restoring.restoration import Restoration
from nsqd_py.store.rounds import BASE, MARK
from tests.unit.fakes import sized
from tests.unit.store.test_image import Store

CURSOR = "t:c.cursor"
OTHER_CURSOR = "t:d.cursor"
COMMON = (Epoch(1, 0),)
# The other nsqd was promoted when it had 97 messages.
OF_STORE = (*COMMON, Epoch(3, 97))
SALT_HERE = 0xA
SALT_OF_STORE = 0xB


def log_bytes(first_seq: int, end_seq: int, salt: int, *, is_sparse: bool = False) -> bytes:
    """A log file with these messages, whose bodies say who has written them."""
    records = [
        encode_record(Batch(seq, seq, 1, 1, 1, 0, sized(b"%d of %d" % (seq, salt))), salt)
        for seq in range(first_seq, end_seq)
    ]
    return FileHeader(salt, first_seq, 0, is_sparse=is_sparse).encode() + b"".join(records)


def name_of(first_seq: int) -> str:
    return log_file_name("t", first_seq)


COMMON_FILE = log_bytes(0, 97, 1)


class DataPath:
    """A data path, next to the state of a store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "data"
        self.directory.mkdir()
        self.objects = open_objects(f"file://{directory}/store")

    def has(self, logs: dict[int, bytes], epochs: Epochs = COMMON) -> None:
        """Let it have these log files, a position, and the record of a stop."""
        for first_seq, content in logs.items():
            (self.directory / name_of(first_seq)).write_bytes(content)
        (self.directory / EPOCHS_FILE).write_bytes(encode_epoch_file(0, {"t": epochs}))
        (self.directory / CURSOR).write_bytes(b"position here")
        (self.directory / STOP_FILE).write_bytes(b"the end of the logs here")

    def knows(self, *channels: str) -> None:
        """Let its `nsqd.dat` name these channels."""
        names = [{"name": channel} for channel in channels]
        (self.directory / METADATA_FILE).write_text(
            json.dumps({"topics": [{"name": "t", "channels": names}]})
        )

    def catch_up(self, logs: dict[int, bytes], epochs: Epochs = OF_STORE, *, is_copy: bool = True) -> None:
        """Catch up with a store that has these log files."""
        restoration = Restoration(self.directory, self.objects, lambda: None, Log(level=FATAL))
        catch_up(restoration, image_of(logs, epochs), is_last=not is_copy, is_copy=is_copy)

    def logs(self) -> dict[int, bytes]:
        return {int(path.name.split(".")[1]): path.read_bytes() for path in self.directory.glob("*.log")}

    def aside(self) -> dict[int, bytes]:
        """The log files that were set aside."""
        kept = self.directory.glob("store-alone-*/*.log")
        return {int(path.name.split(".")[1]): path.read_bytes() for path in kept}

    def position(self) -> bytes:
        return (self.directory / CURSOR).read_bytes()


def image_of(logs: dict[int, bytes], epochs: Epochs) -> StoreImage:
    """The state of a store that has these files in rounds."""
    store = Store()
    store.add(
        TopicListing("t", epochs, 0, {name_of(first_seq): 0 for first_seq in logs}, [CURSOR, OTHER_CURSOR]),
        TopicsListed(),
        *(Write(name_of(first_seq), 0, content) for first_seq, content in logs.items()),
        Begin(CURSOR),
        Part(CURSOR, 0, b"position of the store"),
        Commit(CURSOR),
        Begin(OTHER_CURSOR),
        Part(OTHER_CURSOR, 0, b"position of the other channel"),
        Commit(OTHER_CURSOR),
        flags=BASE | MARK,
    )
    return store.image


@pytest.fixture
def path(tmp_path: Path) -> DataPath:
    return DataPath(tmp_path)


@pytest.mark.parametrize("is_copy", [True, False])
@pytest.mark.parametrize(
    ("here", "stored"),
    [
        ([(97, 110)], [(97, 150)]),
        ([(97, 110)], [(97, 150), (150, 160)]),
        ([(97, 200), (200, 210)], [(97, 150), (150, 160)]),
        ([(97, 140), (140, 210)], [(97, 150)]),
        ([(97, 140)], [(97, 97 + 1)]),
    ],
    ids=[
        "the last one",
        "a later one there",
        "later ones on both sides",
        "a later one here",
        "a longer one here",
    ],
)
def test_what_only_this_nsqd_has_after_a_takeover_is_set_aside(
    path: DataPath, here: list[tuple[int, int]], stored: list[tuple[int, int]], *, is_copy: bool
) -> None:
    """It was written in an epoch that the store has not got, and has the numbers of other messages there."""
    diverged = {start: log_bytes(start, end, SALT_HERE) for start, end in here}
    of_store = {start: log_bytes(start, end, SALT_OF_STORE) for start, end in stored}
    path.has({0: COMMON_FILE, **diverged})
    path.catch_up({0: COMMON_FILE, **of_store}, is_copy=is_copy)
    assert path.logs() == {0: COMMON_FILE, **of_store}
    assert path.aside() == diverged
    assert path.position() == b"position of the store"
    assert not (path.directory / STOP_FILE).exists()
    saved = read_epochs(path.directory)
    assert saved is not None
    assert saved.logs == {"t": OF_STORE}


def test_an_epoch_that_the_store_never_got_ends_where_the_first_of_both_begins(path: DataPath) -> None:
    """This nsqd was promoted after 90 messages, and none of its rounds was stored."""
    before = log_bytes(0, 90, 1)
    mine = log_bytes(90, 120, SALT_HERE)
    theirs = log_bytes(97, 110, SALT_OF_STORE)
    path.has({0: before, 90: mine}, (*COMMON, Epoch(2, 90)))
    path.catch_up({0: COMMON_FILE, 97: theirs})
    assert path.logs() == {0: COMMON_FILE, 97: theirs}
    assert path.aside() == {90: mine}


def test_a_log_that_was_empty_at_the_promotion(path: DataPath) -> None:
    mine = log_bytes(0, 10, SALT_HERE)
    theirs = log_bytes(0, 5, SALT_OF_STORE)
    path.has({0: mine})
    path.catch_up({0: theirs}, (*COMMON, Epoch(3, 0)))
    assert path.logs() == {0: theirs}
    assert path.aside() == {0: mine}


def test_what_the_store_has_not_got_yet_stays(path: DataPath) -> None:
    """Here are the messages of the same epochs, and more of them."""
    theirs = log_bytes(97, 120, SALT_OF_STORE)
    mine = {97: log_bytes(97, 150, SALT_OF_STORE), 150: log_bytes(150, 160, 0xC)}
    path.has({0: COMMON_FILE, **mine}, OF_STORE)
    path.catch_up({0: COMMON_FILE, 97: theirs})
    assert path.logs() == {0: COMMON_FILE, **mine}
    assert path.aside() == {}
    assert path.position() == b"position here"


def test_files_that_were_copied_before_their_epoch_was_written_stay(path: DataPath) -> None:
    mine = {97: log_bytes(97, 150, SALT_OF_STORE), 150: log_bytes(150, 160, 0xC)}
    path.has({0: COMMON_FILE, **mine})
    path.catch_up({0: COMMON_FILE, 97: mine[97]})
    assert path.logs() == {0: COMMON_FILE, **mine}
    assert path.aside() == {}


def test_another_file_of_the_same_epochs_is_set_aside_by_a_copy(path: DataPath) -> None:
    """Nothing in the epochs says which one is right; publishers have their OK for what is in the store."""
    mine = log_bytes(97, 110, SALT_HERE)
    theirs = {97: log_bytes(97, 150, SALT_OF_STORE), 150: log_bytes(150, 160, SALT_OF_STORE)}
    path.has({0: COMMON_FILE, 97: mine}, OF_STORE)
    path.catch_up({0: COMMON_FILE, **theirs})
    assert path.logs() == {0: COMMON_FILE, **theirs}
    assert path.aside() == {97: mine}


def test_a_file_that_was_compacted_here_stays(path: DataPath) -> None:
    sparse = log_bytes(0, 97, 5, is_sparse=True)
    last = log_bytes(97, 110, SALT_OF_STORE)
    path.has({0: sparse, 97: last}, OF_STORE)
    path.catch_up({0: COMMON_FILE, 97: last})
    assert path.logs() == {0: sparse, 97: last}
    assert path.aside() == {}


PREALLOCATED = {"zeros": bytes(100_000), "of a used file": log_bytes(3, 500, 0xD)}


@pytest.mark.parametrize("behind", PREALLOCATED.values(), ids=PREALLOCATED)
def test_a_channel_comes_back_to_an_old_disk_whose_file_has_space_behind_its_end(
    path: DataPath, behind: bytes
) -> None:
    """The channel was created after the snapshot, which has the last file in full size."""
    full = log_bytes(0, 97, 1)
    path.has({0: log_bytes(0, 90, 1) + behind})
    path.knows("c")
    path.catch_up({0: full}, COMMON, is_copy=False)
    assert (path.directory / OTHER_CURSOR).read_bytes() == b"position of the other channel"
    assert path.logs()[0].startswith(full)


@pytest.mark.parametrize("behind", PREALLOCATED.values(), ids=PREALLOCATED)
def test_a_channel_that_was_deleted_stays_deleted_where_nothing_is_missing(
    path: DataPath, behind: bytes
) -> None:
    path.has({0: log_bytes(0, 98, 1) + behind})
    path.knows("c")
    path.catch_up({0: log_bytes(0, 97, 1)}, COMMON, is_copy=False)
    assert not (path.directory / OTHER_CURSOR).exists()


def test_a_start_lists_the_data_path_once(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time would grow with the square of the number of topics."""
    topics = [f"topic{number}" for number in range(20)]
    store = Store()
    store.add(
        *(TopicListing(topic, COMMON, 0, {log_file_name(topic, 0): 0}, []) for topic in topics),
        TopicsListed(),
        *(Write(log_file_name(topic, 0), 0, COMMON_FILE) for topic in topics),
        flags=BASE | MARK,
    )
    for topic in topics:
        (path.directory / log_file_name(topic, 0)).write_bytes(COMMON_FILE)
    listdir = mock.Mock(wraps=os.listdir)
    monkeypatch.setattr(os, "listdir", listdir)
    restoration = Restoration(path.directory, path.objects, lambda: None, Log(level=FATAL))
    catch_up(restoration, store.image, is_last=True)
    listdir.assert_called_once_with(path.directory)
