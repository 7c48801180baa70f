"""Log files on their way out of a store."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from nsqd_py.store.files import StoredFiles
from nsqd_py.store.layout import StoredFile
from nsqd_py.store.uploading.log_files import FileUploads

NOTHING: Any = None


def stored(first_seq: int) -> StoredFile:
    return StoredFile("t", first_seq, 1, 100, 2, True, first_seq + 10, 1, 2, 3, 4, 1)


class Deletions:
    """The owner of a store, as far as files are deleted."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def drop_files(self, names: Iterable[str]) -> None:
        self.names += names


def test_files_of_a_round_that_failed_are_deleted_after_the_next_one() -> None:
    deletions = Deletions()
    uploads = FileUploads(NOTHING, NOTHING, cast("Any", deletions), NOTHING, StoredFiles(()))
    first = stored(1)
    second = stored(11)

    uploads.removing([first])
    assert uploads.take_changes().removed == [first]  # an error ends its round
    uploads.removing([second])
    assert uploads.take_changes().removed == [second]
    assert deletions.names == []

    uploads.delete_removed()
    assert deletions.names == [first.name, second.name]
    uploads.delete_removed()
    assert deletions.names == [first.name, second.name]


def test_a_file_that_is_gone_before_a_round_has_named_it_is_not_named() -> None:
    uploads = FileUploads(NOTHING, NOTHING, NOTHING, NOTHING, StoredFiles(()))
    gone = stored(1)
    kept = stored(11)

    uploads.replace(gone)  # while a round is put
    uploads.replace(kept)
    uploads.files.remove(gone)
    uploads.removing([gone])  # in this round

    changes = uploads.take_changes()
    assert changes.added == [kept]
    assert changes.removed == [gone]
    assert uploads.files.unnamed == {kept.name}


def test_a_file_that_came_back_before_a_round_is_named_and_not_deleted() -> None:
    deletions = Deletions()
    uploads = FileUploads(NOTHING, NOTHING, cast("Any", deletions), NOTHING, StoredFiles([stored(1)]))

    uploads.files.remove(stored(1))
    uploads.removing([stored(1)])
    uploads.replace(stored(1))

    changes = uploads.take_changes()
    assert changes.added == [stored(1)]
    assert changes.removed == []
    uploads.delete_removed()
    assert deletions.names == []


def test_a_base_does_not_name_the_file_that_was_put_again_in_the_meantime() -> None:
    broker: Any = SimpleNamespace(topics={})
    damaged = stored(1)
    uploads = FileUploads(broker, NOTHING, NOTHING, NOTHING, StoredFiles([damaged]))
    uploads.take_changes()  # a base begins

    again = damaged._replace(epoch=2)
    uploads.replace(again)
    uploads.are_named(uploads.files)  # the base is stored
    assert uploads.files.unnamed == {again.name}

    changes = uploads.take_changes()
    uploads.are_named(changes.added)
    assert uploads.files.unnamed == set()
