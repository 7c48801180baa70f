"""Archives of NSQ messages on Apache Spark: read as a table, search, and publish again.

    from nsq_spark import NsqDataSource
    spark.dataSource.register(NsqDataSource)

archive        readers of all kinds of files that messages are saved in; no Spark in it
source         the data source `nsq` of PySpark
replay         `spark-replay`: publish messages of an archive again
compact        `spark-compact`: stores of nsqd become large Parquet files and tables

schema         the columns of a message, for pyarrow and for Spark
session        starts Spark, quietly
publisher      publishes the messages of a task, for `source` and `replay`

Importing this package imports nothing else: executors import modules in it, and need neither gevent nor the data
source for that.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsq_spark.source.archive_table import nsq_archive as nsq_archive
    from nsq_spark.source.data_source import NsqDataSource as NsqDataSource
    from nsq_spark.source.data_source import register as register

# Spark starts Python by this name, else the `python3` on PATH. spark-submit has chosen one when Python starts.
if "PYSPARK_GATEWAY_PORT" not in os.environ:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

_SOURCE = "nsq_spark.source.data_source"
_LAZY = {"NsqDataSource": _SOURCE, "register": _SOURCE, "nsq_archive": "nsq_spark.source.archive_table"}
__all__ = [*_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
