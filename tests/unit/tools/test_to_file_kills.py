"""nsq-to-file is killed, or its disk is full, at each call of the system from the first message to the manifest.

What was acknowledged is in one file, which is whole and has one line in the manifest, and nothing else is left.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import google_crc32c
import pytest

from nsq_tools.to_file.archive import Archive, taken
from nsq_tools.to_file.finishing import repair
from nsq_tools.to_file.output import left_behind
from tests.support.written_files import MANIFEST, all_bodies, leftovers, message_files
from tests.unit.to_file_fakes import FakeBatch
from tests.unit.tools.test_to_file_archive import ArchiveHarness

CALLS = ("open", "write", "fsync", "fdatasync", "ftruncate", "mkdir", "link", "rename", "unlink")
MOST_CALLS = 500
BATCHES = ((b"one", b"two"), (b"three",), (b"four",))
BEFORE = b"of another program\n"


class Way(NamedTuple):
    """A way of writing: into the output-dir, from a work-dir, or from one on another file system."""

    form: str
    codec: str = "none"
    work_dir: str = "output"
    is_far: bool = False
    is_shared: bool = False

    def archive(self, root: Path) -> Archive:
        harness = ArchiveHarness(root)
        template = "a/topic.log" if self.is_shared else None
        changes: dict[str, object] = {"template": template} if template else {}
        return harness.archive(
            self.form, self.codec, work_dir=root / self.work_dir, is_shared=self.is_shared, **changes
        )


WAYS = (
    Way("lines", is_shared=True),
    Way("lines", "gzip"),
    Way("jsonl", "zstd", "work"),
    Way("framed", "none", "work", is_far=True),
    Way("parquet"),
    Way("parquet", "zstd", "work", is_far=True),
)
# Those that are not slow have lines, framed and Parquet, each place of the work-dir, and a file of another program.
SAMPLED = [pytest.param(way, marks=() if way.codec == "none" else pytest.mark.slow) for way in WAYS]


@contextmanager
def links(way: Way) -> Iterator[None]:
    """Directories are on two file systems where the way says so."""
    real = os.link

    def link(source: Any, target: Any) -> None:
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(source, target)

    with pytest.MonkeyPatch.context() as patch:
        if way.is_far:
            patch.setattr(os, "link", link)
        yield


@contextmanager
def before_each_call(do: Callable[[int, Callable[[], object]], None]) -> Iterator[None]:
    """Before each call, `do` gets its number, from 0 on, and what makes the first half of it if it is a write."""
    made = 0

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal made
            made += 1
            do(
                made - 1,
                lambda: name == "write" and real(arguments[0], arguments[1][: len(arguments[1]) // 2]),
            )
            return real(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wrap(name, getattr(os, name)))
        yield


def begun(way: Way, root: Path) -> Archive:
    root.mkdir()
    if way.is_shared:
        (root / "output" / "a").mkdir(parents=True)
        (root / "output" / "a" / "topic.log").write_bytes(BEFORE)
    return way.archive(root)


def until_it_works(work: Callable[[], object]) -> None:
    for _ in range(3):
        try:
            work()
        except OSError:
            continue
        return
    raise AssertionError("it fails although the disk has room again")


def archive_all(archive: Archive, acknowledge: Callable[[bytes], object]) -> None:
    for bodies in BATCHES:
        archive.waiting.extend([FakeBatch(*bodies)])  # type: ignore[list-item]
        until_it_works(lambda: archive.store(is_sync_due=True))
        for batch in taken(archive.synced):
            acknowledge(b"".join(b"%b\n" % body for body in batch.bodies))
    until_it_works(archive.close)
    for file in taken(archive.finished):
        until_it_works(file.finish)


def repair_all(root: Path) -> None:
    for claim in left_behind(*(path for path in (root / "work", root / "output") if path.exists())):
        file = repair(claim)
        if file is not None:
            file.finish()


def entries_in(path: Path) -> Iterator[dict[str, Any]]:
    """A write that was killed leaves a line that its readers pass over."""
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def check(way: Way, root: Path, acknowledged: list[bytes]) -> None:
    output = root / "output"
    written = Counter(all_bodies(output))
    written -= Counter(BEFORE.splitlines() if way.is_shared else [])
    assert set(acknowledged) <= set(written)
    assert max(written.values(), default=1) == 1
    assert leftovers(root) == []
    assert way.work_dir == "output" or message_files(root / way.work_dir) == []
    entries = list(entries_in(output / MANIFEST))
    listed = [entry["path"] for entry in entries]
    if way.is_shared:
        assert listed in (["a/topic.log"], [])
    else:
        assert listed == [str(path.relative_to(output)) for path in message_files(output)]
    assert sum(entry["messages"] for entry in entries) == written.total()
    for entry in entries:
        data = (output / entry["path"]).read_bytes()[entry["offset"] :]
        assert (entry["bytes"], entry["crc32c"]) == (len(data), f"{google_crc32c.value(data):08x}")
        assert (entry["damaged_bytes"], entry["original"]) == (0, "")


def killed_at(number: int, archive: Archive) -> tuple[bool, list[bytes]]:
    """Archive in a child process, which ends at this call. Return True if there was such a call, and what was acknowledged."""
    reader, writer = os.pipe()
    write = os.write

    def die(made: int, begin: Callable[[], object]) -> None:
        if made == number:
            begin()
            os._exit(9)

    child = os.fork()
    if not child:
        run_and_exit(lambda: archive_all(archive, lambda data: write(writer, data)), die)
    os.close(writer)
    with open(reader, "rb") as file:
        acknowledged = file.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9)
    return status == 9, acknowledged


def run_and_exit(work: Callable[[], None], before: Callable[[int, Callable[[], object]], None]) -> NoReturn:
    status = 1
    try:
        with before_each_call(before):
            work()
        status = 0
    finally:
        os._exit(status)


@pytest.mark.parametrize("way", SAMPLED, ids=repr)
def test_a_kill_at_any_call(tmp_path: Path, way: Way) -> None:
    with links(way):
        for number in range(MOST_CALLS):
            root = tmp_path / str(number)
            was_killed, acknowledged = killed_at(number, begun(way, root))
            repair_all(root)
            check(way, root, acknowledged)
            if not was_killed:
                break
    assert number > 20, "it makes fewer calls than it can"
    assert not was_killed
    assert acknowledged == [body for bodies in BATCHES for body in bodies]


@pytest.mark.parametrize("way", SAMPLED, ids=repr)
def test_a_disk_that_is_full_at_any_call(tmp_path: Path, way: Way) -> None:
    made = 0

    def fail(number: int, begin: Callable[[], object]) -> None:
        nonlocal made
        made = number
        if number == failing:
            begin()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with links(way):
        for failing in range(MOST_CALLS):
            root = tmp_path / str(failing)
            archive = begun(way, root)
            acknowledged: list[bytes] = []
            with before_each_call(fail):
                archive_all(archive, acknowledged.append)
            check(way, root, b"".join(acknowledged).splitlines())
            if made < failing:
                break
    assert failing > 20
    assert made < failing
