"""The journal of a channel: which of its messages are finished, and which wait.

ranges   sets of sequence numbers, or of bytes, as ranges                             pure
epochs   the epochs of a log, and the file `nsqd.epochs`                              pure
waits    runs of waiting messages, packed as in a journal                             pure
journal  the encoding of a journal, and its file

Threads
Journal  one writer at a time: the event loop waits with `JournalWriter.settle` before it writes itself. A sync in a thread sets
    `is_unsynced` to False before it begins, a write sets it to True after its end
LargeSnapshot  a thread sets `fd` and `size`; the event loop uses them after its end. `since` belongs to the writer of the
    journal, whose end `finish` waits for
"""
