"""The measurement that docs/performance.md quotes."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A start of Spark for a measurement, which nothing else is made of.
pytestmark = [pytest.mark.ours, pytest.mark.slow, pytest.mark.xdist_group("clusters")]


def test_it_compares_readers(spark_environment: dict[str, str]) -> None:
    options = ("--messages=200", "--rounds=1", "--only=^200 messages: parquet, count", "--sides=Spark|named")
    command = [sys.executable, "-m", "bench.archives", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=spark_environment)
    assert ended.returncode == 0, ended.stderr
    _, start, head, _, *rows = [line.strip("| ").split(" | ") for line in ended.stdout.splitlines()]
    assert start[0].startswith("Spark's start: ")
    assert [row[:2] for row in rows] == [
        ["200 messages: parquet, count()", side] for side in ("Spark", 'format("nsq"), columns named')
    ]
    for row in rows:
        assert len(row) == len(head)
        cpu_s, driver_mb, workers_mb = (float(row[place].replace(",", "")) for place in (2, 4, 5))
        assert cpu_s > 0 and driver_mb > 100
    assert workers_mb > 0
    assert float(rows[1][3].split()[0]) > 0
