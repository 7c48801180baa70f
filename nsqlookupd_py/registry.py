"""Limits on what nsqds and clients can register. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import orjson

from nsqd_py.errors import ClientError
from nsqd_py.protocol.names import is_ephemeral
from nsqlookupd_py.protocol import NodeView, Peer, TopicView

UNLIMITED = 1 << 63


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


class RegistryUsage:
    """The numbers of names and registrations, checked against the limits.

    names          number of topics and channels
    registrations  number of pairs of a producer and a name
    unused         names that no producer has, the longest unused first; channels of a topic precede the topic
    """

    __slots__ = ("limits", "names", "registrations", "unused")

    def __init__(self, limits: RegistryLimits) -> None:
        self.limits = limits
        self.names = 0
        self.registrations = 0
        self.unused: OrderedDict[tuple[str, str], None] = OrderedDict()

    def check_names(self, added: int) -> None:
        """Raise TooManyNames if the limit does not allow `added` more topics and channels."""
        if self.names + added > self.limits.names:
            raise TooManyNames("topics and channels", self.limits.names, "max-topics-and-channels")

    def check_registrations(self, added: int, of_producer: int) -> None:
        """Raise RegisterFailed if a producer with `of_producer` registrations cannot have `added` more."""
        limits = self.limits
        if of_producer + added > limits.of_producer:
            raise RegisterFailed("registrations of this nsqd", limits.of_producer, "max-registrations-per-nsqd")
        if self.registrations + added > limits.registrations:
            raise RegisterFailed("registrations", limits.registrations, "max-registrations")

    def make(self, added: int, remove: Callable[[str, str], object]) -> bool:
        """Call `remove` on unused names until `added` names are allowed; return False if too few are unused."""
        while self.names + added > self.limits.names:
            if not self.unused:
                return False
            (topic, channel), _ = self.unused.popitem(last=False)
            remove(topic, channel)
        return True


Rest = Callable[[], object]

# Sorting this many takes 0.5 ms.
STEP = 1000
SHORT = 2 * STEP


def no_rest() -> None:
    """Do nothing, for short lists."""


def sorted_names(names: Collection[str], rest: Rest = no_rest) -> list[str]:
    """Return the names in order.

    `list.sort` of 200,000 names takes 100 ms and cannot be interrupted. Here a sample divides the names into ranges
    of about STEP names, and each range is sorted by itself. Hashes choose the sample: Python's depend on a secret of
    the process, so that nobody can send names that all fall into one range.
    """
    if len(names) <= SHORT:
        return sorted(names)
    unsorted = list(names)  # at once: the collection may change during a rest
    limits: list[str] = []
    for step in _steps(unsorted):
        limits += [name for name in step if not hash(name) % STEP]
        rest()
    limits.sort()
    ranges: list[list[str]] = [[] for _ in range(len(limits) + 1)]
    for step in _steps(unsorted):
        for name in step:
            ranges[bisect_right(limits, name)].append(name)
        rest()
    found: list[str] = []
    for part in ranges:
        part.sort()
        found += part
        rest()
    return found


def _steps(names: list[str]) -> Iterator[list[str]]:
    remaining = iter(names)
    while step := list(islice(remaining, STEP)):
        yield step


def json_list(values: Sequence[object]) -> Iterator[bytes]:
    """Yield the JSON list of the values in pieces."""
    if len(values) <= STEP:
        yield orjson.dumps(values)
        return
    before = b"["
    for start in range(0, len(values), STEP):
        yield before + orjson.dumps(values[start : start + STEP])[1:-1]
        before = b","
    yield b"]"


NEVER_NS = 1 << 63
_NOT_TOMBSTONED = 0
# An answer with at most this many names takes 1 ms, and is made without rests.
QUICK_NAMES = SHORT


@dataclass(frozen=True, slots=True)
class Registration:
    """One line of /debug: a category ("client", "topic" or "channel"), its names, and (peer, tombstoned at)."""

    category: str
    topic: str
    channel: str
    producers: list[tuple[Peer, int]]


class Registry:
    """All topics, channels and producers of an nsqlookupd.

    revision  number of changes of the set of topics
    room      numbers of topics, channels and registrations, and their limits
    """

    def __init__(
        self, inactive_producer_timeout_ns: int, tombstone_lifetime_ns: int, limits: RegistryLimits = RegistryLimits()
    ) -> None:
        self._inactive_after_ns = inactive_producer_timeout_ns
        self._tombstone_lifetime_ns = tombstone_lifetime_ns
        self._peers: dict[Peer, None] = {}
        # By topic: its producers, each with the time of its tombstone.
        self._topics: dict[str, dict[Peer, int]] = {}
        # By topic and channel: its producers, which are all producers of the topic too.
        self._channels: dict[str, dict[str, set[Peer]]] = {}
        self._views: dict[str, TopicView] = {}
        self._changes = 0
        self.revision = 0
        self.usage = RegistryUsage(limits)

    # ---- peers

    def add_peer(self, peer: Peer) -> None:
        self._peers[peer] = None

    def ping(self, peer: Peer, now_ns: int) -> None:
        """Note that a peer is alive."""
        if not self._is_active(peer, now_ns):  # views do not contain it
            self._forget_views(peer)
        peer.updated_ns = now_ns

    def remove_peer(self, peer: Peer) -> list[tuple[str, str]]:
        """Remove a peer with all its registrations; return those as (topic, channel or "")."""
        return [removed for removed in self.begin_to_remove(peer) if removed]

    def begin_to_remove(self, peer: Peer) -> Iterator[tuple[str, str] | None]:
        """Remove a peer. Its registrations, (topic, channel or ""), are removed as the caller iterates."""
        self._peers.pop(peer, None)
        return self._removals(peer, list(peer.topics))

    def _removals(self, peer: Peer, topics: Iterable[str]) -> Iterator[tuple[str, str] | None]:
        for topic in topics:
            yield from self.begin_to_unregister(peer, topic)

    def _channels_of(self, peer: Peer, topic: str) -> Iterator[str | None]:
        """Yield the channels of a topic that a peer has, and None after each STEP of others."""
        if not peer.topics.get(topic):
            return
        for number, channel in enumerate(list(self._channels.get(topic, ()))):
            if peer in self._channels.get(topic, {}).get(channel, ()):
                yield channel
                if not peer.topics.get(topic):  # the caller has removed the last one
                    return
            elif number % STEP == 0:
                yield None

    def _is_active(self, peer: Peer, now_ns: int) -> bool:
        return now_ns - peer.updated_ns <= self._inactive_after_ns

    # ---- registrations

    def register(self, peer: Peer, topic: str, channel: str = "") -> list[tuple[str, str]]:
        """Register a topic of a peer, and a channel unless that is empty; return the new registrations.

        Raises RegisterFailed if a limit is reached; then nothing is registered.
        """
        added = self._missing(peer, topic, channel)
        if not added:
            return added
        self.usage.check_registrations(len(added), peer.registrations)
        self._make_room(topic, channel)
        for name in added:
            if name[1]:
                self._channel(topic, channel).add(peer)
            else:
                self._topic(topic)[peer] = _NOT_TOMBSTONED
                peer.topics.setdefault(topic, 0)
                self._topic_changed(peer, topic)
            self.usage.unused.pop(name, None)
        if channel:
            peer.topics[topic] += 1
        self._count(peer, len(added))
        return added

    def _missing(self, peer: Peer, topic: str, channel: str) -> list[tuple[str, str]]:
        """Return those of a channel and its topic that the peer has not registered, the channel first."""
        missing = []
        if channel and peer not in self._channels.get(topic, {}).get(channel, ()):
            missing.append((topic, channel))
        if peer not in self._topics.get(topic, ()):
            missing.append((topic, ""))
        return missing

    def _make_room(self, topic: str, channel: str) -> None:
        """Remove unused names until the limit allows a topic and a channel. Raises TooManyNames."""
        usage = self.usage
        if usage.names + 2 > usage.limits.names:
            # The two names themselves must not be removed.
            was_unused = [name for name in ((topic, channel), (topic, "")) if name in usage.unused]
            for name in was_unused:
                del usage.unused[name]
            has_room = usage.make(self._new_names(topic, channel), self._remove_unused)
            for name in was_unused:
                usage.unused[name] = None
            if not has_room:
                usage.check_names(self._new_names(topic, channel))

    def _new_names(self, topic: str, channel: str) -> int:
        return (topic not in self._topics) + bool(channel and channel not in self._channels.get(topic, ()))

    def _remove_unused(self, topic: str, channel: str) -> None:
        if not channel:
            self.remove_topic(topic)
        elif self.has_channel(topic, channel):
            self.remove_channel(topic, channel)

    def _count(self, peer: Peer, change: int) -> None:
        peer.registrations += change
        self.usage.registrations += change

    def unregister_channel(self, peer: Peer, topic: str, channel: str) -> bool:
        """Remove a channel of a peer; return False if the peer did not have it.

        An ephemeral channel is removed with its last peer.
        """
        peers = self._channels.get(topic, {}).get(channel)
        if peers is None:
            return False
        had = peer in peers
        if had:
            peers.remove(peer)
            peer.topics[topic] -= 1
            self._count(peer, -1)
        if not peers:
            if is_ephemeral(channel):
                self.remove_channel(topic, channel)
            elif had:
                self.usage.unused[topic, channel] = None
        return had

    def unregister_topic(self, peer: Peer, topic: str) -> list[tuple[str, str]]:
        """Remove a topic of a peer, and the peer's channels of it; return the removed registrations, channels first.

        An ephemeral topic and its channels are removed with its last peer.
        """
        return [removed for removed in self.begin_to_unregister(peer, topic) if removed]

    def begin_to_unregister(self, peer: Peer, topic: str) -> Iterator[tuple[str, str] | None]:
        """Do the same as `unregister_topic`, in steps, as the caller iterates."""
        for channel in self._channels_of(peer, topic):
            if channel is None:
                yield None
            elif self.unregister_channel(peer, topic, channel):
                yield topic, channel
        peer.topics.pop(topic, None)
        producers = self._topics.get(topic)
        if producers is None:
            return
        had = producers.pop(peer, None) is not None
        if had:
            self._count(peer, -1)
            self._topic_changed(peer, topic)
        if not producers:
            if not is_ephemeral(topic):
                if had:
                    self.usage.unused[topic, ""] = None
            else:
                for _ in self.begin_to_remove_topic(topic):
                    yield None
        if had:
            yield topic, ""

    # ---- administration

    def add_topic(self, topic: str) -> None:
        """Add a topic that may have no producer. Raises TooManyNames."""
        self.add_channel(topic, "")

    def add_channel(self, topic: str, channel: str) -> None:
        """Add a channel, and its topic, that may have no producer. Raises TooManyNames."""
        self.usage.check_names(self._new_names(topic, channel))
        unused = self.usage.unused
        if channel and not self._channel(topic, channel):
            unused[topic, channel] = None
        if not self._topic(topic):
            unused[topic, ""] = None
            unused.move_to_end((topic, ""))  # behind its channels

    def remove_topic(self, topic: str) -> list[str]:
        """Remove a topic and its channels; return the names of the channels."""
        return list(self.begin_to_remove_topic(topic))

    def begin_to_remove_topic(self, topic: str) -> Iterator[str]:
        """Remove a topic at once. Its channels are freed as the caller iterates over them; it must do so to the end."""
        channels = self._channels.pop(topic, {})
        producers = self._topics.get(topic, {})
        for peer in producers:
            peer.node_view = None
            peer.topics.pop(topic, None)
            self._count(peer, -1)
        self._forget_topic(topic)
        return self._freed(topic, channels)

    def _freed(self, topic: str, channels: dict[str, set[Peer]]) -> Iterator[str]:
        while channels:
            channel, peers = channels.popitem()
            self.usage.names -= 1
            self.usage.unused.pop((topic, channel), None)
            for peer in peers:
                self._count(peer, -1)
            yield channel

    def remove_channel(self, topic: str, channel: str) -> None:
        """Remove a channel. Raises KeyError."""
        channels = self._channels[topic]
        for peer in channels.pop(channel):
            peer.topics[topic] -= 1
            self._count(peer, -1)
        self.usage.names -= 1
        self.usage.unused.pop((topic, channel), None)
        if not channels:
            del self._channels[topic]
        self._forget_view(topic)

    def tombstone(self, topic: str, node: str, now_ns: int) -> None:
        """Hide a producer of a topic for the tombstone's lifetime, because it is about to delete the topic."""
        producers = self._topics.get(topic, {})
        for peer in producers:
            if peer.node == node:
                producers[peer] = now_ns
                self._topic_changed(peer, topic)

    # ---- answers

    def topics(self, rest: Rest = no_rest) -> list[str]:
        return sorted_names(self._topics, rest)

    def channels(self, topic: str, rest: Rest = no_rest) -> list[str]:
        return sorted_names(self._channels.get(topic, ()), rest)

    def has_few_topics(self) -> bool:
        return len(self._topics) <= QUICK_NAMES

    def has_few_channels(self, topic: str) -> bool:
        return len(self._channels.get(topic, ())) <= QUICK_NAMES

    def has_channel(self, topic: str, channel: str) -> bool:
        return channel in self._channels.get(topic, ())

    def lookup(self, topic: str, now_ns: int, rest: Rest = no_rest) -> TopicView | None:
        """Return a topic's channels, and its producers that are alive and not tombstoned; None for an unknown topic."""
        view = self._views.get(topic)
        if view is None or view.valid_until_ns <= now_ns:
            producers = self._topics.get(topic)
            if producers is None:
                return None
            changes = self._changes
            view = self._look(topic, producers, now_ns, rest)
            if changes == self._changes:
                self._views[topic] = view
        return view

    def _look(self, topic: str, producers: dict[Peer, int], now_ns: int, rest: Rest) -> TopicView:
        found = []
        valid_until_ns = NEVER_NS
        for peer, tombstoned_ns in producers.items():
            if not self._is_active(peer, now_ns):
                continue  # its next PING invalidates the view
            if self._is_tombstoned(tombstoned_ns, now_ns):
                valid_until_ns = min(valid_until_ns, tombstoned_ns + self._tombstone_lifetime_ns)
                continue
            # An earlier PING only extends the validity.
            valid_until_ns = min(valid_until_ns, peer.updated_ns + self._inactive_after_ns + 1)
            found.append(peer)
        return TopicView(self.channels(topic, rest), found, valid_until_ns)

    def _is_tombstoned(self, tombstoned_ns: int, now_ns: int) -> bool:
        return tombstoned_ns != _NOT_TOMBSTONED and now_ns - tombstoned_ns < self._tombstone_lifetime_ns

    def nodes(self, now_ns: int, rest: Rest = no_rest) -> Iterator[tuple[Peer, NodeView]]:
        """Yield every peer that is alive, with its topics and tombstones."""
        for peer in list(self._peers):
            if self._is_active(peer, now_ns):
                view = peer.node_view
                if view is None or view.valid_until_ns <= now_ns:
                    changes = self._changes
                    view = self._look_at_node(peer, now_ns, rest)
                    if changes == self._changes and len(view.topics) <= QUICK_NAMES:
                        peer.node_view = view
                yield peer, view

    def _look_at_node(self, peer: Peer, now_ns: int, rest: Rest) -> NodeView:
        topics = sorted_names(peer.topics, rest)
        tombstones = []
        valid_until_ns = NEVER_NS
        for number, topic in enumerate(topics):
            if number % STEP == STEP - 1:
                rest()
            tombstoned_ns = self._topics.get(topic, {}).get(peer, _NOT_TOMBSTONED)
            is_tombstoned = self._is_tombstoned(tombstoned_ns, now_ns)
            tombstones.append(is_tombstoned)
            if is_tombstoned:
                valid_until_ns = min(valid_until_ns, tombstoned_ns + self._tombstone_lifetime_ns)
        return NodeView(topics, tombstones, valid_until_ns)

    def registrations(self, rest: Rest = no_rest) -> Iterator[Registration]:
        """Yield everything that is registered, for /debug. The registry may change meanwhile."""
        yield Registration("client", "", "", [(peer, _NOT_TOMBSTONED) for peer in self._peers])
        for topic in self.topics(rest):
            yield Registration("topic", topic, "", list(self._topics.get(topic, {}).items()))
        for topic in sorted_names(self._channels, rest):
            for channel in self.channels(topic, rest):
                peers = self._channels.get(topic, {}).get(channel, ())
                yield Registration("channel", topic, channel, [(peer, _NOT_TOMBSTONED) for peer in peers])

    # ---- the tables

    def _topic(self, topic: str) -> dict[Peer, int]:
        producers = self._topics.get(topic)
        if producers is None:
            producers = self._topics[topic] = {}
            self.usage.names += 1
            self.revision += 1
        return producers

    def _channel(self, topic: str, channel: str) -> set[Peer]:
        channels = self._channels.setdefault(topic, {})
        peers = channels.get(channel)
        if peers is None:
            peers = channels[channel] = set()
            self.usage.names += 1
            self._forget_view(topic)
        return peers

    def _forget_topic(self, topic: str) -> None:
        if self._topics.pop(topic, None) is not None:
            self.usage.names -= 1
            self.usage.unused.pop((topic, ""), None)
            self.revision += 1
        self._forget_view(topic)

    def _topic_changed(self, peer: Peer, topic: str) -> None:
        self._forget_view(topic)
        peer.node_view = None

    def _forget_view(self, topic: str) -> None:
        self._changes += 1
        self._views.pop(topic, None)

    def _forget_views(self, peer: Peer) -> None:
        self._changes += 1
        if self._views:
            for topic in peer.topics:
                self._views.pop(topic, None)
