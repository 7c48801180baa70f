"""nsq-to-file: the messages of topics, in files.

options      the settings                                                       pure
naming       what files are called: <TOPIC>, <DATETIME>, <REV>                  pure
rotation     when a file is full or old                                         pure
portions     parts of what came from nsqd, in columns                           pure
formats      a module each: portions as bytes, and what a file of them holds
compression  members and frames that are complete whenever they are written
output       one open file: appended to as a whole or not at all, synced
claims       which files are being written, also while others look and after a kill
placing      a finished file gets its name and never takes another's
manifest     a line for each finished file
finishing    what is done with a file that gets no more messages
repair       files that an earlier run left behind
archive      the files of one topic, one after the other
keeper       one topic: consumer, archive, and when what is written is finished  gevent
errors       sentences for errors of the system
watch        topics by pattern                                                   gevent
service      all topics of a process, and its signals                            gevent

Nothing is finished (FIN) before it is synced to the disk. What was written and not yet synced is kept in memory,
so that after an error it is written again from there.
"""
