"""Makes the channels of a new topic before its first message is released, so that each channel gets it.

The nsqlookupds know the channels that the topic has on other nsqds. Publishers do not wait for their answers:
messages are written to the topic's log and acknowledged without them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

import gevent
from gevent.pool import Group

from nsqd_py.broker.broker import Broker
from nsqd_py.errors import Refusal
from nsqd_py.lookup.peer import LookupPeer
from nsqd_py.net.http.client import HttpClientError
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.logs import Log

# How long a new topic waits for nsqlookupds that this nsqd has only begun to connect with.
FIRST_ATTEMPTS_S = 2.0
_QUESTIONS_AT_ONCE = 8
# Each question has its own deadline. A question that waited behind others is given up a little later.
_MARGIN_S = 0.1


class KnownPeers(Protocol):
    """The nsqlookupds."""

    def wait_until_tried(self, timeout_s: float) -> None:
        """Wait until each has been tried once."""

    def peers_to_ask(self) -> Sequence[LookupPeer]:
        """Return the peers that have been connected at least once, one for each nsqlookupd."""


class Precreation:
    """Starts new topics. `longest_s` is the time limit for the answers of the nsqlookupds; None means no limit."""

    def __init__(self, broker: Broker, peers: KnownPeers, longest_s: float | None, log: Log) -> None:
        self._broker = broker
        self._peers = peers
        self._longest_s = longest_s
        self._log = log
        self._starting: dict[Topic, gevent.Greenlet[..., None]] = {}
        self._greenlets = Group()
        self._is_closed = False

    # ---- new topics

    def begin(self, topic: Topic) -> None:
        """Hold the topic, and start it when its channels are made or the questions have failed."""
        if not self._is_closed:
            topic.hold()
            self._starting[topic] = self._greenlets.spawn(self._start, topic)

    def wait(self, topic: Topic, timeout_s: float | None) -> bool:
        """Wait until the topic is started, and return True if it is. Blocks this greenlet."""
        greenlet = self._starting.get(topic)
        if greenlet is not None:
            greenlet.join(timeout_s)
        return topic.is_started

    def wait_for_all(self, timeout_s: float) -> None:
        """Wait until all present topics are started. Blocks this greenlet."""
        gevent.joinall(list(self._starting.values()), timeout_s)

    def close(self) -> None:
        """Ask no more. Held topics stay held: their messages are in the log, and the next start releases them."""
        self._is_closed = True
        self._greenlets.kill()

    def _start(self, topic: Topic) -> None:
        try:
            self._peers.wait_until_tried(FIRST_ATTEMPTS_S)
            self._add_channels(topic, self._find(topic))
        finally:
            self._starting.pop(topic, None)
            if not self._is_closed and not topic.is_closed:
                topic.start()

    def _find(self, topic: Topic) -> list[str]:
        """Return the channels that any nsqlookupd knows, sorted."""
        peers = self._peers.peers_to_ask()
        if not peers:
            text = "no available nsqlookupd to query for channels to pre-create for topic %s"
            self._log.of_clients.error(text, topic.name)
            return []
        questions = [self._greenlets.spawn(self._ask, peer, topic) for peer in peers]
        try:
            gevent.joinall(questions, self._longest_s and self._longest_s + _MARGIN_S)
        finally:
            gevent.killall(questions, block=False)
        found: set[str] = set()
        for peer, question in zip(peers, questions, strict=True):
            if question.ready():
                found.update(question.value or ())
            else:
                self._warn(peer, topic, "no answer in time")
        return sorted(found)

    def _ask(self, peer: LookupPeer, topic: Topic) -> list[str] | None:
        """Return the channels that the peer knows, None if it could not be asked."""
        assert peer.query is not None
        try:
            names = peer.query.channels(topic.name)
        except HttpClientError as error:
            self._warn(peer, topic, error)
            return None
        peer.asked.add(topic)
        return names

    def _warn(self, peer: LookupPeer, topic: Topic, reason: object) -> None:
        text = "failed to query nsqlookupd %s for channels to pre-create for topic %s - %s"
        self._log.of_clients.warning(text, peer.name, topic.name, reason)

    def _add_channels(self, topic: Topic, names: Iterable[str]) -> None:
        """Make channels that all start at the same message."""
        was_started = topic.is_started
        topic.hold()
        try:
            for name in names:
                self._add_channel(topic, name)
        finally:
            if was_started:
                topic.start()

    def _add_channel(self, topic: Topic, name: str) -> None:
        if self._broker.topics.get(topic.name) is not topic:
            return  # deleted while the answers were under way
        try:
            self._broker.get_channel(topic, name)
        except (OSError, Refusal) as error:
            self._log.of_clients.error("TOPIC(%s): failed to pre-create channel %s - %s", topic.name, name, error)

    # ---- topics that an nsqlookupd was not asked for

    def catch_up(self, peer: LookupPeer) -> None:
        """Ask a peer that has connected for the channels of topics that still have none.

        This must happen before the peer learns that this nsqd has these topics. Otherwise consumers arrive, and the
        first channel alone gets the waiting messages. Blocks the peer's greenlet, for a bounded time.
        """
        missed = deque(topic for topic in self._broker.topics.values() if self._is_missed(topic, peer))
        if not missed or peer.query is None or self._is_closed:
            return
        count = min(_QUESTIONS_AT_ONCE, len(missed))
        askers = [self._greenlets.spawn(self._ask_for_missed, peer, missed) for _ in range(count)]
        try:
            gevent.joinall(askers, self._longest_s)
        finally:
            gevent.killall(askers, block=False)

    def _is_missed(self, topic: Topic, peer: LookupPeer) -> bool:
        return topic not in peer.asked and not topic.is_closed and (not topic.channels or not topic.is_started)

    def _ask_for_missed(self, peer: LookupPeer, missed: deque[Topic]) -> None:
        while missed:
            topic = missed.popleft()
            names = self._ask(peer, topic)
            if names is None:  # it would not answer the other questions either
                missed.clear()
            elif names and not (topic.channels and topic.is_started):
                self._add_channels(topic, names)
