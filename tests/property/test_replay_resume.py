"""A replay that is killed at any moment and goes on misses no message, and sends few of them twice."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from nsq_spark.replay.checkpoint.directory import open_checkpoint
from nsq_spark.replay.job import Destination, Job
from tests.support.archives import BASE_NS, Message, compressed
from tests.support.examples import examples
from tests.support.replay import Killed, PlayedNsqd, files_of, replayed, write_framed


def archive(directory: Path, chance: random.Random) -> list[Message]:
    """Files of two topics that overlap in time; one that can be split, one that cannot. Some times are equal."""
    written = []
    for number, topic in enumerate(("clicks", "clicks", "orders")):
        some = [
            Message(
                b"%d-%d" % (number, n),
                topic,
                timestamp_ns=BASE_NS + (n + chance.randrange(20)) // 3,
                id=f"{n:016x}",
            )
            for n in range(120)
        ]
        path = write_framed(directory / f"{topic}.{number}.framed", some, record=7)
        if number == 1:
            packed = directory / f"{topic}.{number}.framed.gz"
            packed.write_bytes(compressed(path.read_bytes(), "gzip"))
            path.unlink()
        written += some
    return written


@pytest.mark.parametrize("is_ordered", [False, True], ids=["by slice", "by time"])
@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_it_goes_on_where_it_was_killed(is_ordered: bool, data: st.DataObject) -> None:
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    with TemporaryDirectory() as directory:
        (Path(directory) / "archive").mkdir()
        written = archive(Path(directory) / "archive", chance)
        job = Job(
            (f"{directory}/archive",),
            destination=Destination(("played:1",), batch_bytes=data.draw(st.integers(20, 200))),
            by_time=is_ordered,
            checkpoint=f"{directory}/checkpoint",
        )
        files = files_of(Path(directory) / "archive")
        slice_messages = data.draw(st.sampled_from((3, 10, 5000)))
        stored = []
        for dies_at in [*data.draw(st.lists(st.integers(0, 20), max_size=4)), None]:
            checkpoint = open_checkpoint(f"{directory}/checkpoint", job, files)
            assert checkpoint.earlier.counts.messages <= len(stored)
            assert len(stored) - checkpoint.earlier.counts.messages <= checkpoint.earlier.unsure
            nsqd = PlayedNsqd(dies_at)
            with contextlib.suppress(Killed), patch("nsq_spark.replay.task.SLICE_MESSAGES", slice_messages):
                replayed(job, files, nsqd, checkpoint)
            checkpoint.close()
            stored += nsqd.bodies
        found = Counter(stored)
        assert found.keys() == {message.body for message in written}
        last = open_checkpoint(f"{directory}/checkpoint", job, files)
        assert found.total() - len(found) <= last.earlier.unsure
        last.close()
