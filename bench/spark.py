"""Spark's side of a row: `python -m bench.spark read|write HOST:PORT`, with the output of `bench.load`.

`read` counts the rows of an archive, `write` publishes rows. Each does it once before it is measured.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame

from nsq_spark import register
from nsq_spark.session import quiet_session
from nsqd_py.diskqueue.messages import Messages, encode_messages
from nsqd_py.diskqueue.records import FileHeader

_READ_ROWS, _WRITTEN_ROWS = 2_000_000, 200_000
_PER_RECORD = 2500
_START_NS = 1_700_000_000_000_000_000


def write_archive(path: Path, messages: int) -> None:
    """Write an archive as nsq-to-file does with --format=framed: messages of 200 bytes of JSON, 2500 in a record."""
    bodies = [
        f'{{"level":"info","number":{number},"text":"'.ljust(198, "x").encode() + b'"}'
        for number in range(2500)
    ]
    ids = [b"%016x" % number for number in range(_PER_RECORD)]
    attempts = [1] * _PER_RECORD
    with path.open("wb") as file:
        file.write(FileHeader(1, 0, 0).encode())
        for first in range(0, messages, _PER_RECORD):
            times_ns = range(_START_NS + first, _START_NS + first + _PER_RECORD)
            columns = Messages("load00000", "archive", "127.0.0.1:4150", times_ns, attempts, ids, bodies)
            file.write(encode_messages(columns, first, 1))


def publish(rows: DataFrame, address: str) -> None:
    """Write the rows to a topic of an nsqd."""
    options = {"nsqdTcpAddress": address, "topic": "load00000"}
    rows.write.format("nsq").mode("append").options(**options).save()


def main(job: str, address: str) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as directory, quiet_session("local[2]") as spark:
        register(spark)
        write_archive(Path(directory) / "archive.nsqf", _READ_ROWS)
        read = spark.read.format("nsq").load(directory)
        written = spark.range(_WRITTEN_ROWS).selectExpr("rpad(CAST(id AS STRING), 200, 'x') AS body")
        for is_measured in (False, True):
            if is_measured:
                print("measuring", flush=True)
            started_s = time.perf_counter()
            count = read.count() if job == "read" else _WRITTEN_ROWS
            if job == "write":
                publish(written, address)
            rate = count / (time.perf_counter() - started_s)
    print(json.dumps({"published_s": rate, "consumed_s": 0, "errors": 0}))


if __name__ == "__main__":
    main(*sys.argv[1:])
