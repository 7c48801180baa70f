"""How far --rate of to-nsq reads ahead."""

from __future__ import annotations

import pytest

from nsq_tools.to_nsq.pace import CHUNK_BYTES, Pace


@pytest.mark.parametrize("record_bytes", [2, 7, 1001, 900_000])
@pytest.mark.parametrize("rate", [1, 7, 50, 100_000])
def test_no_read_brings_more_than_a_second_of_the_rate(rate: int, record_bytes: int) -> None:
    pace = Pace(rate)
    unended_bytes = 0
    for _ in range(100):
        size_bytes = pace.chunk_bytes
        count, unended_bytes = divmod(unended_bytes + size_bytes, record_bytes)
        assert count <= rate + 1  # the first one began in an earlier read
        pace.has_read(size_bytes, count)
    assert pace.chunk_bytes >= min(CHUNK_BYTES, rate * record_bytes // 4), "and reads are not small for ever"


def test_without_a_rate_reads_are_large_and_nothing_waits() -> None:
    pace = Pace(0)
    pace.has_read(10, 5)
    pace.has_sent(1000, 1.0)
    assert (pace.chunk_bytes, pace.step(1000), pace.wait_s(1.0)) == (CHUNK_BYTES, 1000, 0.0)


def test_messages_leave_in_steps() -> None:
    pace = Pace(100)
    assert pace.step(50) == 2
    pace.has_sent(2, now_s=10.0)
    assert pace.wait_s(10.0) == pytest.approx(0.02)
    assert pace.wait_s(10.5) == 0.0
