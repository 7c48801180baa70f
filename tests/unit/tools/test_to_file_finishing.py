"""The last step of a file of nsq-to-file: no name of it goes before the file is known to have another one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from nsq_tools.to_file import finishing
from nsq_tools.to_file.finishing import (
    FinishedFile,
    copy,
    filename_template,
    host_identifier,
    link_into,
    remove_other_names,
    repair,
    with_revision,
)
from nsq_tools.to_file.formats import FORMATS
from nsq_tools.to_file.output import left_behind, side_path
from nsq_tools.to_file.program import PROGRAM
from nsq_tools.to_file.service import check, common_plan
from nsqd_py.settings.declaration import BadOptions
from tests.support.written_files import MANIFEST, all_bodies, bodies, leftovers, manifest
from tests.unit.to_file_fakes import FakeBatch
from tests.unit.tools.test_to_file_archive import ArchiveHarness

NAME = "x<REV>.log"


def never(path: Path) -> bool:
    raise AssertionError(f"{path} is read, though the inodes tell")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


@pytest.fixture
def output(tmp_path: Path) -> Path:
    directory = tmp_path / "output"
    directory.mkdir()
    return directory


@pytest.fixture
def source(work: Path) -> Path:
    path = work / "source"
    path.write_bytes(b"one\n")
    return path


# --- one name after the other


def test_a_file_that_has_no_other_name_stays(work: Path, source: Path) -> None:
    """Its place is where it is, in whichever words."""
    (work / "sub").mkdir()
    (work.parent / "link").symlink_to(work)
    for directory in (work, work / "sub" / "..", work.parent / "link"):
        assert remove_other_names(source, directory, "source", "token", never)
        assert bodies(source) == [b"one"]
    os.link(source, work / "backup")
    assert remove_other_names(source, work.parent / "link", "source", "token", never)
    assert bodies(source) == [b"one"]


def test_a_link_to_the_source_is_no_name_of_its_file(source: Path, output: Path) -> None:
    (output / "x-000000.log").symlink_to(source)
    assert link_into(source, output, NAME, 0, "token") == "x-000001.log"
    assert remove_other_names(source, output, "x-000001.log", "token", never)
    assert not source.exists()
    assert bodies(output / "x-000001.log") == [b"one"]


def test_a_source_whose_placed_file_is_gone_stays(source: Path, output: Path) -> None:
    name = link_into(source, output, NAME, 0, "token")
    (output / name).unlink()
    assert not remove_other_names(source, output, name, "token", never)
    (output / name).symlink_to(source)
    assert not remove_other_names(source, output, name, "token", lambda path: False)
    assert bodies(source) == [b"one"]


def test_an_incomplete_copy_stays_while_there_is_no_source(output: Path, work: Path) -> None:
    adjacent = side_path(output, "token", ".moving")
    adjacent.write_bytes(b"on")
    with pytest.raises(FileNotFoundError):
        link_into(work / "gone", output, NAME, 0, "token", copy)
    assert not remove_other_names(work / "gone", output, "x-000000.log", "token", never)
    assert adjacent.read_bytes() == b"on"


# --- what somebody does between a kill and the next start


def killed(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def written(work: Path, output: Path | None = None, form: str = "lines") -> FinishedFile:
    """A file of one message that has no place yet."""
    archive = ArchiveHarness(work.parent).archive(
        form,
        template=f"x<REV>{FORMATS[form].suffix}",
        datetime_format="",
        work_dir=work,
        output_dir=output or work.parent / "output",
    )
    archive.waiting.extend([FakeBatch(b"one")])
    archive.store(is_sync_due=True)
    archive.close()
    (file,) = archive.finished
    return file


def killed_before_the_manifest(
    work: Path, output: Path, monkeypatch: pytest.MonkeyPatch, form: str = "lines"
) -> str:
    """The name of a file that is placed, and has its name in the work-dir still."""
    file = written(work, output, form)
    with monkeypatch.context() as patch:
        patch.setattr("nsq_tools.to_file.finishing.remove_other_names", killed)
        with pytest.raises(KeyboardInterrupt):
            file.finish()
    assert file.claim.details.entry is not None
    file.claim.drop()
    return str(file.claim.details.entry["path"])


def the_rest(work: Path) -> list[FinishedFile]:
    return [file for file in map(repair, left_behind(work)) if file is not None]


@pytest.mark.parametrize("has_another", [False, True])
def test_a_placed_file_that_was_taken_away_is_placed_again(
    work: Path, output: Path, has_another: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = killed_before_the_manifest(work, output, monkeypatch)
    (output / name).unlink()
    if has_another:
        (output / name).write_bytes(b"mine\n")
    (file,) = the_rest(work)
    assert file.finish().path == ("x-000001.log" if has_another else name)
    assert [entry["path"] for entry in manifest(output)] == [file.claim.details.entry["path"]]  # type: ignore[index]
    assert all_bodies(output) == ([b"mine", b"one"] if has_another else [b"one"])
    assert os.listdir(work) == leftovers(output) == []


def test_a_file_that_is_replaced_again_and_again_is_left_for_the_next_start(
    work: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before_the_manifest(work, output, monkeypatch)
    (file,) = the_rest(work)
    with monkeypatch.context() as patch:
        patch.setattr("nsq_tools.to_file.finishing.remove_other_names", lambda *_: False)
        with pytest.raises(OSError, match="replaced the file that was just placed there"):
            file.finish()
    file.claim.drop()
    assert not (output / MANIFEST).exists()
    for file in the_rest(work):
        file.finish()
    assert all_bodies(output) == [b"one"]
    assert len(manifest(output)) == 1


def test_a_file_with_the_name_of_one_that_was_taken_away_is_listed(work: Path) -> None:
    """The line of the first is still in the manifest, and says nothing of the second."""
    written(work, work).finish()
    (work / "x-000000.log").unlink()
    second = written(work, work)
    second.claim.drop()
    (file,) = the_rest(work)
    file.finish()
    assert [(entry["path"], entry["repaired"]) for entry in manifest(work)] == [
        ("x-000000.log", False),
        ("x-000000.log", True),
    ]


def test_a_line_that_is_far_from_the_end_of_the_manifest_is_not_added_again(
    work: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(work)
    with monkeypatch.context() as patch:
        patch.setattr("nsq_tools.to_file.output.Claim.release", killed)
        with pytest.raises(KeyboardInterrupt):
            file.finish()
    file.claim.drop()
    with (output / MANIFEST).open("ab") as others:
        others.write(b'{"path":"other","offset":0}\n' * 10_000)
    for rest in the_rest(work):
        rest.finish()
    assert [entry["path"] for entry in manifest(output)].count("x-000000.log") == 1
    assert leftovers(work) == []


def test_a_file_that_is_converted_again_is_not_taken_for_damaged(
    work: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that was placed is larger than the one that it was made from."""
    name = killed_before_the_manifest(work, output, monkeypatch, "parquet")
    (output / name).unlink()
    (file,) = the_rest(work)
    entry = file.finish()
    assert (entry.damaged_bytes, entry.original, entry.messages) == (0, "", 1)
    assert all_bodies(output) == [b"one"]
    assert os.listdir(work) == leftovers(output) == []


# --- file systems without links


class NoLinks:
    """Stands for file systems that have no hard links, and for one whose directories are on two of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("nsq_tools.to_file.finishing.os.link", self.link)

    def link(self, source: Path, target: Path) -> None:
        is_far = source.parent != target.parent
        raise OSError(errno.EXDEV if is_far else errno.EPERM, "no links here", str(source))


def test_without_links_a_copy_gets_its_name_and_then_the_source_goes(
    source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No inode tells that the two are one file any more, so the copy is read."""
    NoLinks(monkeypatch)
    (output / "x-000000.log").write_bytes(b"mine\n")
    name = link_into(source, output, NAME, 0, "token")
    read: list[Path] = []
    assert not remove_other_names(source, output, name, "token", lambda path: bool(read.append(path)))
    assert remove_other_names(
        source, output, name, "token", lambda path: path.read_bytes() == source.read_bytes()
    )
    assert (name, read) == ("x-000001.log", [output / "x-000001.log"])
    assert all_bodies(output) == [b"mine", b"one"]
    assert not source.exists()


@pytest.mark.parametrize("form", FORMATS)
def test_without_links_a_file_is_finished(
    work: Path, output: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    NoLinks(monkeypatch)
    written(work, output, form).finish()
    assert all_bodies(output) == [b"one"]
    assert os.listdir(work) == leftovers(output) == []


def test_without_links_no_file_is_replaced(source: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NoLinks(monkeypatch)
    (work / "x-000000.log").write_bytes(b"mine\n")
    (work / "x-000001.log").symlink_to(work / "nowhere")
    assert link_into(source, work, NAME, 0, "token") == "x-000002.log"
    assert all_bodies(work) == [b"mine", b"one"]
    assert (work / "x-000001.log").is_symlink()


# --- to another file system


def elsewhere() -> Path:
    other = Path("/dev/shm")
    if (
        not other.is_dir()
        or not os.access(other, os.W_OK)
        or other.stat().st_dev == Path("/tmp").stat().st_dev
    ):
        pytest.skip("needs another file system")
    return other


@pytest.mark.parametrize("step", ["copy", "_link", "never"])
def test_a_copy_that_was_interrupted(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = elsewhere() / f"nsq-to-file-{os.getpid()}"
    try:
        source = tmp_path / "source"
        source.write_bytes(b"one\n")
        directory.mkdir()
        (directory / "x-000000.log").write_bytes(b"mine\n")
        with monkeypatch.context() as patch:
            if step != "never":
                real: Callable[..., object] = copy if step == "copy" else finishing._link

                def torn(*arguments: object) -> None:
                    real(*arguments)
                    if step == "copy":
                        os.truncate(str(arguments[1]), 1)
                    raise KeyboardInterrupt

                patch.setattr(f"nsq_tools.to_file.finishing.{step}", torn)
                with pytest.raises(KeyboardInterrupt):
                    link_into(source, directory, "x<REV>.log", 0, "token")
        assert link_into(source, directory, "x<REV>.log", 0, "token") == "x-000001.log"
        assert remove_other_names(source, directory, "x-000001.log", "token", never)
        assert all_bodies(directory) == [b"mine", b"one"]
        assert leftovers(directory) == []
        assert not source.exists()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


# ---- what files of nsq-to-file are called, and which options fit together

SOURCE = ["--nsqd-tcp-address=127.0.0.1:4150", "--topic=t"]


def test_host_identifier() -> None:
    assert host_identifier("", "web1.example.com") == "web1"
    assert host_identifier("<SHORT_HOST>@<HOSTNAME>", "web1.example.com") == "web1@web1.example.com"


def test_template() -> None:
    given = "<TOPIC>/<HOST>.<PID><REV>.<DATETIME>"
    assert filename_template(given, "t", "h", has_revisions=True) == f"t/h.{os.getpid()}<REV>.<DATETIME>"
    assert filename_template(given, "t", "h", has_revisions=False) == f"t/h.{os.getpid()}.<DATETIME>"
    assert with_revision("a<REV>.log", 12) == "a-000012.log"


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("..", "%2E."),
        (".", "%2E"),
        (".nsq_to_file.0.json", "%2Ensq_to_file.0.json"),
        ("_nsq_manifest", "%5Fnsq_manifest"),
        ("_nsq_tables", "%5Fnsq_tables"),
        ("_x.", "_x."),
    ],
)
def test_no_topic_names_a_file_outside_of_the_directory_or_one_of_its_own(topic: str, name: str) -> None:
    assert filename_template("<TOPIC>/<DATETIME>", topic, "h", has_revisions=False) == f"{name}/<DATETIME>"


# --- options


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "<TOPIC>.<HOST><REV>.<DATETIME>.log"),
        (["--gzip"], "<TOPIC>.<HOST><REV>.<DATETIME>.log.gz"),
        (["--compress=zstd", "--format=jsonl"], "<TOPIC>.<HOST><REV>.<DATETIME>.jsonl.zst"),
        (["--compress=zstd", "--format=framed"], "<TOPIC>.<HOST><REV>.<DATETIME>.framed"),
        (["--gzip", "--filename-format=x<REV>.gz"], "x<REV>.gz"),
        (["--format=jsonl", "--filename-format=x.log"], "x.log"),
    ],
)
def test_suffixes(flags: list[str], expected: str) -> None:
    options = PROGRAM.read([*SOURCE, *flags])
    check(options)
    assert common_plan(options).template == expected


@pytest.mark.parametrize(
    ("flags", "revisions", "shared"),
    [
        ([], False, True),
        (["--format=jsonl"], False, True),
        (["--gzip"], True, False),
        (["--format=framed"], True, False),
        (["--rotate-size=1"], True, True),
        (["--rotate-interval=1s"], True, False),
        (["--work-dir=/x"], True, False),
        (["--output-dir=/y", "--work-dir=/y"], False, True),
    ],
)
def test_which_files_are_appended_to(flags: list[str], revisions: bool, shared: bool) -> None:
    plan = common_plan(PROGRAM.read([*SOURCE, *flags]))
    assert (plan.has_revisions, plan.is_shared) == (revisions, shared)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--topic=t"], "--nsqd-tcp-address or --lookupd-http-address required"),
        ([*SOURCE, "--lookupd-http-address=x:1"], "not both"),
        (["--topic=t", "--lookupd-http-address=ftp://x"], "host:port"),
        (SOURCE[:1], "--topic or --topic-pattern required"),
        ([SOURCE[0], "--topic-pattern=x"], "--lookupd-http-address must be specified"),
        ([*SOURCE, "--gzip", "--filename-format=x"], "missing <REV>"),
        ([*SOURCE, "--filename-format="], "must name a file in the output-dir, got ''"),
        ([*SOURCE, "--filename-format=<REV>/"], "must name a file in the output-dir, got '<REV>/'"),
        ([*SOURCE, "--filename-format=/x/<TOPIC>"], "must name a file in the output-dir, got '/x/<TOPIC>'"),
        ([*SOURCE, "--filename-format=x/../../y"], "must name a file in the output-dir, got 'x/../../y'"),
        (
            [*SOURCE, "--filename-format=<DATETIME>", "--datetime-format=/%H"],
            "must name a file in the output-dir, got '/%H'",
        ),
        ([*SOURCE, "--format=framed", "--filename-format=x"], "missing <REV>"),
        ([*SOURCE, "--format=framed", "--gzip"], "none or zstd"),
        ([*SOURCE, "--gzip", "--compress=zstd"], "contradict"),
        ([*SOURCE, "--topic=bad topic"], "not a valid name"),
        ([*SOURCE, "--consumer-opt=nonsense,1"], "nonsense"),
        ([*SOURCE, "--table=delta"], "--table needs --format=parquet"),
        ([*SOURCE, "--output-dir=s3://b/x", "--filename-format=x.log"], "missing <REV>"),
    ],
)
def test_options_that_do_not_fit_together(flags: list[str], says: str) -> None:
    with pytest.raises(BadOptions, match=says):
        check(PROGRAM.read(flags))


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--filename-format=<TOPC><REV>.log", "<TOPC> is unknown; known are <TOPIC>, <HOST>"),
        ("--host-identifier=<HOST>", "<HOST> is unknown; known are <SHORT_HOST>, <HOSTNAME>"),
        ("--datetime-format=%Y%Q", "%Q is unknown; known are %A"),
        ("--datetime-format=%Y%", "% is unknown"),
        ("--topic-pattern=(", "--topic-pattern: missing"),
        ("--gzip-level=10", "--gzip-level must be from 1 to 9, got 10"),
        ("--table=iceberg", "--table must be delta or iceberg:namespace.table, got"),
        ("--output-dir=ftp://host/path", "--output-dir must be a directory, or s3://"),
        ("--output-dir=s3://", "--output-dir must be a directory, or s3://"),
    ],
)
def test_unknown_words_of_names_are_refused(flag: str, says: str) -> None:
    with pytest.raises(BadOptions, match=says):
        PROGRAM.read([flag]).check_values()


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_closed_file_whose_directory_was_moved_waits_for_it(work: Path, is_replaced: bool) -> None:
    """Else the manifest of the new directory would have a file that is not there."""
    file = written(work, work)
    away = work.rename(work.parent / "away")
    if is_replaced:
        work.mkdir()
    with pytest.raises(FileNotFoundError, match="was moved, replaced or mounted over"):
        file.finish()
    assert not work.exists() or os.listdir(work) == []
    if is_replaced:
        work.rmdir()
    away.rename(work)
    assert file.finish().path == "x-000000.log"
