"""Symbolic links that somebody planted where a program makes, fills or removes a directory: their targets stay as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nsq_tools.to_file import destinations
from nsq_tools.to_file.finishing import make_directories
from nsqd_py.go_import.take_over import ImportFolder
from nsqd_py.runtime.private_files import open_directory
from nsqd_py.standby.copies.set_aside import SetAside
from tests.support.harm import content
from tests.support.tool_process import run_tool

pytestmark = pytest.mark.ours


@pytest.fixture
def victim(tmp_path) -> Path:
    """A directory of somebody else, whose files have the names of ours."""
    directory = tmp_path / "victim"
    (directory / "files").mkdir(parents=True)
    for name in (
        "files/precious",
        "nsqd.dat",
        "t.diskqueue.000000.dat",
        "t.00000000000000000000.log",
        "t:c.cursor",
    ):
        (directory / name).write_bytes(b"of somebody else")
    return directory


def is_refused(link: Path, victim: Path, *flags: str) -> None:
    """Run nsqd-py with a link in place of a directory: one sentence names the link, and the victim has what it had."""
    before = content(victim)
    link.symlink_to(victim)
    refused = run_tool("nsq_apps.nsqd", *flags)
    assert content(victim) == before
    assert refused.returncode == 1
    (sentence,) = refused.stderr.splitlines()
    assert f"{link} is a symbolic link" in sentence
    assert os.readlink(link) == str(victim)


def test_a_backup(make_nsqd, victim, tmp_path):
    nsqd = make_nsqd("--accept-standbys")
    nsqd.post("/pub?topic=t", b"hello")
    flags = (f"--backup-to={tmp_path / 'copy'}", f"--standby-of=127.0.0.1:{nsqd.tcp_port}")
    is_refused(tmp_path / "copy.incomplete", victim, *flags)
    assert not (tmp_path / "copy").exists()


def test_a_restore(make_nsqd, tmp_path):
    nsqd = make_nsqd("--accept-standbys")
    nsqd.post("/pub?topic=t", b"hello")
    made = run_tool(
        "nsq_apps.nsqd", f"--backup-to={tmp_path / 'copy'}", f"--standby-of=127.0.0.1:{nsqd.tcp_port}"
    )
    assert (made.returncode, made.stderr) == (0, "")
    empty = tmp_path / "empty"
    empty.mkdir()
    is_refused(
        tmp_path / "data", empty, f"--restore-from={tmp_path / 'copy'}", f"--data-path={tmp_path / 'data'}"
    )


@pytest.mark.parametrize("name", ["go", "go.tmp"])
def test_an_export_to_go(make_nsqd, victim, tmp_path, name):
    """All files of the victim have names of Go's nsqd: they look like an export that was interrupted."""
    for path in (victim / "files/precious", *victim.glob("*.log"), *victim.glob("*.cursor")):
        path.unlink()
    (victim / "files").rmdir()
    nsqd = make_nsqd()
    nsqd.post("/pub?topic=t", b"hello")
    nsqd.stop()
    is_refused(tmp_path / name, victim, f"--data-path={nsqd.data_path}", f"--export-to-go={tmp_path / 'go'}")


def test_an_import_from_go(victim, tmp_path):
    for name in ("files/precious", "nsqd.dat", "t.diskqueue.000000.dat"):
        (victim / name).unlink()
    (victim / "files").rmdir()
    data = tmp_path / "data"
    data.mkdir()
    flags = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--log-level=fatal")
    is_refused(data / "import", victim, f"--data-path={data}", *flags)


def test_the_folder_for_the_files_of_go(victim, tmp_path):
    """It is planted after the import was committed, when its name is known."""
    (tmp_path / "t.diskqueue.000000.dat").write_bytes(b"")
    folder = ImportFolder(tmp_path)
    folder.path.mkdir()
    marker = folder.commit(["t.diskqueue.000000.dat"], "20260101T000000Z", {})
    (tmp_path / marker.aside).symlink_to(victim)
    before = content(victim)
    with pytest.raises(OSError, match="symbolic link"):
        folder.finish(marker)
    assert content(victim) == before


def test_the_directories_of_a_standby(victim, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    log = data / "u.00000000000000000000.log"
    log.write_bytes(b"mine")
    set_aside = SetAside(data, "20260101")
    set_aside.alone.symlink_to(victim)
    before = content(victim)
    with pytest.raises(OSError, match="symbolic link"):
        set_aside.keep(set_aside.alone, [log])
    assert content(victim) == before


# ---- nsq-to-file: operators may link to another disk, strangers may not


STRANGER = 12345


def by_stranger(link: Path) -> None:
    os.lchown(link, STRANGER, STRANGER)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of another user")
@pytest.mark.parametrize("give", [lambda link: None, by_stranger])
def test_directories_below_the_output_dir(victim, tmp_path, give):
    output = tmp_path / "output"
    (output / "2026").mkdir(parents=True)
    (output / "2026" / "11").symlink_to(victim)
    give(output / "2026" / "11")
    if give is by_stranger:
        with pytest.raises(OSError, match="symbolic link of another user"):
            make_directories(output / "2026" / "11" / "29", output)
        assert not (victim / "29").exists()
    else:
        make_directories(output / "2026" / "11" / "29", output)
        assert (victim / "29").is_dir()


def test_the_notes_about_tables(victim, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    destinations._leave_pointer(str(output), "s3://bucket/table")
    assert [path.name for path in (output / "_nsq_tables").iterdir()] == ["s3%3A%2F%2Fbucket%2Ftable"]
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "_nsq_tables").symlink_to(victim)
    before = {path.name for path in victim.iterdir()}
    with pytest.raises(OSError, match="symbolic link"):
        destinations._leave_pointer(str(planted), "s3://bucket/table")
    assert {path.name for path in victim.iterdir()} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of another user")
def test_a_directory_of_another_user_is_not_our_own(tmp_path):
    tmp_path.joinpath("theirs").mkdir()
    os.chown(tmp_path / "theirs", STRANGER, STRANGER)
    with pytest.raises(OSError, match="belongs to another user"):
        open_directory(tmp_path / "theirs", is_own=True)
    os.close(open_directory(tmp_path / "theirs"))
