"""The connection of an NSQ client.

connection       reads commands; the handler of each command
fast_publishing  the shortcut for a client that sends one PUB and waits for its answer; nsqd works without it
client           a client as topics and channels see it: publisher and consumer, with what it has in flight; negotiated layers,
                 heartbeats, errors; clients that cause too many errors are served more slowly
last_answers     what consumers answer while nsqd stops
"""
