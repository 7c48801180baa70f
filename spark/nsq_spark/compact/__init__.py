"""spark-compact: the stored log files of nsqd become large Parquet files, in a directory or in a table of Delta or Iceberg.

command  the command, from its options to its exit status
options  the settings, and what they must fulfil
program  its name, what it does, and examples
plan     which log files become which Parquet file                                  pure
task     the work of one task: writes a Parquet file
tables   what they are added to, and what it has already
alone    keeps two runs from adding to a table at once

Executors import `task`, and no gevent.

Threads
Mark  a thread writes it again; its fields are set once
"""
