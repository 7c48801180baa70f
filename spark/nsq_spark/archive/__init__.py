"""Readers of archives in columns: those of nsq-to-file and Go's nsq_to_file, and logs of nsqd.

Files
names        topics and times in the names of files             pure
listing      turns paths, globs and directories into a list of files
sidecars     reads what lies next to a file: later files of its log, and the manifest of nsq-to-file
store_logs   the log files and the rounds of a store of nsqd, read in place
storage      finds, lists and opens files: local ones, and those that pyarrow or Hadoop opens with Spark's settings
files        what compressed files hold, and files as pyarrow reads them
splits       formats, the parts of files that tasks read, which messages are requested, damage         pure

Readers
read         reads one part of a file, whatever its format
formats      the readers of the formats

chunk        messages of one topic, in columns

    storage = Storage()
    splits = plan_splits(list_files(["/archive"], storage))
    for chunk in read(splits[0], storage, Requested(), Damage("fail")): ...

Executors import this room, so no file here imports Spark or gevent.

Threads
_Recogniser.topics, knows_topics  threads add to a set, and set False; the caller reads them after their end
Companions._last_numbers  threads fill it; two of them may read the same directory, with the same result
Manifests._read, sizes_bytes  threads fill them; two of them may read the same manifest, with the same result
"""
