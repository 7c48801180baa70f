"""The registry: which producers (nsqds) have which topics and channels. No I/O; times are arguments, in ns.

A topic or channel remains when its last producer leaves, unless it is ephemeral. So consumers find the
channels of a topic that has no producer for a moment, and a new nsqd creates them before its first message.

Long removals are done in steps, as the caller iterates: those of 10,000 channels take 20 ms. The registry may
change between two steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from nsqd_py.errors import ClientError
from nsqd_py.protocol.names import is_ephemeral
from nsqlookupd_py.protocol import Peer

UNLIMITED = 1 << 63
# The producers that have ended cleanly are remembered for a day, the latest of them.
_MOST_DEPARTED = 1000
_DEPARTED_NS = 86_400 * 1_000_000_000
# Looking at this many names takes 0.1 ms, and encoding them 0.5 ms.
STEP = 1000

# A topic, and a channel or "" for the topic itself.
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """The limits of a registry.

    names          topics and channels
    registrations  pairs of a producer and a topic or channel
    of_producer    registrations of one producer
    """

    names: int = UNLIMITED
    registrations: int = UNLIMITED
    of_producer: int = UNLIMITED


class RegisterFailed(ClientError):
    """A limit does not allow a registration.

    Not fatal: an nsqd that is disconnected would connect again at once and register everything again.
    """

    code = "E_REGISTER_FAILED"
    fatal = False

    def __init__(self, what: str, most: int, flag: str) -> None:
        super().__init__(f"REGISTER failed {what} exceed limit of {most} (--{flag})")


class TooManyNames(RegisterFailed):
    """The limit on topics and channels is reached."""


@dataclass(slots=True)
class Topic:
    """A topic: its producers in the order of their registration, and the producers of each channel.

    All producers of a channel are producers of the topic too.
    """

    producers: dict[Peer, None] = field(default_factory=dict)
    channels: dict[str, set[Peer]] = field(default_factory=dict)


class Registry:
    """All topics, channels and producers of an nsqlookupd.

    names          number of topics and channels
    registrations  number of pairs of a producer and a name
    unused         names that no producer has, the longest unused first; channels of a topic precede the topic
    """

    def __init__(
        self,
        inactive_producer_timeout_ns: int,
        tombstone_lifetime_ns: int,
        limits: RegistryLimits = RegistryLimits(),
    ) -> None:
        self._inactive_after_ns = inactive_producer_timeout_ns
        self._tombstone_lifetime_ns = tombstone_lifetime_ns
        self._limits = limits
        self._peers: dict[Peer, None] = {}
        self._departed: OrderedDict[tuple[str, int], int] = (
            OrderedDict()
        )  # by broadcast address and HTTP port: when
        self._topics: dict[str, Topic] = {}
        self.unused: OrderedDict[Name, None] = OrderedDict()
        self.names = 0
        self.registrations = 0

    # ---- peers

    def add_peer(self, peer: Peer) -> None:
        self._peers[peer] = None
        self._departed.pop(peer.http_address, None)

    def removing_peer(self, peer: Peer) -> Iterator[Name | None]:
        """Remove a peer. Its registrations are removed as the caller iterates."""
        self._peers.pop(peer, None)
        if peer.is_leaving:
            self._departed[peer.http_address] = peer.updated_ns
            if len(self._departed) > _MOST_DEPARTED:
                self._departed.popitem(last=False)
        return (removed for topic in list(peer.topics) for removed in self.unregistering_topic(peer, topic))

    def _is_active(self, peer: Peer, now_ns: int) -> bool:
        return now_ns - peer.updated_ns <= self._inactive_after_ns

    # ---- registrations

    def register(self, peer: Peer, topic: str, channel: str = "") -> list[Name]:
        """Register a topic of a peer, and a channel unless that is empty; return the new registrations.

        Raises RegisterFailed if a limit is reached; then nothing is registered.
        """
        added = []
        if channel and peer not in self._producers(topic, channel):
            added.append((topic, channel))
        if peer not in self._producers(topic):
            added.append((topic, ""))
        if not added:
            return added
        limits = self._limits
        if peer.registrations + len(added) > limits.of_producer:
            raise RegisterFailed(
                "registrations of this nsqd", limits.of_producer, "max-registrations-per-nsqd"
            )
        if self.registrations + len(added) > limits.registrations:
            raise RegisterFailed("registrations", limits.registrations, "max-registrations")
        self._replace_unused(topic, channel)
        entry = self._entry(topic, channel)
        entry.producers[peer] = None
        peer.topics.setdefault(topic, 0)
        if channel:
            entry.channels[channel].add(peer)
            peer.topics[topic] += 1
        for name in added:
            self.unused.pop(name, None)
        self._count(peer, len(added))
        return added

    def _entry(self, topic: str, channel: str) -> Topic:
        """Return a topic. Add it and the channel if they are new."""
        entry = self._topics.get(topic)
        if entry is None:
            entry = Topic()
            self._topics[topic] = entry
            self.names += 1
        if channel and channel not in entry.channels:
            entry.channels[channel] = set()
            self.names += 1
        return entry

    def _replace_unused(self, topic: str, channel: str) -> None:
        """Remove unused names until the limit allows a topic and a channel. Raises TooManyNames."""
        if self.names + 2 <= self._limits.names:
            return
        # The two names themselves must not be removed.
        own = [name for name in ((topic, channel), (topic, "")) if name in self.unused]
        for name in own:
            del self.unused[name]
        added = self._new_names(topic, channel)
        while self.names + added > self._limits.names and self.unused:
            (unused_topic, unused_channel), _ = self.unused.popitem(last=False)
            if not unused_channel:
                for _ in self.removing_topic(unused_topic):
                    pass
            elif self.has_channel(unused_topic, unused_channel):
                self.remove_channel(unused_topic, unused_channel)
        self.unused.update(dict.fromkeys(own))
        self._check_names(added)

    def _new_names(self, topic: str, channel: str) -> int:
        is_new = bool(channel) and not self.has_channel(topic, channel)
        return (topic not in self._topics) + is_new

    def _check_names(self, added: int) -> None:
        if self.names + added > self._limits.names:
            raise TooManyNames("topics and channels", self._limits.names, "max-topics-and-channels")

    def _count(self, peer: Peer, change: int) -> None:
        peer.registrations += change
        self.registrations += change

    def unregister_channel(self, peer: Peer, topic: str, channel: str) -> bool:
        """Remove a channel of a peer; return False if the peer did not have it.

        An ephemeral channel is removed with its last peer.
        """
        peers = self._known(topic).channels.get(channel)
        if peers is None:
            return False
        had = peer in peers
        if had:
            peers.remove(peer)
            peer.topics[topic] -= 1
            self._count(peer, -1)
        if not peers and is_ephemeral(channel):
            self.remove_channel(topic, channel)
        elif had and not peers:
            self.unused[topic, channel] = None
        return had

    def unregistering_topic(self, peer: Peer, topic: str) -> Iterator[Name | None]:
        """Remove a topic of a peer, and the peer's channels of it, in steps.

        An ephemeral topic goes with its last peer. Yield the removed registrations, channels first, and None
        for a step that removed nothing.
        """
        if peer.topics.get(topic):
            yield from self._unregistering_channels(peer, topic)
        peer.topics.pop(topic, None)
        peer.tombstones.pop(topic, None)
        entry = self._topics.get(topic)
        if entry is None:
            return
        had = peer in entry.producers
        if had:
            del entry.producers[peer]
            self._count(peer, -1)
        if not entry.producers and is_ephemeral(topic):
            for _ in self.removing_topic(topic):
                yield None
        elif had and not entry.producers:
            self.unused[topic, ""] = None
        if had:
            yield topic, ""

    def _unregistering_channels(self, peer: Peer, topic: str) -> Iterator[Name | None]:
        for number, channel in enumerate(self.channels(topic)):
            # An ephemeral channel that the peer never had may have no peer: it stays.
            if peer in self._producers(topic, channel):
                self.unregister_channel(peer, topic, channel)
                yield topic, channel
                if not peer.topics.get(topic):  # that was the last one
                    return
            elif number % STEP == 0:
                yield None

    # ---- administration

    def create(self, topic: str, channel: str = "") -> None:
        """Add a topic, and a channel unless that is empty, that may have no producer. Raises TooManyNames."""
        self._check_names(self._new_names(topic, channel))
        entry = self._entry(topic, channel)
        if channel and not entry.channels[channel]:
            self.unused[topic, channel] = None
        if not entry.producers:
            self.unused[topic, ""] = None
            self.unused.move_to_end((topic, ""))  # behind its channels

    def removing_topic(self, topic: str) -> Iterator[str]:
        """Remove a topic at once.

        Its channels are freed as the caller iterates over them; it must do so to the end.
        """
        entry = self._topics.pop(topic, None)
        if entry is None:
            return iter(())
        for peer in entry.producers:
            peer.topics.pop(topic, None)
            peer.tombstones.pop(topic, None)
            self._count(peer, -1)
        self._forget_name(topic, "")
        return self._freed(topic, entry.channels)

    def _freed(self, topic: str, channels: dict[str, set[Peer]]) -> Iterator[str]:
        while channels:
            channel, peers = channels.popitem()
            self.names -= 1
            if not self.has_channel(topic, channel):  # else it was created again in the meantime
                self.unused.pop((topic, channel), None)
            for peer in peers:
                self._count(peer, -1)
            yield channel

    def _forget_name(self, topic: str, channel: str) -> None:
        self.names -= 1
        self.unused.pop((topic, channel), None)

    def remove_channel(self, topic: str, channel: str) -> None:
        """Remove a channel. Raises KeyError."""
        for peer in self._topics[topic].channels.pop(channel):
            peer.topics[topic] -= 1
            self._count(peer, -1)
        self._forget_name(topic, channel)

    def tombstone(self, topic: str, node: str, now_ns: int) -> None:
        """Hide a producer of a topic for the tombstone's lifetime: it is about to delete the topic."""
        for peer in self._producers(topic):
            if peer.node == node:
                peer.tombstones[topic] = now_ns

    # ---- answers

    def topics(self) -> list[str]:
        return list(self._topics)

    def channels(self, topic: str) -> list[str]:
        return list(self._known(topic).channels)

    def has_channel(self, topic: str, channel: str) -> bool:
        return channel in self._known(topic).channels

    def _known(self, topic: str) -> Topic:
        """Return a topic to read; an empty one if it is unknown."""
        return self._topics.get(topic) or Topic()

    def _producers(self, topic: str, channel: str = "") -> Collection[Peer]:
        """Return the producers of a topic or channel; none if it is unknown."""
        known = self._known(topic)
        if channel:
            return known.channels.get(channel, ())
        return known.producers

    def lookup(self, topic: str, now_ns: int) -> list[Peer] | None:
        """Return the producers of a topic that are alive and not tombstoned; None for an unknown topic."""
        if topic not in self._topics:
            return None
        active = [peer for peer in self._producers(topic) if self._is_active(peer, now_ns)]
        return [peer for peer in active if not self._is_tombstoned(peer, topic, now_ns)]

    def _is_tombstoned(self, peer: Peer, topic: str, now_ns: int) -> bool:
        tombstoned_ns = peer.tombstones.get(topic)
        return tombstoned_ns is not None and now_ns - tombstoned_ns < self._tombstone_lifetime_ns

    def nodes(self, now_ns: int) -> Iterator[tuple[Peer, list[str], list[bool]]]:
        """Yield every peer that is alive, with its topics, and for each topic whether it is tombstoned."""
        for peer in list(self._peers):
            if self._is_active(peer, now_ns):
                hidden = {topic for topic in peer.tombstones if self._is_tombstoned(peer, topic, now_ns)}
                topics = list(peer.topics)
                yield peer, topics, [topic in hidden for topic in topics]

    def departed(self, now_ns: int) -> list[tuple[str, int]]:
        """Return the producers that ended cleanly within the last day: broadcast address and HTTP port."""
        while self._departed and now_ns - next(iter(self._departed.values())) > _DEPARTED_NS:
            self._departed.popitem(last=False)
        return list(self._departed)

    def all_registrations(self) -> Iterator[tuple[str, str, str, list[Peer]]]:
        """Yield everything that is registered: category, topic, channel and producers.

        A category is client, topic or channel. The registry may change in the meantime.
        """
        yield "client", "", "", list(self._peers)
        for topic in self.topics():
            yield "topic", topic, "", list(self._producers(topic))
        for topic in self.topics():
            for channel in self.channels(topic):
                yield "channel", topic, channel, list(self._producers(topic, channel))
