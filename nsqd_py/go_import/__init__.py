"""Taking over from Go's nsqd: what its data directory holds becomes ours, once.

`take_over` is what a start calls: it reads all queues (`nsqd_py.diskqueue.go_queue`), lets `topics` write log files and
journals of them into a folder, and `moving` put those into their places and Go's files aside.
"""
