"""The statistics of /stats: topics, channels and clients, with the keys and the order of Go's nsqd.

Thousands of channels take a while. The work pauses now and then, so that messages continue to flow. So the result is
not a snapshot of one moment: topics, channels and clients may be added and removed in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import orjson

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.debug.memory import memory_statistics
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.delivery import GLOBAL, REGION_LOCAL, ZONE_LOCAL
from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.tcp.connection import ClientConnection
from nsqd_py.version import NSQ_VERSION, PROJECT_VERSION

Statistics = dict[str, Any]
_Named = TypeVar("_Named", Topic, Channel)
_SCARCE_PERCENT = 20
_TOPOLOGY_COUNTS = (
    ("zone_local_msg_count", ZONE_LOCAL),
    ("region_local_msg_count", REGION_LOCAL),
    ("global_msg_count", GLOBAL),
)


class Stats(NamedTuple):
    """Topics by name with their channels, and the clients that published, in the order of connecting.

    `topics` is None if the selected topic does not exist; `producers` is None without any.
    """

    topics: list[Statistics] | None
    producers: list[Statistics] | None


# ---- collecting


def collect(broker: Broker, topic: str, channel: str, *, include_clients: bool) -> Stats:
    """Return the statistics of all topics and channels, or only of those named `topic` or `channel`, unless empty.

    Blocks this greenlet during its pauses.
    """
    if topic and topic not in broker.topics:
        return Stats(None, None)
    collector = _Collector(topic, include_clients)
    topics = []
    for found in _selected(broker.topics, topic):
        if broker.topics.get(found.name) is not found:  # it was deleted during a pause
            continue
        channels = _selected(found.channels, channel)
        if channels or not channel:
            topics.append(collector.topic(found, channels))
    producers = None
    if include_clients:
        clients = cast("list[ClientConnection]", list(broker.clients))
        producers = collector.clients(client for client in clients if client.pub_counts) or None
    return Stats(topics, producers)


def _selected(things: Mapping[str, _Named], name: str) -> list[_Named]:
    """Return the thing of that name, or all, sorted by name, if `name` is empty."""
    if name:
        if name in things:
            return [things[name]]
        return []
    return [things[key] for key in sorted(things)]


class _Collector:
    """One walk through topics, channels and clients."""

    def __init__(self, topic_filter: str, include_clients: bool) -> None:
        self._topic_filter = topic_filter
        self._include_clients = include_clients
        self._slices = WorkSlices(ONE_ROUND_S)

    def topic(self, topic: Topic, channels: list[Channel]) -> Statistics:
        self._slices.sleep_if_due()
        damage = None
        if topic.log is not None:
            damage = topic.log.damage
        return {
            "topic_name": topic.name,
            "channels": [self._channel(topic, channel) for channel in channels],
            "depth": topic.depth,
            "backend_depth": topic.backend_depth,
            "message_count": topic.message_count,
            "message_bytes": topic.message_bytes,
            "paused": topic.is_paused,
            "e2e_processing_latency": latency_statistics(topic.channels.values()),
            "log_bytes": topic.log.size_bytes if topic.log is not None else 0,  # Go's nsqd does not have it
            **_present(
                {
                    "oldest_timestamp": topic.oldest_ns,
                    # Bytes of its log that could not be read; messages that were in no file at the start; files that
                    # were removed while in use, and those of them that were written back.
                    "damaged_bytes": damage and damage.bytes_found,
                    "repaired_bytes": damage and damage.bytes_repaired,
                    "missing_count": damage and damage.missing_count,
                    "removed_files": damage and damage.removed_files,
                    "restored_files": damage and damage.restored_files,
                    "expired_count": topic.expired_count,
                    "dropped_count": topic.dropped_count,
                    "dead_letters": list(topic.dead_letters),
                }
            ),
        }

    def _channel(self, topic: Topic, channel: Channel) -> Statistics:
        self._slices.sleep_if_due()
        clients = cast("list[ClientConnection]", list(channel.clients))
        return {
            "channel_name": channel.name,
            "depth": channel.depth,
            "backend_depth": channel.backend_depth(topic.first_in_memory),
            "in_flight_count": channel.in_flight_count,
            "deferred_count": channel.deferred_count,
            "message_count": channel.message_count,
            **_present(
                {name: channel.counts_by_nearness[nearness] for name, nearness in _TOPOLOGY_COUNTS}
            ),  # as Go does
            "requeue_count": channel.requeue_count,
            "timeout_count": channel.timeout_count,
            "client_count": len(clients),
            "clients": self.clients(clients) if self._include_clients else None,
            "paused": channel.is_paused,
            "e2e_processing_latency": latency_statistics((channel,)),
            "finish_count": channel.finish_count,
            # What Go's nsqd does not have. A time instead of an age, so that the row of an idle channel stays the same.
            **_stall(channel),
            **_present(
                {
                    "oldest_timestamp": channel.oldest_ns,
                    "dead_letter_count": channel.dead_letter_count,
                    "dead_letter_error": channel.dead_letter_error,
                    "expired_count": channel.distributor.expired_count,
                    "dropped_count": channel.dropped_count,
                    "lost_count": channel.lost_count,
                    "unreadable_count": channel.distributor.unreadable_count,
                }
            ),
        }

    def clients(self, clients: Iterable[ClientConnection]) -> list[Statistics]:
        rows = []
        for client in clients:
            self._slices.sleep_if_due()
            rows.append(_client_statistics(client, self._topic_filter))
        return rows


def _stall(channel: Channel) -> Statistics:
    """Return since when consumers finish nothing of what waits, with their RDY; and the attempts of a message."""
    attempts = channel.most_attempts
    stall: Statistics = {"most_attempts": attempts} if attempts > 1 else {}
    stalled_ns = channel.stalled_ns
    if stalled_ns:
        stall["stalled_timestamp"] = stalled_ns
        stall["ready_count"] = channel.ready_count
    return stall


def latency_statistics(channels: Iterable[Channel]) -> Statistics:
    """Return the percentiles of all these channels together."""
    meters = [channel.latency for channel in channels if channel.latency is not None]
    if meters:
        return meters[0].statistics(meters[1:])
    return {"count": 0, "percentiles": None}


def _present(counts: Statistics) -> Statistics:
    """Return the counts that are not 0."""
    return {name: count for name, count in counts.items() if count}


def _auth_statistics(client: ClientConnection) -> Statistics:
    found = client.authorization
    if found is None:
        return {}
    return _present(
        {"authed": True, "auth_identity": found.identity, "auth_identity_url": found.identity_url}
    )


def _client_statistics(client: ClientConnection, topic_filter: str) -> Statistics:
    session = client.session
    statistics: Statistics = {
        "client_id": session.client_id,
        "hostname": session.hostname,
        "version": "V2",
        "remote_address": client.peer,
        "state": session.state,
        "ready_count": client.rdy,
        "in_flight_count": len(client.in_flight),
        "message_count": client.message_count,
        "finish_count": client.subscription.finish_count,
        "requeue_count": client.subscription.requeue_count,
        "connect_ts": int(client.pulse.connect_time),
        "sample_rate": session.sample_rate,
        "deflate": client.uses_deflate,
        "snappy": client.uses_snappy,
        "user_agent": session.user_agent,
        **_auth_statistics(client),
        "topology_zone": session.topology_zone,
        "topology_region": session.topology_region,
    }
    # All topics that it published to. Go's nsqd shows only one of them, the first in its unordered map.
    pub_counts = [
        {"topic": topic, "count": count}
        for topic, count in client.pub_counts.items()
        if not topic_filter or topic == topic_filter
    ]
    info = client.tls_info
    return statistics | {
        **_present({"pub_counts": pub_counts}),
        "tls": info is not None,
        "tls_cipher_suite": info.cipher if info else "",
        "tls_version": info.version if info else "",
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": info is not None,
    }


def health_text(broker: Broker) -> str:
    """Return `OK`, or `NOK` with the reason."""
    problem = broker.health()
    return "OK" if problem is None else f"NOK - {problem}"


# ---- as JSON


def render_json(broker: Broker, stats: Stats, *, include_memory: bool) -> Statistics:
    """Return the document of `/stats?format=json`, with its large parts encoded. Blocks this greenlet in its pauses."""
    slices = WorkSlices(ONE_ROUND_S)
    document: Statistics = {
        "version": NSQ_VERSION,
        "health": health_text(broker).encode("utf-8", "replace").decode(),
        "start_time": int(broker.start_time),
        "project_version": PROJECT_VERSION,
    }
    if broker.tls is not None and broker.tls.ends_s:
        document["tls_certificate_ends"] = broker.tls.ends_s
    if broker.auth_failures is not None and broker.auth_failures.reason:
        document["auth_failure"] = broker.auth_failures.reason
    if broker.disk_speed.slow_since_ns:
        document["disk_slow_since"] = broker.disk_speed.slow_since_ns // SECOND_NS
    # Only if it is scarce: a value that changes with each answer would cost its readers.
    left_percent = broker.space.left_percent()
    if left_percent < _SCARCE_PERCENT:
        document["disk_left_percent"] = left_percent
    for topic in stats.topics or ():
        for channel in topic["channels"]:
            channel["clients"] = _encoded(channel["clients"], slices)
    document["topics"] = _encoded(stats.topics, slices)
    if include_memory:
        document["memory"] = memory_statistics() | broker.memory.statistics()
    document["producers"] = _encoded(stats.producers, slices)
    return document


def _encoded(rows: list[Statistics] | None, slices: WorkSlices) -> list[orjson.Fragment] | None:
    """Encode each row and free it, with pauses: many rows at once would delay the event loop."""
    if rows is None:
        return None
    fragments = []
    for row in rows:
        slices.sleep_if_due()
        fragments.append(orjson.Fragment(orjson.dumps(row)))
        row.clear()
    return fragments
