"""Writing and reading the logs and journals of topics, also while the disk is slow.

logs            makes the log of a new topic, and has the epochs
journal_writer  writes the positions of channels 20 times a second
slow_disk       writes and reads logs in threads while the disk is slow
stored_reader   reads the stored files of a log for channels
sync            fsync of logs: --sync-every and --sync-timeout

Threads
GroupSync._running  threads replace the value of a topic, which the event loop alone adds and removes: it stays until their job
    has ended, so the size never changes while the event loop iterates
GroupSync._together  a thread reads what the greenlet filled, which then waits for it
JournalWriter  its threads have `JournalChange`s and `LargeSnapshot`s only
LogMaker  threads remove and close files that their logs have let go of, and whose names no other file has
"""
