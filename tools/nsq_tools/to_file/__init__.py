"""nsq-to-file: archives the messages of topics in files.

options       the settings
program       its name, what it does, and examples
log_parts     the messages of each nsqd in a file, and their position in its log
formats       encoding batches, scanning and converting files
output        files that are being written: appending, syncing, claims; the manifest
destinations  object stores and tables of Delta and Iceberg, for finished files
finishing     names; moving closed files, and files that an earlier run left, to their names
archive       the files of one topic, one after the other; rotation
topic_writer  one topic: its consumer and archive; finishes messages after the sync               gevent
service       all topics of a process, and signals                                                gevent

A message is finished (FIN) only after it was synced to the disk. What was written and not yet synced stays in memory,
and is written again after an error.

Threads
Archive  one thread at a time writes, while the greenlet of its topic waits; the messages that arrive go to the `TopicWriter`
FinishedFile  one thread at a time moves it, while the greenlet of the `Finisher` waits
Claim  the thread that has its file
Service._warned  threads of all topics add to it: a text is warned of once or, at the same moment, twice
"""
