"""Topics, channels, and the delivery of messages to consumers. No module here opens a socket or a file.

topic           takes publishes, writes batches to its log, releases messages to channels
topic_policy    retention, dead letters, time to live and size of a topic, by its name
publish_buffer  the publishes of one event-loop iteration
batch_cache     the newest batches of a topic, in memory
message_reader  reads messages by sequence number, from memory or from the log
log_writing     writes batches to the log, in the event loop or in a thread
channel         a channel: its consumers, and their answers
position        the state of a channel's messages by sequence number: released, requeued, deferred, finished
delivery        sends messages to ready consumers
roles           the interfaces that delivery needs: consumers, source of bodies, listener
in_flight       the in-flight messages of one client, and when they time out
lookahead       reads requeued messages from disk before they are needed
journal_buffer  changes of a position that are not written to its journal yet
dead_letters    moves messages with too many attempts to another topic
expiry          drops messages older than --message-ttl
unreadable      messages that could not be read from disk, and the delay until the next try
disk_limits     limits on the disk space of topics
oldest          the publish time of the oldest message that waits
latency         percentiles of the time from publish to FIN
"""
