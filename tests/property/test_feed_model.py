"""A second reader of the feed: beside a standby, it copies a data path in which everything happens at random."""

from __future__ import annotations

import random
from pathlib import Path

import gevent
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_standby_model import (
    Primary,
    check_copy,
    log_of,
    owed_to,
    remaining,
    run_in_new_directory,
)
from tests.support.broker_life import CHANNELS, Life, work
from tests.support.examples import examples
from tests.support.feed_reader import FeedReader, Mark, copy_after
from tests.unit.fakes import close_descriptors


def check_files(primary: Primary, path: Path) -> None:
    """The log files of a reader that has everything are those of the primary, byte for byte."""
    files = {file.path.name: file.read(0, file.end_offset) for file in log_of(primary).files}
    assert {each.name: each.read_bytes() for each in path.glob("*.log")} == files


def check_cut(primary: Primary, reader: FeedReader, cut: int, path: Path) -> None:
    """After `cut` pieces, the copy has what was acknowledged when its last whole round began, and is not finished."""
    copy_after(reader.taken[:cut], path)
    found = remaining(Life(path, lambda *_: None))
    began = max(piece.began for piece, _ in reader.taken[:cut] if isinstance(piece, Mark))
    events = [event for _, event in primary.events]
    later = [event for event in events[began : reader.taken[cut - 1][1]] if event[0] != "acknowledged"]
    for name in CHANNELS:
        assert owed_to(name, events[:began] + later) <= set(found[name]), name


def run(seed: int, steps: int, base: Path) -> None:
    chance = random.Random(seed)
    for name in ("primary", "standby"):
        (base / name).mkdir()
    life = Primary(base / "primary", base / "standby", chance)
    life.create()

    def pause() -> None:
        for _ in range(chance.choice((0, 0, 1, 5))):
            gevent.sleep(0)

    reader = FeedReader(life, base / "copy", lambda: len(life.events), pause)
    life.settle()
    work(life, chance, steps)
    life.come_to_rest()
    reader.catch_up()
    check_files(life, base / "copy")
    check_copy(life, base / "standby")  # as if it were alone
    late = FeedReader(life, base / "late")
    late.catch_up()
    check_files(life, base / "late")
    for each in (reader, late):
        each.end()
    for backup in life.backups:
        backup.link.end()
    life.link.end()
    life.end()
    close_descriptors(base)

    first = next(index for index, (piece, _) in enumerate(reader.taken, 1) if isinstance(piece, Mark))
    for cut in {first, *(chance.randint(first, len(reader.taken)) for _ in range(4))}:
        check_cut(life, reader, cut, base / f"cut{cut}")
    expected = remaining(Life(base / "primary", lambda *_: None))
    assert remaining(Life(base / "copy", lambda *_: None)) == expected
    assert remaining(Life(base / "late", lambda *_: None)) == expected


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 40))
def test_a_second_reader_has_the_same_messages(seed: int, steps: int) -> None:
    run_in_new_directory(run, seed, steps)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(20, 150))
def test_the_same_at_length(seed: int, steps: int) -> None:
    run_in_new_directory(run, seed, steps)
