"""Reads whatever keeps messages: archives of nsq-to-file and of Go's nsq_to_file, logs of nsqd and Go's disk queues.

listing      which files there are, and what they are              formats: how they are recognised
splits       who reads which part of them                                                        pure
read         a part as chunks: columns of messages of one topic    chunk, payload, columns: what these are
records      the walk through files of checksummed records         framed, topic_log: what is in a record
lines, jsonl, parquet, go_queue: one reader each
compression  gzip and zstd around any of them
growing      files that are still written to: up to where they are whole
hours        times in the names of files that keep none            go_copies: one copy of what Go's queues hold
storage      files: local ones, and all that pyarrow opens         remote: with Spark's settings, hadoop: the others
damage       what is done about bytes that cannot be read

    storage = Storage()
    splits = plan_splits(list_files(["/archive"], storage))
    for chunk in read(splits[0], storage, Wanted(), Damage("fail")): ...

No Spark and no gevent in here: executors import it.
"""
