"""A store: the messages of one nsqd in a bucket or directory, from which they outlive its machine (docs/store.md).

layout     the names of a store's objects, its head, and the log files in it
rounds     a round as an object
image      the state of a store, by applying its rounds; readers begin here
spill      bytes of long ends of log files, in memory or in a file without a name
contents   the messages of a store as parts of log files, for who reads it in place
reading    reads the state at one moment, from the base before if the newest one is damaged
logs_here  whose messages a store has, and which logs a data path has, by their epochs
ownership  one writer at a time: claims, and rounds that only their owner can add
leaving    refuses to leave a store that has messages which the data path lacks
permission  decides whether an nsqd may claim a store
nesting    refuses to begin a store inside another one
options    the settings
start      claims the store, and gets from it what is missing in the data path
part       the store as a part of nsqd: its start and end, and what is shown
waiting    the publishers that wait for the store
uploading  the room that puts bases, rounds and log files into the store
files      the log files that are in the store, and those that must go up
history    nsqd's logs go on in the store where its disk ends
log_bytes  the bytes of log files, in the store and on the disk
restoring  the room that writes what the store has into a data path
checking   checks the objects of a store, for the scrub and --check-data
scrub      reads the objects again and again, and has damaged ones repaired
repairing  repairs nsqd's log files with what the store has
absent     says which unfinished messages a data path lacks
backup     --backup-to and --restore-from: a backup is a store that is written once
requests   counts the requests of a day

Programs without nsqd read a store by `StoreReader`. They need no gevent, and for a directory no package.

Threads
Owner       one thread at a time uses it: the greenlet of the stream waits for each call
Requests    a lock guards its numbers
BlockCache  a lock guards its blocks and the begins of its requests, and is free during requests
"""
