"""Why the logs of nsqd do not say what is stored twice; texts that a replay prints."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from nsq_spark.archive.splits import ArchiveError
from nsq_spark.replay.job import Destination
from nsq_spark.replay.stored import StoredBefore
from tests.support.network import free_ports


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_reason_has_no_login(scheme: str) -> None:
    (port,) = free_ports(1)
    stored = StoredBefore(Destination((), (f"{scheme}://me:pass%3Aword@127.0.0.1:{port}/lookup?key=secret",)))
    with pytest.raises(ArchiveError) as error:
        stored.duplicates({})
    assert str(error.value) == f"nsq: {scheme}://127.0.0.1:{port}: Connection refused"
