"""A replay that is killed at any moment and goes on sends each acknowledged message once, and misses none."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay.checkpoint import open_checkpoint
from nsq_spark.replay.job import Destination, Job, Pacing, Safety, Selection
from tests.support.archives import BASE_NS, Message, compressed
from tests.support.examples import examples
from tests.support.replay import Killed, PlayedNsqd, files_of, replayed, write_framed


def archive(directory: Path, chance: random.Random, *, is_shuffled: bool) -> list[Message]:
    """Files of two topics that overlap in time; one that can be split, one that cannot."""
    written = []
    for number, topic in enumerate(("clicks", "clicks", "orders")):
        some = [
            Message(b"%d-%d" % (number, n), topic, timestamp_ns=BASE_NS + n * 1000 + chance.randrange(1500), id=f"{n:016x}")
            for n in range(120)
        ]
        if not is_shuffled:
            some.sort(key=lambda message: message.known_ns)
        path = write_framed(directory / f"{topic}.{number}.framed", some, record=7)
        if number == 1:
            packed = directory / f"{topic}.{number}.framed.gz"
            packed.write_bytes(compressed(path.read_bytes(), "gzip"))
            path.unlink()
        written += some
    return written


@pytest.mark.parametrize("is_ordered", [False, True], ids=["by file", "by time"])
@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_it_goes_on_where_it_was_killed(is_ordered: bool, data: st.DataObject) -> None:
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    with TemporaryDirectory() as directory:
        (Path(directory) / "archive").mkdir()
        written = archive(Path(directory) / "archive", chance, is_shuffled=data.draw(st.booleans()))
        job = Job(
            (f"{directory}/archive",),
            Selection(Wanted(), grep=data.draw(st.sampled_from([None, "3"])), sample=data.draw(st.sampled_from([None, 0.6]))),
            Destination(("played:1",), batch_bytes=data.draw(st.integers(20, 200))),
            Pacing(by_time=is_ordered),
            Safety(f"{directory}/checkpoint"),
            split_bytes=2048,
        )
        files = files_of(Path(directory) / "archive")
        whole = PlayedNsqd()
        replayed(job, files, whole)
        stored: list[bytes] = []
        acknowledged = 0
        for dies_at in data.draw(st.lists(st.integers(0, 20), max_size=4)) + [None]:
            checkpoint = open_checkpoint(job, files)
            assert checkpoint is not None
            assert checkpoint.acknowledged <= len(stored)
            nsqd = PlayedNsqd(dies_at)
            split_bytes, slots = data.draw(st.sampled_from([1 << 10, 1 << 20])), data.draw(st.integers(1, 3))
            with contextlib.suppress(Killed):
                replayed(replace(job, split_bytes=split_bytes), files, nsqd, slots, checkpoint)
            checkpoint.close()
            stored += nsqd.bodies
            acknowledged = len(stored)
        assert Counter(stored) == whole.counts()
        if job.selection.grep is None and job.selection.sample is None:
            assert Counter(stored) == Counter(message.body for message in written)
        last = open_checkpoint(job, files)
        assert last is not None and last.acknowledged == acknowledged
        last.close()
