"""The archive of what went through NSQ: read as a table, searched, and sent again, on Apache Spark.

schema   the columns of a message, for pyarrow and for Spark
archive  readers of every kind of file that messages are kept in; no Spark in it
source   the data source `nsq` of PySpark
replay   `spark-replay`: what of an archive is sent again, where and how fast

The modules here do nothing when they are imported, and executors import no gevent.
"""
