"""`nsq`, a data source of PySpark: archives as tables and streams, and tables and streams into topics.

data_source    what Spark registers; which class does what     options: all of them, by their names
archive_table  archives as tables that Spark's own readers read
batch_reader   which task reads what, and the reading          columns: which columns there are
stream_reader  the same, batch after batch                     offsets: how far it is, and what it has to remember
               portions: how much of which file is next, and which task reads it
live           a live topic, from what its nsqds keep
writer         what a task publishes

PySpark finds it by the package `pyspark_nsq`, where that is installed.

Executors import this, and no gevent.
"""

from __future__ import annotations

from nsq_spark.source.data_source import NsqDataSource as NsqDataSource
from nsq_spark.source.data_source import register as register
