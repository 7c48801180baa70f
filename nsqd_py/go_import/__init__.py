"""Imports the data directory of Go's nsqd, once, at the start.

signs       recognises such a directory; without one, no other file here is imported
take_over   the import, step by step
existing    reads the logs and positions that this nsqd has in the directory already
repeats     finds messages that Go's nsqd left twice
go_queue    reads a disk queue of Go's nsqd
topics      writes a topic's log, and the journals of its channels
moving      moves new files into place and Go's files aside, safe against a kill
"""
