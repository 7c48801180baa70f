"""Readers of archives in columns: those of nsq-to-file and Go's nsq_to_file, logs of nsqd, and Go's disk queues.

Files
listing      turns paths, globs and directories into a list of files
names        globs of paths, and the time in a file name
formats      recognises the format of a file
sidecars     reads what lies next to a file: its manifest, or the position of a Go disk queue
storage      finds, lists and opens files, local ones and remote ones
remote       file systems that pyarrow or Hadoop opens, with Spark's settings
files        open files that can be read at any offset
splits       divides files into the parts that tasks read                         pure

Readers
read         reads one part of a file, whatever its format
record_file  the records of `framed` archives and of nsqd's logs
records      finds one record after the other, also behind damage
lines        files of lines, and the format `lines`
jsonl        the format `jsonl`
parquet      the format `parquet`
go_queue     disk queues of Go's nsqd
tables       turns rows of `jsonl` and `parquet` into chunks
compression  gzip and zstd around whole files

Messages
chunk        messages of one topic, in columns
payload      the bodies of a chunk, in one piece of memory
columns      makes Arrow columns of numpy ones
wanted       chooses messages by topic and time
damage       errors, and the policies for bytes that cannot be read

    storage = Storage()
    splits = plan_splits(list_files(["/archive"], storage))
    for chunk in read(splits[0], storage, Wanted(), Damage("fail")): ...

Executors import this room, so no file here imports Spark or gevent.
"""
