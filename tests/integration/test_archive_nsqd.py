"""The data directory of an nsqd is read as an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from tests.support.archives import Message, read_messages, splits_of
from tests.support.nsqd_process import NsqdProcess

MAY_READ_BYTES = 100_000


def archived(nsqd: NsqdProcess, target_bytes: int = MAY_READ_BYTES) -> list[Message]:
    return read_messages(splits_of(Path(nsqd.data_path), target_bytes))


def test_what_was_published_is_there_with_its_ids_and_times(make_nsqd):
    """In the log of ours, and in the disk queue of Go's when nothing is kept in memory."""
    nsqd = make_nsqd("--mem-queue-size=0")
    bodies = [b"%d" % number * (number % 50 + 1) for number in range(2000)]
    with nsqd.connect() as client:
        client.pub("orders", *bodies[:5])
        client.mpub("orders", bodies[5:1000])
        client.mpub("orders", bodies[1000:])
        found = archived(nsqd)
        assert [message.body for message in found] == bodies
        assert {message.topic for message in found} == {"orders"}
    received = nsqd.consume("orders", "ch", len(bodies))
    reported = {(message.known_id, message.body, message.timestamp_ns) for message in found}
    assert reported == {(message.id, message.body, message.timestamp_ns) for message in received}


@pytest.mark.ours
def test_deferred_messages_are_there(nsqd):
    with nsqd.connect() as client:
        client.dpub("orders", 60_000, b"later")
        client.pub("orders", b"now")
    assert [message.body for message in archived(nsqd)] == [b"later", b"now"]
    nsqd.restart(clean=False)
    assert [message.body for message in archived(nsqd)] == [b"later", b"now"]
