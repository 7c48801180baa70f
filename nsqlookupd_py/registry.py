"""Who has which topics and channels. No I/O in here; times are in ns and come as arguments.

A topic or channel stays known when its last producer leaves, unless it is ephemeral: consumers of a topic that
nobody has for a moment are told of its channels, and a new nsqd makes them before its first message.

Answers are remembered as views until something in them changes: with 200 producers, /lookup costs 30 us less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nsqd_py.protocol.names import is_ephemeral
from nsqlookupd_py.peer import NodeView, Peer

NEVER_NS = 1 << 63
_NOT_TOMBSTONED = 0


class TopicView:
    """What /lookup says of a topic, until `valid_until_ns` or its next change.

    encoded  the answer's bytes, kept by who makes them
    """

    __slots__ = ("channels", "encoded", "producers", "valid_until_ns")

    def __init__(self, channels: list[str], producers: list[Peer], valid_until_ns: int) -> None:
        self.channels = channels
        self.producers = producers
        self.valid_until_ns = valid_until_ns
        self.encoded: bytes | None = None


@dataclass(frozen=True, slots=True)
class Registration:
    """One line of /debug: a category ("client", "topic" or "channel"), its names, and (peer, tombstoned at)."""

    category: str
    topic: str
    channel: str
    producers: list[tuple[Peer, int]]


class Registry:
    """All that an nsqlookupd knows.

    revision  counts the changes of the set of topics
    """

    def __init__(self, inactive_producer_timeout_ns: int, tombstone_lifetime_ns: int) -> None:
        self._inactive_after_ns = inactive_producer_timeout_ns
        self._tombstone_lifetime_ns = tombstone_lifetime_ns
        self._peers: dict[Peer, None] = {}
        # By topic: its producers, each with the time at which it was tombstoned.
        self._topics: dict[str, dict[Peer, int]] = {}
        # By topic and channel: who has it. Whoever has a channel is among the producers of its topic.
        self._channels: dict[str, dict[str, set[Peer]]] = {}
        self._views: dict[str, TopicView] = {}
        self.revision = 0

    # ---- peers

    def add_peer(self, peer: Peer) -> None:
        self._peers[peer] = None

    def ping(self, peer: Peer, now_ns: int) -> None:
        """The peer is alive."""
        if not self._is_active(peer, now_ns):  # views left it out
            self._forget_views(peer)
        peer.updated_ns = now_ns

    def remove_peer(self, peer: Peer) -> list[tuple[str, str]]:
        """The peer is gone, with all its registrations: those as (topic, channel or "")."""
        return list(self.begin_to_remove(peer))

    def begin_to_remove(self, peer: Peer) -> Iterator[tuple[str, str]]:
        """The peer is gone; as far as one iterates, its registrations, (topic, channel or ""), are removed.

        The registry may change between two of them.
        """
        self._peers.pop(peer, None)
        return self._removals(peer, list(peer.topics))

    def _removals(self, peer: Peer, topics: Iterable[str]) -> Iterator[tuple[str, str]]:
        for topic in topics:
            for channel in self._channels_of(peer, topic):
                if self.unregister_channel(peer, topic, channel):
                    yield topic, channel
            yield from self.unregister_topic(peer, topic)

    def _channels_of(self, peer: Peer, topic: str) -> list[str]:
        return [channel for channel, peers in self._channels.get(topic, {}).items() if peer in peers]

    def _is_active(self, peer: Peer, now_ns: int) -> bool:
        return now_ns - peer.updated_ns <= self._inactive_after_ns

    # ---- registrations

    def register(self, peer: Peer, topic: str, channel: str = "") -> list[tuple[str, str]]:
        """The peer has a topic, and a channel of it unless that is empty; gives what of that is new."""
        added = []
        if channel:
            peers = self._channel(topic, channel)
            if peer not in peers:
                peers.add(peer)
                added.append((topic, channel))
        producers = self._topic(topic)
        if peer not in producers:
            producers[peer] = _NOT_TOMBSTONED
            peer.topics.add(topic)
            self._topic_changed(peer, topic)
            added.append((topic, ""))
        return added

    def unregister_channel(self, peer: Peer, topic: str, channel: str) -> bool:
        """The peer has a channel no more; False if it had none. An ephemeral one goes with its last peer."""
        peers = self._channels.get(topic, {}).get(channel)
        if peers is None:
            return False
        had = peer in peers
        peers.discard(peer)
        if not peers and is_ephemeral(channel):
            self.remove_channel(topic, channel)
        return had

    def unregister_topic(self, peer: Peer, topic: str) -> list[tuple[str, str]]:
        """The peer has a topic no more, nor any channel of it: gives what it had, channels first.

        An ephemeral topic goes with its last peer, and so do its channels.
        """
        removed = [(topic, channel) for channel in self._channels_of(peer, topic)]
        for _, channel in removed:
            self.unregister_channel(peer, topic, channel)
        peer.topics.discard(topic)
        producers = self._topics.get(topic)
        if producers is None:
            return removed
        if producers.pop(peer, None) is not None:
            self._topic_changed(peer, topic)
            removed.append((topic, ""))
        if not producers and is_ephemeral(topic):
            self.remove_topic(topic)
        return removed

    # ---- administration

    def add_topic(self, topic: str) -> None:
        self._topic(topic)

    def add_channel(self, topic: str, channel: str) -> None:
        """The channel, and its topic with it."""
        self._channel(topic, channel)
        self._topic(topic)

    def remove_topic(self, topic: str) -> list[str]:
        """Forget a topic, who has it, and its channels; gives their names."""
        channels = list(self._channels.pop(topic, ()))
        self._views.pop(topic, None)
        for peer in self._topics.get(topic, ()):
            peer.node_view = None
            peer.topics.discard(topic)
        self._forget_topic(topic)
        return channels

    def remove_channel(self, topic: str, channel: str) -> None:
        """Forget a channel. Raises KeyError."""
        channels = self._channels[topic]
        del channels[channel]
        if not channels:
            del self._channels[topic]
        self._views.pop(topic, None)

    def tombstone(self, topic: str, node: str, now_ns: int) -> None:
        """Hide a producer of a topic for a while: it is about to delete it."""
        producers = self._topics.get(topic, {})
        for peer in producers:
            if peer.node == node:
                producers[peer] = now_ns
                self._topic_changed(peer, topic)

    # ---- answers

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def channels(self, topic: str) -> list[str]:
        return sorted(self._channels.get(topic, ()))

    def has_channel(self, topic: str, channel: str) -> bool:
        return channel in self._channels.get(topic, ())

    def lookup(self, topic: str, now_ns: int) -> TopicView | None:
        """The channels of a topic and the producers that are alive and not tombstoned; None for an unknown topic."""
        view = self._views.get(topic)
        if view is None or view.valid_until_ns <= now_ns:
            producers = self._topics.get(topic)
            if producers is None:
                return None
            view = self._views[topic] = self._look(topic, producers, now_ns)
        return view

    def _look(self, topic: str, producers: dict[Peer, int], now_ns: int) -> TopicView:
        found = []
        valid_until_ns = NEVER_NS
        for peer, tombstoned_ns in producers.items():
            if not self._is_active(peer, now_ns):
                continue  # its next PING makes the view invalid
            if self._is_tombstoned(tombstoned_ns, now_ns):
                valid_until_ns = min(valid_until_ns, tombstoned_ns + self._tombstone_lifetime_ns)
                continue
            # A PING before then only makes it valid for longer.
            valid_until_ns = min(valid_until_ns, peer.updated_ns + self._inactive_after_ns + 1)
            found.append(peer)
        return TopicView(self.channels(topic), found, valid_until_ns)

    def _is_tombstoned(self, tombstoned_ns: int, now_ns: int) -> bool:
        return tombstoned_ns != _NOT_TOMBSTONED and now_ns - tombstoned_ns < self._tombstone_lifetime_ns

    def nodes(self, now_ns: int) -> Iterator[tuple[Peer, NodeView]]:
        """Every peer that is alive, with its topics, and which of them it is tombstoned for."""
        for peer in self._peers:
            if self._is_active(peer, now_ns):
                view = peer.node_view
                if view is None or view.valid_until_ns <= now_ns:
                    view = peer.node_view = self._look_at_node(peer, now_ns)
                yield peer, view

    def _look_at_node(self, peer: Peer, now_ns: int) -> NodeView:
        topics = sorted(peer.topics)
        tombstones = []
        valid_until_ns = NEVER_NS
        for topic in topics:
            tombstoned_ns = self._topics[topic][peer]
            is_tombstoned = self._is_tombstoned(tombstoned_ns, now_ns)
            tombstones.append(is_tombstoned)
            if is_tombstoned:
                valid_until_ns = min(valid_until_ns, tombstoned_ns + self._tombstone_lifetime_ns)
        return NodeView(topics, tombstones, valid_until_ns)

    def registrations(self) -> Iterator[Registration]:
        """Everything that is registered, for /debug. The registry may change between two of them."""
        yield Registration("client", "", "", [(peer, _NOT_TOMBSTONED) for peer in self._peers])
        for topic in self.topics():
            yield Registration("topic", topic, "", list(self._topics.get(topic, {}).items()))
        for topic in sorted(self._channels):
            for channel in self.channels(topic):
                peers = self._channels.get(topic, {}).get(channel, ())
                yield Registration("channel", topic, channel, [(peer, _NOT_TOMBSTONED) for peer in peers])

    # ---- the tables

    def _topic(self, topic: str) -> dict[Peer, int]:
        producers = self._topics.get(topic)
        if producers is None:
            producers = self._topics[topic] = {}
            self.revision += 1
        return producers

    def _channel(self, topic: str, channel: str) -> set[Peer]:
        channels = self._channels.setdefault(topic, {})
        peers = channels.get(channel)
        if peers is None:
            peers = channels[channel] = set()
            self._views.pop(topic, None)
        return peers

    def _forget_topic(self, topic: str) -> None:
        if self._topics.pop(topic, None) is not None:
            self.revision += 1
        self._views.pop(topic, None)

    def _topic_changed(self, peer: Peer, topic: str) -> None:
        self._views.pop(topic, None)
        peer.node_view = None

    def _forget_views(self, peer: Peer) -> None:
        for topic in peer.topics:
            self._views.pop(topic, None)
