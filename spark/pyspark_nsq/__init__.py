"""The package in which PySpark finds the data source `nsq` by itself: it looks for `DefaultSource` in packages named pyspark_*.

So `spark.read.format("nsq")` and `CREATE TABLE … USING nsq` need no registration where this package is installed.
"""

from __future__ import annotations

from nsq_spark.source.data_source import NsqDataSource


class DefaultSource(NsqDataSource):
    """The same, under the name that PySpark searches for."""
