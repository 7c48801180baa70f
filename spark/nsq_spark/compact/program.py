"""The program spark-compact: its name, what it does, and examples for `--help` and the reference page."""

from __future__ import annotations

from nsq_spark.compact.options import CompactOptions
from nsqd_py.settings.program import Program

PROGRAM = Program(
    "spark_compact",
    "spark-compact",
    "Copies the messages of stores of nsqd into large Parquet files, or into a Delta or Iceberg table: those in log files that "
    "do not grow any more. Each message is copied once, whatever is killed and started again: the table says what it has. Run "
    "it daily or hourly; of two at once for a table, the second one is refused.",
    CompactOptions,
    examples=(
        (
            "A Delta table of all topics of a store",
            "spark-compact /var/lib/store --table=delta --output-dir=/lake/messages",
        ),
        (
            "Parquet files of one topic",
            "spark-compact /var/lib/store --topic=orders --output-dir=/lake/orders",
        ),
        (
            "From a bucket into an Iceberg table, on a cluster",
            "spark-compact s3a://bucket/nsq --table=iceberg:nsq.messages --master=spark://10.0.0.1:7077 "
            "--conf=spark.hadoop.fs.s3a.endpoint=http://10.0.0.9:9000",
            "not run: needs a Spark cluster and a store of objects",
        ),
    ),
    argument="store",
)
