"""A claim is replaced as a whole: after a kill, the next start can read it and finish its file."""

from __future__ import annotations

import errno
import fcntl
import os
from dataclasses import replace
from pathlib import Path

import pytest

from nsq_tools.to_file.output import Claim, ClaimDetails, left_behind

DETAILS = ClaimDetails(
    "t", "c", "lines", "gzip", "x<REV>.log.gz", 0, "x-000000.log.gz", "/output", is_shared=False
)


def test_the_old_claim_is_not_written_to(tmp_path: Path) -> None:
    claim = Claim.make(tmp_path, "token", DETAILS)
    [path] = tmp_path.iterdir()
    with path.open("rb") as old:
        (tmp_path / ".nsq_to_file.token.new").touch()  # of a process that was killed
        claim.update(replace(DETAILS, offset=1234567))
        assert b'"offset":0,' in old.read()
    assert list(left_behind(tmp_path)) == []  # it is still locked
    claim.drop()
    [found] = left_behind(tmp_path)
    assert found.details.offset == 1234567
    found.release()
    assert list(tmp_path.iterdir()) == []


def test_a_new_claim_that_no_process_writes_is_removed(tmp_path: Path) -> None:
    """A kill before a claim has its name leaves it; nothing else may be removed."""
    abandoned, written = (tmp_path / f".nsq_to_file.{token}.new" for token in ("00aa", "00bb"))
    others = [tmp_path / "x.new", tmp_path / ".nsq_to_file.00cc.framed", tmp_path / ".nsq_to_file.00dd.new"]
    for path in (abandoned, written, *others[:2]):
        path.touch()
    others[2].symlink_to(others[0])
    with written.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert list(left_behind(tmp_path)) == []
        assert sorted(tmp_path.iterdir()) == sorted([written, *others])
    assert list(left_behind(tmp_path)) == []
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_claim_that_could_not_be_synced_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file gets another claim, and would be listed twice."""

    def fail(directory: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("nsq_tools.to_file.output.sync_directory", fail)
    with pytest.raises(OSError, match="Input/output"):
        Claim.make(tmp_path, "token", DETAILS)
    assert list(tmp_path.iterdir()) == []
