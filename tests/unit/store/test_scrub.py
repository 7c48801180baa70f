"""The scrub of a store with many files: what it asks of the stream, in nsqd's event loop."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from google_crc32c import value

from nsqd_py.objects.opening import open_objects
from nsqd_py.store.files import StoredFiles
from nsqd_py.store.layout import HEAD_NAME, Head, StoredFile
from nsqd_py.store.scrub import StoreScrub

BYTES = b"some records"
FILES = 5
HEAD = Head("store", 1, "writer", "node")
REQUESTS_PER_DAY = 86_400_000
DEADLINE_S = 20.0


def stored(first_seq: int, data: bytes = BYTES) -> StoredFile:
    return StoredFile("t", first_seq, 1, len(data), value(data), True, first_seq + 10, 1, 2, 3, 4, 1)


class Stream:
    """A stream that has put some files, and no rounds."""

    last_round = 0

    def __init__(self, files: list[StoredFile]) -> None:
        self.files = StoredFiles(files)
        self.lists = 0
        self.asked: list[StoredFile] = []

    def files_now(self) -> list[StoredFile]:
        self.lists += 1
        return list(self.files)

    def has_file(self, file: StoredFile) -> bool:
        self.asked.append(file)
        return file in self.files

    def replace_file(self, before: StoredFile, file: StoredFile) -> None:
        raise AssertionError(before, file)

    def begin_base(self) -> None:
        raise AssertionError

    def look_soon(self) -> None:
        raise AssertionError


class Bench:
    def __init__(self) -> None:
        self.files = [stored(first_seq) for first_seq in range(FILES)]
        self.objects = open_objects("memory://")
        self.objects.create(HEAD_NAME, HEAD.encode())
        for file in self.files:
            self.objects.create(file.name, BYTES)
        self.stream = Stream(self.files)
        owner: Any = SimpleNamespace(head=HEAD, epoch=1, writer=HEAD.writer)
        log: Any = SimpleNamespace(error=lambda *_: None, exception=lambda *_: None)
        stream: Any = self.stream
        self.scrub = StoreScrub(self.objects, owner, stream, REQUESTS_PER_DAY, log)

    def run_pass(self) -> None:
        """Let one pass end."""
        self.scrub.start()
        with gevent.Timeout(DEADLINE_S):
            while not self.scrub.pass_count:
                gevent.sleep(0.001)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.scrub.stop()


def test_a_pass_lists_the_files_once(bench: Bench) -> None:
    bench.run_pass()
    assert bench.stream.lists == 1
    assert bench.stream.asked == bench.files
    assert bench.scrub.checked_objects == FILES + 1
    assert bench.scrub.damage == ""


def test_damage_of_a_file_that_was_released_in_the_meantime_is_not_counted(bench: Bench) -> None:
    gone = stored(FILES * 10, b"gone")
    bench.stream.files_now = lambda: [*bench.files, gone]  # type: ignore[method-assign]
    bench.run_pass()
    assert bench.scrub.damaged == 0
    assert bench.stream.asked == [*bench.files, gone]


def test_damage_counts_as_repaired_when_the_store_needs_the_file_no_more(bench: Bench) -> None:
    lost = stored(FILES * 10, b"lost")
    bench.stream.files.add(lost)
    bench.run_pass()
    assert bench.scrub.knows(lost.name)
    bench.scrub.stop()

    bench.stream.files.remove(lost)
    bench.scrub.pass_count = 0
    bench.run_pass()
    assert not bench.scrub.knows(lost.name)
    assert (bench.scrub.damaged, bench.scrub.repaired) == (1, 1)


@pytest.mark.parametrize(
    "other",
    [stored(1, b"others"), stored(1)._replace(epoch=2), stored(99), stored(1)._replace(topic="other")],
)
def test_a_file_is_known_in_exactly_this_version(other: StoredFile) -> None:
    files = StoredFiles([stored(1), stored(11)])
    assert stored(1) in files
    assert other not in files
