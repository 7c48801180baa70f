"""A store: the messages of one nsqd in a bucket or directory, from which they outlive its machine (docs/store.md).

objects    objects by name, with conditional writes
cloud      ... in a bucket of a cloud
directory  ... as files of a directory
layout     the names of a store's objects, its head, and the log files in it
rounds     a round as an object
image      the state of a store, by applying its rounds; readers begin here
ownership  one writer at a time: claims, and rounds that only their owner can add
history    where the logs of nsqd go on beyond its disk
options    the settings

Programs without nsqd read a store by `image.StoreReader`. They need no gevent, and for `file://` no package.

Threads
BlockCache    threads share it: a lock guards the blocks, and is free during requests
CloudObjects  obstore has threads; they touch nothing of ours
read_rounds   asks for several rounds at once in threads of a pool, which ends with the call
Owner         is used by one thread at a time; nsqd calls it in its threadpool
"""
