"""Two spark-compact on a table: one at a time adds to it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from nsq_spark.compact import alone
from nsq_spark.compact.alone import PREFIX, alone_in
from tests.support.s3 import make_bucket

REFUSED = r"another spark-compact adds to it \(.+:%d, since 20.*Z?\): start again when it has ended; if it was killed, remove"


def marks(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{PREFIX}*"))


def test_the_second_one_is_refused_and_names_the_first_one(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    with alone_in(str(directory), {}) as first:
        (mark,) = marks(directory)
        with pytest.raises(OSError, match=REFUSED % os.getpid()) as refused, alone_in(str(directory), {}):
            pass
        assert str(mark) in str(refused.value)
        assert marks(directory) == [mark], "the second one has taken its mark away"
        first.check_alone()
    assert marks(directory) == []
    with alone_in(str(directory), {}):
        pass


def test_two_that_begin_at_once_do_not_both_go_on(tmp_path: Path) -> None:
    both = [alone.Mark(str(tmp_path), {}) for _ in range(2)]
    for mark in both:
        mark.write()
    for mark in both:
        with pytest.raises(OSError, match="another spark-compact"):
            mark.check_alone()


@pytest.mark.parametrize(("age_s", "is_refused"), [(500, True), (700, False)])
def test_the_mark_of_a_killed_one_counts_for_ten_minutes(
    tmp_path: Path, age_s: int, is_refused: bool
) -> None:
    killed = alone.Mark(str(tmp_path), {})
    killed.write()
    (mark,) = marks(tmp_path)
    then_s = mark.stat().st_mtime - age_s
    os.utime(mark, (then_s, then_s))
    if is_refused:
        with pytest.raises(OSError, match="another spark-compact"), alone_in(str(tmp_path), {}):
            pass
        return
    with alone_in(str(tmp_path), {}):
        assert not mark.exists()
        with pytest.raises(
            OSError, match="the mark .* of this run was removed"
        ):  # it was not killed, only stopped
            killed.check_alone()


def test_a_mark_that_cannot_be_read_counts(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}x.json").write_bytes(b"{")
    with pytest.raises(OSError, match="adds to it: start again"), alone_in(str(tmp_path), {}):
        pass


def test_a_run_writes_its_mark_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "_RENEW_S", 0.01)
    with alone_in(str(tmp_path), {}):
        (mark,) = marks(tmp_path)
        os.utime(mark, (0, 0))
        while not mark.stat().st_mtime:  # the test's time limit ends this
            pass
        assert "owner" in json.loads(mark.read_bytes() or b'{"owner": ""}')


def test_a_table_in_a_bucket(endpoint: str) -> None:
    """Whose directory is there with its first object."""
    settings = {
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint.region": "us-east-1",
    }
    directory = f"{make_bucket(endpoint)}/lake/messages".replace("s3:", "s3a:")
    for _ in range(2):
        with alone_in(directory, settings) as first:
            with (
                pytest.raises(OSError, match=REFUSED % os.getpid()) as refused,
                alone_in(directory, settings),
            ):
                pass
            assert f"{directory}/{PREFIX}" in str(refused.value)
            first.check_alone()
