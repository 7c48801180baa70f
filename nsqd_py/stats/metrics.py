"""The metrics of topics, channels, logs, standbys, the store and the process: what /metrics and statsd report of each."""

from __future__ import annotations

from operator import itemgetter

from nsqd_py.debug.memory import PAUSES
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.stats.metric import age_s, counter, gauge, of_replication, time_before_s

TOPIC = (
    counter("nsqd_topic_messages", "Messages published to the topic.", "message_count", "message_count"),
    counter(
        "nsqd_topic_message_bytes",
        "Bytes of messages published to the topic.",
        "message_bytes",
        "message_bytes",
    ),
    gauge("nsqd_topic_depth", "Messages that no channel has received yet.", "depth", "depth"),
    gauge(
        "nsqd_topic_backend_depth",
        "Messages of the depth that are not in memory.",
        "backend_depth",
        "backend_depth",
    ),
    gauge("nsqd_topic_paused", "1 while the topic is paused.", "is_paused"),
    gauge(
        "nsqd_topic_oldest_message_age_seconds",
        "Age of the oldest message of the depth.",
        lambda topic: age_s(topic.oldest_ns),
    ),
    gauge("nsqd_topic_memory_bytes", "Bytes of the topic's messages in memory.", "memory_bytes"),
    counter("nsqd_topic_expired", "Messages that expired before a channel received them.", "expired_count"),
    counter(
        "nsqd_topic_dropped",
        "Messages that an ephemeral topic without channels had no room for in memory.",
        "dropped_count",
    ),
)
# Of a `ChannelOfTopic`.
CHANNEL = (
    counter(
        "nsqd_channel_messages",
        "Messages that the channel received.",
        "channel.message_count",
        "message_count",
    ),
    gauge("nsqd_channel_depth", "Messages queued for delivery.", "channel.depth", "depth"),
    gauge(
        "nsqd_channel_backend_depth",
        "Messages of the depth that are not in memory.",
        lambda row: row.channel.backend_depth(row.topic.first_in_memory),
        "backend_depth",
    ),
    gauge("nsqd_channel_in_flight", "Messages in flight.", "channel.in_flight_count", "in_flight_count"),
    gauge("nsqd_channel_deferred", "Deferred messages.", "channel.deferred_count", "deferred_count"),
    counter(
        "nsqd_channel_requeued", "Messages that consumers requeued.", "channel.requeue_count", "requeue_count"
    ),
    counter(
        "nsqd_channel_timed_out",
        "Messages that timed out in flight.",
        "channel.timeout_count",
        "timeout_count",
    ),
    gauge(
        "nsqd_channel_clients",
        "Connected consumers.",
        lambda row: len(row.channel.clients),
        "clients",
        "client_count",
    ),
    counter("nsqd_channel_finished", "Messages that consumers finished.", "channel.finish_count"),
    gauge("nsqd_channel_paused", "1 while the channel is paused.", "channel.is_paused"),
    gauge(
        "nsqd_channel_oldest_message_age_seconds",
        "Age of the oldest message queued for delivery; 0 if there is none.",
        lambda row: age_s(row.channel.oldest_ns),
    ),
    gauge(
        "nsqd_channel_stalled_seconds",
        "Time since which messages wait, consumers are connected and nothing is finished; 0 below 10 s.",
        lambda row: age_s(row.channel.stalled_ns),
    ),
    gauge(
        "nsqd_channel_most_attempts",
        "Attempts of the message that was requeued or timed out most often, and is not finished.",
        "channel.most_attempts",
    ),
    counter(
        "nsqd_channel_lost",
        "Messages of the channel that could not be read and were skipped.",
        "channel.lost_count",
    ),
    counter(
        "nsqd_channel_dropped",
        "Messages that an ephemeral channel, or a channel of an ephemeral topic, had no room for in memory.",
        "channel.dropped_count",
    ),
    gauge(
        "nsqd_channel_unreadable",
        "Messages that cannot be read at present.",
        "channel.distributor.unreadable_count",
    ),
    counter(
        "nsqd_channel_expired", "Messages that expired in the channel.", "channel.distributor.expired_count"
    ),
    counter(
        "nsqd_channel_dead_letters", "Messages moved to the dead-letter topic.", "channel.dead_letter_count"
    ),
    gauge(
        "nsqd_channel_dead_letters_refused",
        "1 while messages with --max-attempts attempts cannot be moved to the dead-letter topic.",
        lambda row: row.channel.dead_letter_error != "",
    ),
)
# Labelled with the address of the standby, or on the standby with that of its primary.
STANDBY = (
    gauge(
        "nsqd_standby_lag_messages",
        "Messages that the standby has not acknowledged.",
        itemgetter("lag_messages"),
    ),
    gauge("nsqd_standby_lag_bytes", "Bytes that the standby has not acknowledged.", itemgetter("lag_bytes")),
    gauge(
        "nsqd_standby_lag_seconds",
        "Age of the oldest change that is not acknowledged.",
        lambda lag: lag["lag_ms"] / 1000,
    ),
)
# Of the statistics of a store; without labels, since an nsqd has at most one.
STORE = (
    gauge(
        "nsqd_store_lag_messages", "Messages that the store does not have yet.", itemgetter("lag_messages")
    ),
    gauge("nsqd_store_lag_bytes", "Bytes that the store does not have yet.", itemgetter("lag_bytes")),
    gauge(
        "nsqd_store_lag_seconds",
        "Age of the oldest change that the store does not have.",
        lambda store: store["lag_ms"] / 1000,
    ),
    gauge(
        "nsqd_store_interval_seconds",
        "The value of --store-interval.",
        lambda store: store["interval_ms"] / 1000,
    ),
    gauge("nsqd_store_acks", "The value of --store-acks.", itemgetter("acks")),
    gauge(
        "nsqd_store_away_seconds",
        "Time since which the store takes nothing; 0 while it answers.",
        lambda store: store["away_ms"] / 1000,
    ),
    counter(
        "nsqd_store_rounds", "Number of the last object with changes in the store.", itemgetter("last_round")
    ),
    gauge(
        "nsqd_store_last_round_timestamp_seconds",
        "Time of the last object with changes, in seconds since the Unix epoch; 0 before the first one.",
        lambda store: time_before_s(store["last_round_ms_ago"]),
    ),
    gauge("nsqd_store_bytes", "Bytes of the objects in the store.", itemgetter("size_bytes")),
    gauge("nsqd_store_objects", "Objects in the store.", itemgetter("objects")),
    counter("nsqd_store_errors", "Requests that the store did not answer, or refused.", itemgetter("errors")),
    counter(
        "nsqd_store_damaged_objects",
        "Objects of the store that were damaged or missing.",
        itemgetter("damaged_objects"),
    ),
    counter(
        "nsqd_store_repaired_objects",
        "Of the damaged objects of the store, those that were repaired, or are not needed any more.",
        itemgetter("repaired_objects"),
    ),
    gauge(
        "nsqd_store_last_scrub_timestamp_seconds",
        "End of the last complete check of the store's objects, in seconds since the Unix epoch; 0 before the first one.",
        lambda store: store["scrub"]["last_pass"] or 0,
    ),
)
STORE_REQUESTS = counter(
    "nsqd_store_requests", "Requests to the store, by kind: put, get, list or delete.", float
)
LOG = (
    gauge("nsqd_log_bytes", "Bytes of records in the topic's log.", "size_bytes"),
    gauge("nsqd_log_files", "Files of the topic's log.", lambda log: len(log.files)),
    counter(
        "nsqd_log_damaged_bytes", "Bytes of the topic's log that could not be read.", "damage.bytes_found"
    ),
    counter(
        "nsqd_log_repaired_bytes",
        "Damaged bytes of the topic's log that were repaired.",
        "damage.bytes_repaired",
    ),
    counter(
        "nsqd_log_missing_messages",
        "Messages that were in no file of the log at the start.",
        "damage.missing_count",
    ),
    counter(
        "nsqd_log_removed_files",
        "Files that another process removed or cut while nsqd used them.",
        "damage.removed_files",
    ),
    counter("nsqd_log_restored_files", "Removed files that nsqd wrote back.", "damage.restored_files"),
)
BROKER = (
    gauge("nsqd_healthy", "1 if the health in /stats is OK.", lambda broker: broker.health() is None),
    gauge("nsqd_draining", "1 during a drain.", "drain.is_active"),
    gauge(
        "nsqd_answering_alone",
        "1 while publishers are answered without the standbys of --standby-acks.",
        of_replication("standbys", "is_alone"),
    ),
    gauge(
        "nsqd_copy_damaged_files",
        "Files of a standby's copy that are damaged or incomplete.",
        of_replication("standby", "damaged_files"),
    ),
    counter(
        "nsqd_copy_changed_files",
        "Files of a standby's copy that another program removed, cut or replaced.",
        of_replication("standby", "changed_files"),
    ),
    counter(
        "nsqd_lease_losses",
        "Times that this nsqd has lost the lease while it was the primary.",
        of_replication("lease", "losses"),
    ),
    gauge("nsqd_start_time_seconds", "Start time, in seconds since the Unix epoch.", "start_time"),
    gauge("nsqd_disk_free_bytes", "Free bytes of the disk of --data-path.", "space.free_bytes"),
    gauge(
        "nsqd_disk_left_ratio",
        "Part of the disk, or of --max-disk-bytes, that is left.",
        lambda nsqd: nsqd.space.left_percent() / 100,
    ),
    gauge(
        "nsqd_tls_certificate_expiry_seconds",
        "End of the validity of --tls-cert, in seconds since the Unix epoch; 0 without one.",
        lambda broker: broker.tls.ends_s if broker.tls is not None else 0,
    ),
    counter(
        "nsqd_auth_failures",
        "Questions that no auth server answered.",
        lambda broker: broker.auth_failures.count if broker.auth_failures is not None else 0,
    ),
    gauge(
        "nsqd_disk_slow_seconds",
        "How long no 10 s have passed without a call of the disk that took 0.1 s or more; 0 while the disk is fast.",
        lambda broker: (broker.clock() - (broker.disk_speed.slow_since_ns or broker.clock())) / SECOND_NS,
    ),
    gauge("nsqd_topics", "Number of topics.", lambda broker: len(broker.topics)),
    gauge("nsqd_memory_limit_bytes", "The value of --mem-queue-bytes.", "memory.limit_bytes"),
    counter("nsqd_log_write_errors", "Failed writes to logs.", "disk.write_errors"),
    counter(
        "nsqd_gc_pause_seconds", "Pauses of the garbage collector.", lambda _: PAUSES.total_ns / SECOND_NS
    ),
)
TOPIC_LATENCY = gauge("nsqd_topic_e2e_latency_seconds", "From publish to finish, all channels.", float)
CHANNEL_LATENCY = gauge("nsqd_channel_e2e_latency_seconds", "From publish to finish.", float)
SCRUB = (
    counter(
        "nsqd_scrub_checked_bytes", "Bytes of logs that the scrub has read and checked.", "checked_bytes"
    ),
    counter("nsqd_scrub_passes", "Complete passes of the scrub through all logs.", "pass_count"),
    gauge(
        "nsqd_scrub_last_pass_timestamp_seconds",
        "End of the last complete pass, in seconds since the Unix epoch; 0 before the first one.",
        lambda scrub: scrub.last_pass_ns / SECOND_NS,
    ),
    counter(
        "nsqd_scrub_damaged_bytes",
        "Damaged bytes that were found, by the scrub or otherwise.",
        "source.damaged_bytes",
    ),
    counter("nsqd_scrub_repaired_bytes", "Damaged bytes that were repaired.", "source.repaired_bytes"),
)
# With a label.
BUILD = gauge("nsqd_build_info", "Versions of this nsqd.", float)
CONNECTIONS = gauge("nsqd_connections", "Open connections.", float)
REFUSED = counter("nsqd_connections_refused", "Connections that were refused.", float)
TIMED_OUT = counter("nsqd_connections_timed_out", "Connections that timed out.", float)
MEMORY = gauge("nsqd_memory_bytes", "Bytes of messages and buffers in memory.", float)
