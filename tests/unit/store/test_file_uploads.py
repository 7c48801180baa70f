"""Log files on their way out of a store."""

from __future__ import annotations

from collections.abc import Iterable
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
