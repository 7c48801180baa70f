"""A disk with 0 bytes free, at the start and when damage is found: nsqd says so, and loses nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.diskqueue.journals.journal import journal_name
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from nsqd_py.errors import StartError
from tests.support import wire
from tests.support.broker_life import TOPIC, Life
from tests.support.cluster import hung
from tests.support.disk_calls import WRITES
from tests.unit.fakes import SECOND

pytestmark = pytest.mark.ours

LOG = f"{TOPIC}.{0:020d}.log"


def full(*_: Any, **__: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def left(tmp_path) -> Path:
    """What a killed nsqd left: a topic with messages in its log."""
    life = Life(tmp_path, lambda *_: None)
    life.create()
    life.publish(b"first")
    life.publish(b"second")
    life.end()
    return tmp_path


def test_a_start_names_the_full_disk(left):
    for channel in ("fast", "slow"):  # a lost journal is written again
        (left / journal_name(TOPIC, channel)).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nsqd_py.diskqueue.journals.journal.os.write", full)
        with pytest.raises(StartError) as refused:
            Life(left, lambda *_: None)
    text = str(refused.value)
    assert text.startswith(f"the disk of {left} is full")
    assert "failed to read" not in text
    life = Life(left, lambda *_: None)
    assert life.drain("fast") == [b"first", b"second"]
    life.end()


def test_damage_that_cannot_be_kept_aside_names_the_full_disk(left):
    path = left / LOG
    data = bytearray(path.read_bytes())
    place = FILE_HEADER_BYTES + RECORD_HEADER_BYTES + 4
    data[place] ^= 1
    life = Life(left, lambda *_: None, mem_queue_size=0)
    path.write_bytes(data)
    consumer = life.consumer("fast", rdy=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nsqd_py.diskqueue.recovery.os.write", full)
        life.settle()
    (error,) = life.world.log.errors
    assert "the disk is full" in error
    assert "could not be kept aside" in error
    assert "failed to read" not in error
    assert list(left.glob("*.damaged*")) == []
    life.pass_time(100 * SECOND)
    assert [message.body for message in consumer.take()] == [b"second"]
    (aside,) = left.glob("*.damaged")
    assert aside.stat().st_size == RECORD_HEADER_BYTES + 4 + len(b"first")
    life.end()


@pytest.mark.parametrize("is_first", [True, False])
def test_no_publish_of_a_pipeline_is_answered_ok(make_faulty, is_first):
    """Another client published to the second topic before, in the same event-loop iteration: that topic fails first."""
    nsqd = make_faulty()
    for topic in ("a", "b"):
        nsqd.create(topic, "channel")
    nsqd.set_rules(*({"call": call, "error": "ENOSPC"} for call in (*WRITES, "posix_fallocate")))
    with nsqd.connect(heartbeat_interval=-1) as one, nsqd.connect(heartbeat_interval=-1) as other:
        pipeline, another = (one, other) if is_first else (other, one)
        with hung(nsqd):
            another.send(wire.pub("b", b"x"))
            pipeline.send(wire.pub("a", b"x"), wire.pub("a", b"x"), wire.pub("b", b"x"))
        assert [frame.data[:13] for frame in pipeline.rest()] == [b"E_PUB_FAILED "]
        assert [frame.data[:13] for frame in another.rest()] == [b"E_PUB_FAILED "]
    for topic in ("a", "b"):
        assert nsqd.wait_for_channel(topic, "channel", depth=0)["message_count"] == 0
