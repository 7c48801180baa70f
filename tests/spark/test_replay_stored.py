"""What the logs of a real nsqd say of messages that are stored twice."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.replay.job import Destination
from nsq_spark.replay.stored import StoredBefore
from tests.support.network import free_ports
from tests.support.nsqd_process import MakeNsqd, wait_until
from tests.support.tool_process import publish


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, nsqd answers later."""
    monkeypatch.setattr("nsq_spark.replay.stored._TIMEOUT_S", 60.0)


def test_the_logs_say_how_many_are_stored_twice(make_nsqd: MakeNsqd) -> None:
    port = free_ports(1)[0]
    nsqd = make_nsqd(f"--tcp-address=127.0.0.1:{port}", f"--http-address=127.0.0.1:{port + 1}")
    publish(nsqd, "orders", b"before")
    stored = StoredBefore(Destination((f"127.0.0.1:{port}",)))
    for _ in range(5):
        publish(nsqd, "orders", b"x")
    wait_until((nsqd.data_path / "nsqd.epochs").exists)  # it is written soon after the first question
    nsqd.restart(clean=False)
    assert stored.duplicates({"orders": 3}) == 2
    with pytest.raises(ArchiveError, match="the logs of topic orders have fewer messages than were sent"):
        stored.duplicates({"orders": 6})


def test_it_says_why_it_cannot_know(make_nsqd: MakeNsqd) -> None:
    low, high = free_ports(2)
    nsqd = make_nsqd(f"--tcp-address=127.0.0.1:{low}", f"--http-address=127.0.0.1:{high + 1}")
    stored = StoredBefore(Destination((f"127.0.0.1:{low}",)))
    publish(nsqd, "orders", b"x")
    with pytest.raises(ArchiveError, match=f"127.0.0.1:{low + 1}"):
        stored.duplicates({"orders": 1})
