"""nsq-to-file: archives the messages of topics in files.

options       the settings
portions      the messages of a batch, or a part of them, in columns                              pure
compression   gzip members and zstd frames, each complete in itself                               pure
formats       encoding portions, scanning and converting files
output        files that are being written: appending, syncing, claims; the manifest
placing       names of files; moving a finished file to its name, without overwriting another
finishing     finishing closed files, and files that an earlier run left unfinished
archive       the files of one topic, one after the other; rotation
topic_writer  one topic: its consumer and archive; finishes messages after the sync               gevent
service       all topics of a process, and signals                                                gevent

A message is finished (FIN) only after it was synced to the disk. What was written and not yet synced is kept in memory,
and is written again after an error.
"""
