"""The heart: topics, channels, and which message goes to which consumer. No module here opens a socket or a file.

topic           takes publishes, writes batches to its log, releases messages to channels
topic_policy    retention, dead letters, time to live and size of a topic, by its name
publish_buffer  the publishes of one event-loop iteration
batch_cache     the newest batches of a topic, in memory
channel         the consumers of a channel, and their answers
position        where a channel stands in the log: released, requeued, deferred, finished
delivery        which ready consumer gets which messages
roles           the interfaces that delivery needs: consumers, source of bodies, listener
in_flight       the in-flight messages of one client, and when they time out
lookahead       reads requeued messages from disk before they are needed
journal_buffer  changes of a position that are not in its journal yet
dead_letters    moves messages with too many attempts to another topic
duplicate_ids   dead letters that have the same id
expiry          drops messages older than --message-ttl
unreadable      sets aside messages that the disk cannot read, and tries again later
disk_limits     limits on what may be written
latency         percentiles of the time from publish to FIN
"""
