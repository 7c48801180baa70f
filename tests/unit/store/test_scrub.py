"""The scrub of a store with many files: what it asks of the stream, in nsqd's event loop."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from google_crc32c import value

from nsqd_py.objects.calls import Objects, StoreRefused
from nsqd_py.objects.opening import open_objects
from nsqd_py.store import scrub
from nsqd_py.store.files import StoredFiles
from nsqd_py.store.layout import HEAD_NAME, Head, StoredFile, round_name
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


class Refusing(Objects):
    """The objects of a store, some of which it does not give."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.refused: set[str] = set()
        self.refusals: list[str] = []
        self.on_refusal = lambda: None

    def get(self, name: str) -> tuple[bytes, Any]:
        self._check(name)
        return self._objects.get(name)

    def get_range(self, name: str, start: int, end: int) -> bytes:
        self._check(name)
        return self._objects.get_range(name, start, end)

    def _check(self, name: str) -> None:
        if name in self.refused:
            self.refusals.append(name)
            self.on_refusal()
            raise StoreRefused(f"{name}: InvalidObjectState: archived")


@pytest.fixture
def refusing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Refusing:
    monkeypatch.setattr(scrub, "_UNREADABLE_AFTER_S", 0.0)
    bench.scrub._objects = Refusing(bench.objects)
    return bench.scrub._objects


def test_an_object_that_cannot_be_read_is_named_and_the_others_are_checked(
    bench: Bench, refusing: Refusing
) -> None:
    archived = [bench.files[1].name, bench.files[3].name]
    refusing.refused.update(archived)
    bench.run_pass()
    assert bench.stream.asked == bench.files
    assert bench.scrub.damaged == 2
    assert bench.scrub.damage == (
        f"{archived[0]} cannot be read: InvalidObjectState: archived; it cannot be repaired: only the store has it"
    )
    bench.scrub.stop()

    refusing.refused.clear()
    bench.scrub.pass_count = 0
    bench.run_pass()
    assert (bench.scrub.damaged, bench.scrub.repaired, bench.scrub.damage) == (2, 2, "")


def test_a_round_that_cannot_be_read_is_replaced_by_a_base(
    bench: Bench, refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that does not help, bases do not follow each other."""
    bases = []
    monkeypatch.setattr(bench.stream, "last_round", 1)
    monkeypatch.setattr(bench.stream, "begin_base", lambda: bases.append(1))
    refusing.refused.add(round_name(1))
    for _ in range(2):
        bench.run_pass()
        bench.scrub.stop()
        bench.scrub.pass_count = 0
    assert bases == [1]
    assert bench.scrub.damaged == 1
    assert bench.stream.asked[:FILES] == bench.files


def test_a_store_that_is_away_damages_nothing(
    bench: Bench, refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "_RETRY_S", 0.0)
    monkeypatch.setattr(scrub, "_PASS_PAUSE_S", 0.0)
    first = bench.files[0].name
    refusing.refused.add(first)
    refusing.on_refusal = lambda: refusing.refused.add(HEAD_NAME)
    bench.scrub.start()
    with gevent.Timeout(DEADLINE_S):
        while len(refusing.refusals) < 3:
            gevent.sleep(0.001)
    assert refusing.refusals[:3] == [first, HEAD_NAME, HEAD_NAME]  # the last one is of the next pass
    assert bench.scrub.damaged == 0


@pytest.mark.parametrize(
    "other",
    [stored(1, b"others"), stored(1)._replace(epoch=2), stored(99), stored(1)._replace(topic="other")],
)
def test_a_file_is_known_in_exactly_this_version(other: StoredFile) -> None:
    files = StoredFiles([stored(1), stored(11)])
    assert stored(1) in files
    assert other not in files
