"""`nsq`, a data source of PySpark: archives as tables, live topics as tables and streams, and both into topics.

data_source     what Spark registers: the source, its readers and its writers
declaration     options as texts: their kinds, and the errors that name them
options         the options of archives and of writing, declared once, and the columns of a schema
archive_table   archives as tables that Spark's own readers read
batch_reader    plans and reads an archive as one table
live_options    the options of live topics, and the offsets of a stream
nsqds           the nsqds of topics, and what each keeps of them
known_logs      which logs there are under which names, where a query is in them, and which are gone
archived_files  which messages the files of an archive have
log_archive     what an archive has of one log: its messages in order, and which are missing
history         an archive, by log: the files that are read for messages between two ids
store_history   stores of nsqd among the paths of an archive
store_planner   which messages a stream reads of stores, without nsqd
planner         which messages a query reads of logs, and which of the archive
live            reads topics as a table or a stream, with or without an archive
writer          publishes the rows of a task

Spark finds the source by the package `pyspark_nsq`, where that is installed. Executors import this room, so no file
here imports gevent.
"""

from __future__ import annotations

from nsq_spark.source.data_source import NsqDataSource as NsqDataSource
from nsq_spark.source.data_source import register as register
