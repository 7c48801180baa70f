"""A store: the messages of one nsqd in a bucket or directory, from which they outlive its machine (docs/store.md).

layout     the names of a store's objects, its head, and the log files in it
rounds     a round as an object
image      the state of a store, by applying its rounds; readers begin here
ownership  one writer at a time: claims, and rounds that only their owner can add
options    the settings

Programs without nsqd read a store by `StoreReader`. They need no gevent, and for a directory no package.
"""
