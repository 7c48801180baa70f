"""nsqlookupd's registry against a plain model: a table of registrations, searched again for each answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from nsqlookupd_py.protocol import Peer
from nsqlookupd_py.registry import Registry
from tests.support.examples import examples

INACTIVE_AFTER = 300
TOMBSTONED_FOR = 45
TOPIC_NAMES = ["a", "b", "c#ephemeral"]
TOPICS = st.sampled_from(TOPIC_NAMES)
CHANNELS = st.sampled_from(["x", "y", "z#ephemeral"])
EITHER = st.just("") | CHANNELS
EPHEMERAL = "#ephemeral"


@dataclass
class Model:
    """(peer, topic, channel or "") of each registration, names that outlive them, and tombstones."""

    heard: dict[Peer, int] = field(default_factory=dict)
    registered: set[tuple[Peer, str, str]] = field(default_factory=set)
    names: set[tuple[str, str]] = field(default_factory=set)
    tombstones: dict[tuple[Peer, str], int] = field(default_factory=dict)

    def register(self, peer: Peer, topic: str, channel: str) -> None:
        for name in {channel, ""}:
            self.registered.add((peer, topic, name))
            self.names.add((topic, name))

    def unregister(self, peer: Peer, topic: str, channel: str) -> None:
        had = {entry for entry in self.registered if entry[:2] == (peer, topic) and channel in (entry[2], "")}
        self.registered -= had
        names = {channel} | {entry[2] for entry in had}
        for name in names:
            if not any(entry[1:] == (topic, name) for entry in self.registered) and (name or topic).endswith(
                EPHEMERAL
            ):
                self.names.discard((topic, name))
        if not channel:
            self.tombstones.pop((peer, topic), None)
            if (topic, "") not in self.names:
                self.forget(topic)

    def forget(self, topic: str) -> None:
        self.names = {name for name in self.names if name[0] != topic}
        self.registered = {entry for entry in self.registered if entry[1] != topic}
        self.tombstones = {key: at for key, at in self.tombstones.items() if key[1] != topic}

    def is_tombstoned(self, peer: Peer, topic: str, now: int) -> bool:
        at = self.tombstones.get((peer, topic))
        return at is not None and now - at < TOMBSTONED_FOR

    def is_active(self, peer: Peer, now: int) -> bool:
        return now - self.heard[peer] <= INACTIVE_AFTER

    def topics_of(self, peer: Peer) -> list[str]:
        return sorted(topic for who, topic, channel in self.registered if who is peer and not channel)


class RegistryMachine(RuleBasedStateMachine):
    peers = Bundle("peers")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000
        self.registry = Registry(INACTIVE_AFTER, TOMBSTONED_FOR)
        self.model = Model()
        self.next_port = 1

    @rule(target=peers)
    def connect(self) -> Peer:
        self.next_port += 1
        # Two of three share an address: an nsqd that connected again while its old connection lives.
        fields = {"broadcast_address": "host", "http_port": self.next_port // 3}
        peer = Peer(f"127.0.0.1:{self.next_port}", fields, self.now)
        self.registry.add_peer(peer)
        self.model.heard[peer] = self.now
        return peer

    @rule(peer=consumes(peers))
    def disconnect(self, peer: Peer) -> None:
        list(self.registry.removing_peer(peer))
        for topic in self.model.topics_of(peer):
            self.model.unregister(peer, topic, "")
        del self.model.heard[peer]

    @rule(peer=peers, topic=TOPICS, channel=EITHER)
    def register(self, peer: Peer, topic: str, channel: str) -> None:
        before = set(self.model.registered)
        self.model.register(peer, topic, channel)
        added = self.registry.register(peer, topic, channel)
        assert {(peer, *entry) for entry in added} == self.model.registered - before

    @rule(peer=peers, topic=TOPICS, channel=EITHER)
    def unregister(self, peer: Peer, topic: str, channel: str) -> None:
        before = set(self.model.registered)
        self.model.unregister(peer, topic, channel)
        gone = before - self.model.registered
        if channel:
            assert self.registry.unregister_channel(peer, topic, channel) == bool(gone)
        else:
            removed = self.registry.unregistering_topic(peer, topic)
            assert {(peer, *entry) for entry in removed if entry is not None} == gone

    @rule(peer=peers)
    def ping(self, peer: Peer) -> None:
        peer.updated_ns = self.now
        self.model.heard[peer] = self.now

    @rule(seconds=st.sampled_from([0, 1, 44, 45, 46, 255, 299, 300, 301]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(topic=TOPICS, node=peers)
    def tombstone(self, topic: str, node: Peer) -> None:
        self.registry.tombstone(topic, node.node, self.now)
        for peer, of_topic, channel in self.model.registered:
            if peer.node == node.node and of_topic == topic and not channel:
                self.model.tombstones[peer, topic] = self.now

    @rule(topic=TOPICS, channel=EITHER)
    def create(self, topic: str, channel: str) -> None:
        self.model.names |= {(topic, channel), (topic, "")}
        self.registry.create(topic, channel)

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.model.forget(topic)
        list(self.registry.removing_topic(topic))

    @rule(topic=TOPICS, channel=CHANNELS)
    def delete_channel(self, topic: str, channel: str) -> None:
        if self.registry.has_channel(topic, channel):
            self.registry.remove_channel(topic, channel)
            self.model.names.discard((topic, channel))
            self.model.registered = {
                entry for entry in self.model.registered if entry[1:] != (topic, channel)
            }

    @invariant()
    def topics_and_channels_are_known(self) -> None:
        names = self.model.names
        assert sorted(self.registry.topics()) == sorted(topic for topic, channel in names if not channel)
        for topic in TOPIC_NAMES:
            assert sorted(self.registry.channels(topic)) == sorted(c for t, c in names if t == topic and c)

    @invariant()
    def lookups_name_those_who_are_there(self) -> None:
        model = self.model
        for topic in TOPIC_NAMES:
            producers = self.registry.lookup(topic, self.now)
            registered = [peer for peer, *name in model.registered if name == [topic, ""]]
            active = {
                p
                for p in registered
                if model.is_active(p, self.now) and not model.is_tombstoned(p, topic, self.now)
            }
            assert producers is None if (topic, "") not in model.names else set(producers) == active

    @invariant()
    def nodes_are_those_who_are_there(self) -> None:
        nodes = {
            peer: sorted(zip(topics, tombstones, strict=True))
            for peer, topics, tombstones in self.registry.nodes(self.now)
        }
        assert nodes == {
            peer: [
                (topic, self.model.is_tombstoned(peer, topic, self.now))
                for topic in self.model.topics_of(peer)
            ]
            for peer in self.model.heard
            if self.model.is_active(peer, self.now)
        }

    @invariant()
    def all_is_counted(self) -> None:
        registered, names, registry = self.model.registered, self.model.names, self.registry
        assert registry.names == len(names)
        assert registry.registrations == len(registered)
        assert set(registry.unused) == {
            name for name in names if not any(entry[1:] == name for entry in registered)
        }
        for peer in self.model.heard:
            own = [entry for entry in registered if entry[0] is peer]
            assert peer.registrations == len(own)
            assert peer.topics == {
                topic: sum(1 for entry in own if entry[1] == topic and entry[2])
                for topic in self.model.topics_of(peer)
            }

    @invariant()
    def topics_give_way_after_their_channels(self) -> None:
        unused = list(self.registry.unused)
        for place, (topic, channel) in enumerate(unused):
            assert channel or topic not in dict(unused[place + 1 :])

    @invariant()
    def everything_is_in_debug(self) -> None:
        rows = [row for row in self.registry.all_registrations() if row[0] != "client"]
        shown = {(peer, topic, channel) for _, topic, channel, peers in rows for peer in peers}
        assert shown == self.model.registered


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=examples(120), stateful_step_count=60, deadline=None)
