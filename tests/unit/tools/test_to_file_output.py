"""A claim is replaced as a whole: after a kill, the next start can read it and finish its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nsq_tools.to_file.output import Claim, ClaimDetails, left_behind

DETAILS = ClaimDetails("t", "c", "lines", "gzip", "x<REV>.log.gz", 0, "x-000000.log.gz", "/output", is_shared=False)


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
