"""Takes over the data directory of Go's nsqd, once, at the start.

signs       recognises such a directory; without one, nothing else here is imported
take_over   the import, step by step
existing    what this nsqd has in the directory already
repeats     finds messages that Go's nsqd left twice
topics      writes a topic's log, and the journals of its channels
log_writer  writes log files of messages with their own ids and times
moving      moves new files into place and Go's files aside, safe against a kill
"""
