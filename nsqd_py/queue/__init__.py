"""Topics, channels, and the delivery of messages to consumers. No module here opens a socket or a file.

topic               takes publishes, writes batches to its log in the event loop or in a thread, releases messages to channels
reading             the newest messages in memory, the others in the log; requeued ones are read before they are needed
channel             a channel: its consumers, and their answers
position            the state of a channel's messages by sequence number
journaled_position  a position, with the changes that are not in its journal yet
delivery            sends messages to ready consumers; messages that cannot be read are retried later
publish_buffer      collects the publishes of one event-loop iteration, and makes batches of them
latency             percentiles of the time from publish to FIN
storage             interfaces of what is used here on disk: a topic's log, a channel's journal; the error for no space
dead_letters        moves messages with too many attempts to another topic; the policy that a topic's name has
expiry              drops messages older than --message-ttl
disk_limits         limits on the disk space of topics

Threads
JournalChange  owned by the event loop, by one thread that writes it, and by the event loop again; its lists are copies
"""
