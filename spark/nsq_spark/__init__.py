"""The archive of what went through NSQ: read as a table, searched, and sent again, on Apache Spark.

    from nsq_spark import NsqDataSource
    spark.dataSource.register(NsqDataSource)

schema   the columns of a message, for pyarrow and for Spark
archive  readers of every kind of file that messages are kept in; no Spark in it
source   the data source `nsq` of PySpark
replay   `spark-replay`: what of an archive is sent again, where and how fast

Importing this package imports nothing else: executors import modules in it, and need neither gevent nor the data
source for that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsq_spark.source.archive_table import nsq_archive as nsq_archive
    from nsq_spark.source.data_source import NsqDataSource as NsqDataSource
    from nsq_spark.source.data_source import register as register

_SOURCE = "nsq_spark.source.data_source"
_LAZY = {"NsqDataSource": _SOURCE, "register": _SOURCE, "nsq_archive": "nsq_spark.source.archive_table"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
