"""Reading the messages of a topic by sequence number: from memory, or from its log.

batch_cache     the newest batches of a topic, in memory
message_reader  reads messages from the cache or the log; when a message was published
lookahead       reads requeued messages before they are needed
unreadable      ranges of messages that could not be read, and when to try again
"""
