"""The connection of an NSQ client.

connection       reads commands and executes them
fast_publishing  the shortcut for a client that sends one PUB and waits for its answer; nsqd works without it
commands         the handler of each command
client           a client as topics and channels see it: publisher and consumer, with what it has in flight
client_stream    what lies below: negotiated layers, heartbeats, errors; clients that cause too many are served more slowly
"""
