"""Readers of whatever keeps messages: archives of nsq-to-file and of Go's nsq_to_file, logs of nsqd, Go's disk queues.

listing      which files there are, and what they are              formats: how they are recognised; names: globs, hours
sidecars     what the files beside a file say about it: manifests, positions of Go's queues
splits       which task reads which part of a file                                               pure
read         a part as chunks: columns of messages of one topic    chunk, payload, columns: what these are
records      the walk through files of checksummed records         record_file: what is in a record
lines, jsonl, parquet, go_queue: one reader each                   tables: rows of jsonl and parquet as chunks
compression  gzip and zstd around any of them
storage      finds, lists and opens files                          files: open ones, to be read at any place
remote       file systems with Spark's settings, and through Hadoop
damage       errors, and policies for bytes that cannot be read    wanted: topics and times to read

    storage = Storage()
    splits = plan_splits(list_files(["/archive"], storage))
    for chunk in read(splits[0], storage, Wanted(), Damage("fail")): ...

No Spark and no gevent in here: executors import it.
"""
