"""`nsq`, a data source of PySpark: archives as tables, live topics as tables and streams, and both into topics.

data_source    what Spark registers: the source, its readers and its writers
options        the options, declared once
columns        the columns to read or to publish, from the schema that Spark gives
archive_table  archives as tables that Spark's own readers read
batch_reader   plans and reads an archive as one table
live_options   the options of a live topic
nsqds          the nsqds of a topic, and what each keeps of it
live_batch     reads a topic as a table
live_stream    reads a topic as a stream
live_offsets   the offsets of a stream                                           pure
writer         publishes the rows of a task

Spark finds the source by the package `pyspark_nsq`, where that is installed. Executors import this room, so no file
here imports gevent.
"""

from __future__ import annotations

from nsq_spark.source.data_source import NsqDataSource as NsqDataSource
from nsq_spark.source.data_source import register as register
