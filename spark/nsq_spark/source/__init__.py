"""`nsq`, a data source of PySpark: archives as tables and streams, and tables and streams into topics.

data_source    what Spark registers: the source, its readers and its writers
options        the options, declared once
columns        the columns to read or to publish, from the schema that Spark gives
archive_table  archives as tables that Spark's own readers read
batch_reader   plans and reads an archive as one table
stream_reader  reads a growing archive, batch after batch
offsets        how far a stream has read                                         pure
portions       chooses the parts of files for the next batch of a stream
live           reads topics of running nsqds
writer         publishes the rows of a task

Spark finds the source by the package `pyspark_nsq`, where that is installed. Executors import this room, so no file
here imports gevent.
"""

from __future__ import annotations

from nsq_spark.source.data_source import NsqDataSource as NsqDataSource
from nsq_spark.source.data_source import register as register
