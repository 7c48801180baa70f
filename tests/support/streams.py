"""Runs of a streaming query on all that is there, also those that crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


class Crash(Exception):
    pass


def run_query(
    stream: Any, checkpoint: Path, batches: dict[int, list[Any]], crash_in: int | None = None
) -> None:
    """Run a query to its end, or until it crashes behind the rows of a batch; put the first column of rows into `batches`."""

    def take(frame: Any, number: int) -> None:
        batches[number] = [row[0] for row in frame.collect()]
        if number == crash_in:
            raise Crash

    writing = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start()
    try:
        if crash_in is None:
            assert query.awaitTermination(120)
        else:
            with pytest.raises(Exception, match="Crash"):
                query.awaitTermination(120)
    finally:
        query.stop()
