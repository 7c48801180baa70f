"""However the directories of nsq-to-file are written, a finished file is in the output-dir, whole, and listed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nsq_tools.to_file.archive import Archive, taken
from nsq_tools.to_file.finishing import check_writable, repair
from nsq_tools.to_file.formats import FORMATS
from nsq_tools.to_file.output import left_behind
from tests.support.examples import examples
from tests.support.written_files import all_bodies, bodies, leftovers, manifest, message_files
from tests.unit.fakes import FakeLog
from tests.unit.to_file_fakes import FakeBatch, plan_of

KINDS = [(form.name, codec) for form in FORMATS.values() for codec in form.codecs]

# The current directory is <root>/here, and <root>/here/link is a symbolic link to <root>/far/away.
SPELLINGS = (
    "{root}/here/out",
    "out",
    "./out",
    "out/",
    "out//",
    "sub/../out",
    "../here/out",
    "link/out",
    "link/../out",
    "~/out",
    "{root}/here/link/out",
    "{root}/here/../here/out",
    "{root}/here/linked",
    "linked",
    "linked/.",
    "out/sub/..",
    ".",
    "{memory}/out",
    "memory",
)
# The same directory in other words, and others.
WORK_SPELLINGS = (
    "{output}",
    "{output}/.",
    "./{output}",
    "{output}/",
    "work",
    "../here/work",
    "link/work",
    "{root}/work",
    "{memory}/work",
    "memory",
    "{output}/work",
)


@dataclass
class Place:
    """A directory to be in, and one on another file system."""

    root: Path
    memory: Path

    def path(self, spelling: str, output: str = "") -> Path:
        return Path(spelling.format(root=self.root, memory=self.memory, output=output))


def memory_root() -> str | None:
    """The root of another file system; None where there is none."""
    other = Path("/dev/shm")
    usable = (
        other.is_dir() and os.access(other, os.W_OK) and other.stat().st_dev != Path("/tmp").stat().st_dev
    )
    return str(other) if usable else None


@contextmanager
def a_place() -> Iterator[Place]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory(dir=memory_root()) as memory:
        place = Place(Path(root).resolve(), Path(memory).resolve())
        here = place.root / "here"
        for directory in (here / "sub", here / "out" / "sub", place.root / "far" / "away"):
            directory.mkdir(parents=True)
        (here / "link").symlink_to(place.root / "far" / "away")
        (here / "linked").symlink_to("out")
        (here / "memory").symlink_to(place.memory)
        os.chdir(here)
        try:
            yield place
        finally:
            os.chdir(before)


def open_archive(output: Path, work: Path, form: str, codec: str, **changes: Any) -> Archive:
    plan = plan_of(output, "a/topic<REV>", form, codec, **{"work_dir": work, **changes})
    return Archive(plan, FakeLog(), lambda text: None, lambda: 0)  # type: ignore[arg-type]


def write(archive: Archive, *messages: bytes) -> None:
    archive.waiting.extend([FakeBatch(*messages)])
    archive.store(is_sync_due=True)


def finish(archive: Archive) -> None:
    archive.close()
    for file in taken(archive.finished):
        file.finish()


def finish_what_is_left(*directories: Path) -> None:
    for claim in left_behind(*directories):
        repair(claim).finish()


def check(output: Path, work: Path) -> None:
    """Each file is there, whole, listed, and nowhere else."""
    entries = manifest(output)
    assert [bodies(output / entry["path"]) for entry in entries] == [[b"one", b"two"], [b"three"]]
    assert sorted(all_bodies(output)) == [b"one", b"three", b"two"]
    assert leftovers(output) == []
    assert leftovers(work) == []
    if not (work.samefile(output) or output.resolve() in work.resolve().parents):
        listed = {(output / entry["path"]).resolve() for entry in entries}
        assert {path.resolve() for path in message_files(work)} <= listed


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(SPELLINGS),
    st.sampled_from(WORK_SPELLINGS),
    st.sampled_from(KINDS),
    st.booleans(),
    st.booleans(),
)
@example("out", "{output}", ("lines", "none"), False, False)
@example("out", "{output}", ("lines", "none"), True, True)
@example("linked", "{output}", ("framed", "zstd"), False, True)
@example("{memory}/out", "work", ("lines", "gzip"), False, False)
@example("{memory}/out", "work", ("parquet", "none"), True, True)
def test_a_finished_file_is_in_the_output_dir(
    output: str, work: str, kind: tuple[str, str], is_killed: bool, has_a_copy: bool
) -> None:
    """`has_a_copy`: somebody made a hard link to each file while it was written, so that it has two names."""
    with a_place() as place:
        output_dir, work_dir = place.path(output), place.path(work, output)
        for directory in (output_dir, work_dir):
            check_writable(directory)
        archive = open_archive(output_dir, work_dir, *kind)
        write(archive, b"one", b"two")
        if has_a_copy:
            for number, path in enumerate(message_files(work_dir)):
                os.link(path, path.with_name(f".backup{number}"))
        if is_killed:
            archive.abandon()
            finish_what_is_left(work_dir, output_dir)
        else:
            finish(archive)
        write(archive, b"three")
        finish(archive)
        for copy in work_dir.rglob(".backup*"):
            copy.unlink()
        check(output_dir, work_dir)


@pytest.mark.parametrize("output", [spelling for spelling in SPELLINGS if spelling != "."])
def test_a_shared_file_stays_and_is_appended_to(output: str) -> None:
    """As nsq-to-file is run without any other flag."""
    with a_place() as place:
        output_dir = place.path(output)
        check_writable(output_dir)
        for number, message in enumerate((b"one", b"two")):
            archive = open_archive(
                output_dir, output_dir, "lines", "none", template="topic.log", is_shared=True
            )
            write(archive, message)
            if number:
                archive.abandon()
                finish_what_is_left(output_dir)
            else:
                finish(archive)
        assert bodies(output_dir / "topic.log") == [b"one", b"two"]
        assert [entry["path"] for entry in manifest(output_dir)] == ["topic.log", "topic.log"]
        assert leftovers(output_dir) == []


@pytest.mark.parametrize("form", ["lines", "framed", "parquet"])
def test_a_directory_whose_name_goes_elsewhere_meanwhile(form: str) -> None:
    """`linked` is set to another directory while a file is written: that file is finished where it was begun."""
    with a_place() as place:
        linked, first, second = Path("linked"), place.root / "here" / "out", place.root / "second"
        second.mkdir()
        archive = open_archive(linked, linked, form, "none")
        write(archive, b"one")
        linked.unlink()
        linked.symlink_to(second)
        finish(archive)
        write(archive, b"two")
        finish(archive)
        assert (all_bodies(first), all_bodies(second)) == ([b"one"], [b"two"])
        assert (leftovers(first), leftovers(second)) == ([], [])


def test_a_directory_of_the_output_dir_that_is_one_of_the_work_dir() -> None:
    """The two are different directories, and a file has one name in both all the same."""
    with a_place() as place:
        output, work = place.root / "output", place.root / "work"
        (work / "a").mkdir(parents=True)
        output.mkdir()
        (output / "a").symlink_to(work / "a")
        archive = open_archive(output, work, "lines", "none")
        write(archive, b"one")
        finish(archive)
        assert bodies(output / manifest(output)[0]["path"]) == [b"one"]
        shutil.rmtree(output)
