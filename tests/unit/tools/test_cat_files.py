"""Which files nsq-cat reads of a directory, also while its files come and go."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsq_tools.cat.files import files_of


def named(*paths: Path) -> list[tuple[str, str]]:
    return [
        (name, "" if failure is None else str(failure))
        for name, failure in files_of([str(path) for path in paths])
    ]


def test_a_directory_that_cannot_be_read_is_reported_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A superuser may read any directory, so the system's answer is replaced."""
    for name in ("a", "closed", "z"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.log").write_bytes(b"1\n")
    scandir = os.scandir

    def answer(path: str) -> Iterator[os.DirEntry[str]]:
        if path.endswith("/closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", answer)
    found = named(tmp_path)
    assert found == [
        (f"{tmp_path}/a/x.log", ""),
        (f"{tmp_path}/z/x.log", ""),
        (f"{tmp_path}/closed", "Permission denied"),
    ]


def test_claims_that_come_and_go_while_a_directory_is_listed(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}.log").write_bytes(b"1\n")
    stop = threading.Event()

    def write_and_finish() -> None:
        claim = tmp_path / ".nsq_to_file.0a1b.json"
        while not stop.is_set():
            claim.write_text('{"work_name":"new.log"}')
            claim.unlink()

    writer = threading.Thread(target=write_and_finish)
    writer.start()
    try:
        for _ in range(200):
            assert named(tmp_path) == [(f"{tmp_path}/{number:02}.log", "") for number in range(50)]
    finally:
        stop.set()
        writer.join()


def test_a_relative_name_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "x.log").write_bytes(b"1\n")
    monkeypatch.chdir(tmp_path)
    assert named(Path("day")) == [("day/x.log", "")]
    assert named(Path(".")) == [("./day/x.log", "")]
    assert [name for name, _ in files_of(["day/", "day"])] == ["day/x.log"]


@pytest.mark.parametrize(
    "name", ["nsqd.dat", "nsqd.stop", "nsqd.clock", "nsqd.epochs", "nsqd.member", "nsqd.standbys"]
)
def test_files_of_nsqd_are_passed_over_among_several_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"1")
    (tmp_path / "x.log").write_bytes(b"1\n")
    assert named(tmp_path / name, tmp_path / "x.log") == [(f"{tmp_path}/x.log", "")]
    assert named(tmp_path / name) == [(f"{tmp_path}/{name}", "")]
