"""What /stats says: figures of topics, channels, clients and memory, in the words and order of Go's nsqd."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, cast

from nsqd_py.broker import Broker
from nsqd_py.channel import Channel
from nsqd_py.connection import ClientConnection
from nsqd_py.durations import SECOND_NS, format_duration
from nsqd_py.topic import Topic
from nsqd_py.version import NSQ_VERSION, version_string

Figures = dict[str, Any]
_Named = TypeVar("_Named", Topic, Channel)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Stats(NamedTuple):
    """Topics by name with their channels, and the clients that published, in the order of connecting.

    `topics` is None when a topic was asked for that does not exist; `producers` when there are none.
    """

    topics: list[Figures] | None
    producers: list[Figures] | None


# ---- gathering


def collect(broker: Broker, topic: str, channel: str, *, include_clients: bool) -> Stats:
    """The figures of all topics and channels, or of one where `topic` or `channel` is not empty."""
    if topic and topic not in broker.topics:
        return Stats(None, None)
    topics = [
        _topic_figures(found, channels, topic, include_clients)
        for found in _selected(broker.topics, topic)
        if (channels := _selected(found.channels, channel)) or not channel
    ]
    producers = None
    if include_clients:
        clients = cast("Iterable[ClientConnection]", broker.clients)
        producers = [_client_figures(client, topic) for client in clients if client.pub_counts] or None
    return Stats(topics, producers)


def _selected(things: Mapping[str, _Named], name: str) -> list[_Named]:
    """The one of that name, or all by name."""
    if name:
        return [things[name]] if name in things else []
    return [things[key] for key in sorted(things)]


def _topic_figures(topic: Topic, channels: list[Channel], topic_filter: str, include_clients: bool) -> Figures:
    figures: Figures = {
        "topic_name": topic.name,
        "channels": [_channel_figures(topic, channel, topic_filter, include_clients) for channel in channels],
        "depth": topic.depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.is_paused,
        "e2e_processing_latency": _no_latency(),
    }
    if topic.log is not None and topic.log.damaged_bytes:
        figures["damaged_bytes"] = topic.log.damaged_bytes  # ours: what of its log could not be read
    return figures


def _channel_figures(topic: Topic, channel: Channel, topic_filter: str, include_clients: bool) -> Figures:
    clients = cast("Iterable[ClientConnection]", channel.clients)
    return {
        "channel_name": channel.name,
        "depth": channel.depth,
        "backend_depth": channel.backend_depth(topic.first_in_memory),
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "message_count": channel.message_count,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": len(channel.clients),
        "clients": [_client_figures(client, topic_filter) for client in clients] if include_clients else None,
        "paused": channel.is_paused,
        "e2e_processing_latency": _no_latency(),
    }


def _no_latency() -> Figures:
    return {"count": 0, "percentiles": None}


def _client_figures(client: ClientConnection, topic_filter: str) -> Figures:
    session = client.session
    figures: Figures = {
        "client_id": session.client_id,
        "hostname": session.hostname,
        "version": "V2",
        "remote_address": client.peer,
        "state": session.state,
        "ready_count": client.rdy,
        "in_flight_count": len(client.in_flight),
        "message_count": client.message_count,
        "finish_count": client.finish_count,
        "requeue_count": client.requeue_count,
        "connect_ts": int(client.connect_time),
        "sample_rate": session.sample_rate,
        "deflate": False,
        "snappy": False,
        "user_agent": session.user_agent,
        "topology_zone": session.topology_zone,
        "topology_region": session.topology_region,
    }
    # All topics that it published to; Go's nsqd leaves off after one of them, whichever its map gives first.
    pub_counts = [
        {"topic": topic, "count": count}
        for topic, count in client.pub_counts.items()
        if not topic_filter or topic == topic_filter
    ]
    if pub_counts:
        figures["pub_counts"] = pub_counts
    figures["tls"] = False
    figures["tls_cipher_suite"] = ""
    figures["tls_version"] = ""
    figures["tls_negotiated_protocol"] = ""
    figures["tls_negotiated_protocol_is_mutual"] = False
    return figures


def memory_figures() -> Figures:
    """Memory under the names that Go gives it: blocks and resident bytes of this process, 0 where Python has none."""
    return {
        "heap_objects": sys.getallocatedblocks(),
        "heap_idle_bytes": 0,
        "heap_in_use_bytes": _resident_bytes(),
        "heap_released_bytes": 0,
        "gc_pause_usec_100": 0,
        "gc_pause_usec_99": 0,
        "gc_pause_usec_95": 0,
        "next_gc_bytes": 0,
        "gc_total_runs": sum(generation["collections"] for generation in gc.get_stats()),
    }


def _resident_bytes() -> int:
    """0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def health_text(broker: Broker) -> str:
    """OK, or what is wrong."""
    trouble = broker.health()
    return "OK" if trouble is None else f"NOK - {trouble}"


# ---- showing


def render_json(broker: Broker, stats: Stats, *, include_memory: bool) -> Figures:
    """What `/stats?format=json` answers."""
    document: Figures = {
        "version": NSQ_VERSION,
        "health": health_text(broker).encode("utf-8", "replace").decode(),
        "start_time": int(broker.start_time),
        "topics": stats.topics,
    }
    if include_memory:
        document["memory"] = memory_figures()
    document["producers"] = stats.producers
    return document


def render_text(broker: Broker, stats: Stats, *, include_memory: bool, now_s: float | None = None) -> str:
    """What `/stats` answers to people; `now_s` is the time in s since the epoch."""
    now_s = time.time() if now_s is None else now_s
    started = datetime.fromtimestamp(int(broker.start_time)).astimezone()
    lines = [
        version_string("nsqd"),
        f"start_time {started.isoformat().replace('+00:00', 'Z')}",
        f"uptime {format_duration(int((now_s - broker.start_time) * SECOND_NS))}",
        "",
        f"Health: {health_text(broker)}",
    ]
    if include_memory:
        lines += ["", "Memory:"]
        lines += [f"   {name:<25}\t{value}" for name, value in memory_figures().items()]
    lines += ["", "Topics:" if stats.topics else "Topics: None"]
    for number, topic in enumerate(stats.topics or ()):
        lines += [""] if number else []
        lines += _topic_lines(topic, now_s)
    lines += ["", "Producers:" if stats.producers else "Producers: None"]
    lines += [f"   {_client_line(producer, now_s)}" for producer in stats.producers or ()]
    return "\n".join(lines) + "\n"


def _topic_lines(topic: Figures, now_s: float) -> list[str]:
    lines = [
        f"{'*P ' if topic['paused'] else '   '}[{topic['topic_name']:<15}] depth: {topic['depth']:<5} "
        f"be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8} e2e%: "
    ]
    for channel in topic["channels"]:
        lines.append(
            f"{'   *P ' if channel['paused'] else '      '}[{channel['channel_name']:<25}] "
            f"depth: {channel['depth']:<5} be-depth: {channel['backend_depth']:<5} "
            f"inflt: {channel['in_flight_count']:<4} def: {channel['deferred_count']:<4} "
            f"re-q: {channel['requeue_count']:<5} timeout: {channel['timeout_count']:<5} "
            f"msgs: {channel['message_count']:<8} e2e%: "
        )
        lines += [f"        {_client_line(client, now_s)}" for client in channel["clients"] or ()]
    return lines


def _client_line(client: Figures, now_s: float) -> str:
    port = client["remote_address"].rpartition(":")[2]
    name = f"{client['hostname']}:{port} {client['user_agent']}"
    connected = format_duration(int(now_s - client["connect_ts"]) * SECOND_NS)
    head = f"[{client['version']} {name:<21}]"
    counts = client.get("pub_counts")
    if counts:
        total = sum(count["count"] for count in counts)
        topics = ",".join(f"{count['topic']}={count['count']}" for count in counts)
        return f"{head} msgs: {total:<8} topics: {topics} connected: {connected}"
    return (
        f"{head} state: {client['state']} inflt: {client['in_flight_count']:<4} rdy: {client['ready_count']:<4} "
        f"fin: {client['finish_count']:<8} re-q: {client['requeue_count']:<8} "
        f"msgs: {client['message_count']:<8} connected: {connected}"
    )
