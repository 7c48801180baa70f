"""All nsqlookupds of an nsqd: the configured addresses, and a peer for each endpoint of them.

The channels of a new topic are made before its first message is released, so that each channel gets it: the nsqlookupds
know the channels that the topic has on other nsqds. Publishers do not wait for their answers: messages are written to the
topic's log and acknowledged without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

import gevent
from gevent import ssl
from gevent.event import Event
from gevent.pool import Group

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Lookups, Topic
from nsqd_py.errors import Refusal, StartError
from nsqd_py.lookup.connection import identify
from nsqd_py.lookup.host import Endpoint, LookupHost, parse_address, resolve
from nsqd_py.lookup.peer import MAX_ANSWER_BYTES, LookupPeer, PeerContext
from nsqd_py.net.http import HttpClientError
from nsqd_py.net.http.client import HttpClient, limit_s
from nsqd_py.net.peer_tls import PeerTls
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.server.options import NsqdOptions

# How long a new topic waits for nsqlookupds that this nsqd has only begun to connect with.
FIRST_ATTEMPTS_S = 2.0
# Each question has its own deadline. A question that waited behind others is given up a little later.
_MARGIN_S = 0.1
_CLOSE_S = 1.0


class LookupPeers(Lookups):
    """Registers the topics and channels of `broker` with the nsqlookupds of `set_addresses`."""

    def __init__(self, broker: Broker, options: NsqdOptions, log: Log, tls: PeerTls | None = None) -> None:
        """Register nothing yet: call `start`. `tls` is for all connections; None is no TLS."""
        self._log = log
        self._hosts: dict[str, LookupHost] = {}
        self._peers: dict[Endpoint, LookupPeer] = {}
        # The hosts that use an endpoint, as of the last `_settle`: a failure concerns these and no others.
        self._users: dict[Endpoint, list[LookupHost]] = {}
        self._is_changing = False
        self._is_running = False
        self._progress = Event()
        self._broker = broker
        self._starting: dict[Topic, gevent.Greenlet[..., None]] = {}
        self._greenlets = Group()
        self._is_closed = False
        # For the answers of the nsqlookupds.
        self._longest_s = limit_s(options.http_client_request_timeout_ns)
        client = HttpClient.of(options, resolve=resolve, tls=tls, max_answer_bytes=MAX_ANSWER_BYTES)
        self._context = PeerContext(
            log,
            broker.topics,
            lambda: identify(options, broker.ports.tcp, broker.ports.http),
            self._on_known,
            self._on_failed,
            client,
            tls,
            options.max_body_size,
        )

    # ---- start and stop

    def start(self) -> None:
        """Connect to all nsqlookupds."""
        self._is_running = True
        with self._one_change():
            for host in self._hosts.values():
                host.start()

    def close(self) -> None:
        """Close all connections, so that the nsqlookupds forget this nsqd, and ask no more. Blocks this greenlet.

        Held topics stay held: their messages are in the log, and the next start releases them.
        """
        self._is_closed = True
        self._greenlets.kill()
        if not self._is_running:
            return
        self._log.info("LOOKUP: closing")
        self._is_running = False
        for host in self._hosts.values():
            host.stop()
        self._hosts.clear()
        stopped = [peer.stop(is_leaving=True) for peer in self._peers.values()]
        gevent.joinall([greenlet for greenlet in stopped if greenlet is not None], _CLOSE_S)
        self._peers.clear()

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Register with these addresses from now on, and with no others. Addresses that cannot be used are logged."""
        requested = dict.fromkeys(addresses)
        with self._one_change():
            removed = [text for text in self._hosts if text not in requested]
            for text in removed:
                self._log.of_clients.info("LOOKUP(%s): removing peer", text)
                self._hosts.pop(text).stop()
            for text in requested:
                if text not in self._hosts:
                    self._add_host(text)

    def _add_host(self, text: str) -> None:
        try:
            address = parse_address(text)
        except ValueError as error:
            self._log.of_clients.error("LOOKUP(%s): cannot be used - %s", text, error)
            return
        self._log.of_clients.info("LOOKUP(%s): adding peer", text)
        host = LookupHost(address, resolve, self._log, monotonic, self._is_connected, self._on_resolved)
        self._hosts[text] = host
        if self._is_running:
            host.start()

    # ---- calls of the broker

    def topic_made(self, topic: Topic) -> None:
        self.notify(topic.name, "", was_deleted=False)
        if self._hosts:
            self.precreate(topic)

    def notify(self, topic_name: str, channel_name: str, was_deleted: bool) -> None:
        for peer in self._peers.values():
            if was_deleted and not channel_name:
                peer.asked.discard(topic_name)
            if peer.is_started:
                peer.note((topic_name, channel_name), was_deleted)

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        greenlet = self._starting.get(topic)
        if greenlet is not None:
            greenlet.join(timeout_s)
        return topic.is_started

    def wait_until_all_started(self, timeout_s: float) -> None:
        gevent.joinall(list(self._starting.values()), timeout_s)

    # ---- peers come and go

    @contextmanager
    def _one_change(self) -> Iterator[None]:
        """Settle once after a change of many hosts: settling for each of them takes quadratic time."""
        self._is_changing = True
        try:
            yield
        finally:
            self._is_changing = False
            self._settle()

    def _on_resolved(self) -> None:
        if not self._is_changing:
            self._settle()

    def _settle(self) -> None:
        """Make a peer for each endpoint, and run the peers that are in use."""
        hosts = self._hosts.values()
        known = {endpoint: host for host in reversed(hosts) for endpoint in host.selection.all}
        used: dict[Endpoint, list[LookupHost]] = {}
        for host in hosts:
            for endpoint in host.selection.in_use:
                used.setdefault(endpoint, []).append(host)
        self._users = used
        gone = [endpoint for endpoint in self._peers if endpoint not in known]
        for endpoint in gone:
            self._peers.pop(endpoint).stop()
        for endpoint, host in known.items():
            if endpoint not in self._peers:
                self._peers[endpoint] = LookupPeer(endpoint, host.address, self._context)
        for endpoint, peer in self._peers.items():
            if endpoint in used:
                peer.start()
            else:
                peer.stop()
        self._progress.set()

    def _is_connected(self, endpoint: Endpoint) -> bool:
        peer = self._peers.get(endpoint)
        return peer is not None and peer.is_connected

    def _on_known(self, peer: LookupPeer) -> None:
        self._progress.set()
        self._catch_up(peer)

    def _on_failed(self, peer: LookupPeer) -> bool:
        """Return True if a host of this peer has changed to another address family that may still work."""
        has_hope = False
        has_changed = False
        for host in self._users.get(peer.endpoint, ()):
            selection = host.selection
            used_before = selection.in_use
            selection.ended(peer.endpoint)
            host.resolve_soon()
            if self._all_fail(selection.in_use) and selection.change_family():
                has_hope = not self._all_fail(selection.in_use) or has_hope
            has_changed = selection.in_use != used_before or has_changed
        if has_changed:
            self._settle()
        self._progress.set()
        return has_hope

    def _all_fail(self, endpoints: Sequence[Endpoint]) -> bool:
        peers = map(self._peers.get, endpoints)
        return all(peer is not None and peer.is_failing for peer in peers)

    # ---- questions to nsqlookupds

    def wait_until_tried(self, timeout_s: float) -> None:
        """Wait until each nsqlookupd has been tried once, or time runs out. Blocks this greenlet."""
        end_s = monotonic() + timeout_s
        while any(self._is_untried(host) for host in self._hosts.values()):
            self._progress.clear()
            if not self._progress.wait(end_s - monotonic()):
                return

    def _is_untried(self, host: LookupHost) -> bool:
        if not host.was_resolved:
            return True
        peers = map(self._peers.get, host.selection.in_use)
        return not all(peer is not None and peer.was_tried for peer in peers)

    def peers_to_ask(self) -> list[LookupPeer]:
        """Return the peers that have been connected at least once, one for each nsqlookupd."""
        by_address = {peer.query.address: peer for peer in self._peers.values() if peer.query is not None}
        return list(by_address.values())

    # ---- the channels of new topics

    def precreate(self, topic: Topic) -> None:
        """Hold the topic, and start it when its channels are made or the questions have failed."""
        if not self._is_closed:
            topic.wait_for_channels()
            self._starting[topic] = self._greenlets.spawn(self._start, topic)

    def _start(self, topic: Topic) -> None:
        try:
            self.wait_until_tried(FIRST_ATTEMPTS_S)
            self._add_channels(topic, self._find(topic))
        finally:
            self._starting.pop(topic, None)
            if not self._is_closed and not topic.is_closed:
                topic.start()

    def _find(self, topic: Topic) -> list[str]:
        """Return the channels that any nsqlookupd knows, sorted."""
        peers = self.peers_to_ask()
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
        if not topic.is_closed:  # a new topic of this name has to be asked for
            peer.asked.add(topic.name)
        return names

    def _warn(self, peer: LookupPeer, topic: Topic, reason: object) -> None:
        text = "failed to query nsqlookupd %s for channels to pre-create for topic %s - %s"
        self._log.of_clients.warning(text, peer.name, topic.name, reason)

    def _add_channels(self, topic: Topic, names: Iterable[str]) -> None:
        """Make channels that all start at the same message."""
        was_started = topic.is_started
        topic.wait_for_channels()
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
            self._log.of_clients.error(
                "TOPIC(%s): failed to pre-create channel %s - %s", topic.name, name, error
            )

    # ---- topics that an nsqlookupd was not asked for

    def _catch_up(self, peer: LookupPeer) -> None:
        """Ask a peer that has connected for the channels of topics that still have none.

        This must happen before the peer learns that this nsqd has these topics. Otherwise consumers arrive, and the
        first channel alone gets the waiting messages. Blocks the peer's greenlet, for a bounded time.
        """
        if peer.query is None or self._is_closed:
            return
        with gevent.Timeout(self._longest_s, False):  # type: ignore[arg-type]
            for topic in list(self._broker.topics.values()):
                if topic.name in peer.asked or topic.is_closed or (topic.channels and topic.is_started):
                    continue
                names = self._ask(peer, topic)
                if names is None:  # it would not answer the other questions either
                    return
                if names and not (topic.channels and topic.is_started):
                    self._add_channels(topic, names)


def lookupd_tls(options: NsqdOptions, log: Log) -> PeerTls | None:
    """Return the TLS of connections to nsqlookupds; None without TLS. Raises StartError."""
    if not options.lookupd_tls:
        return None
    tls = PeerTls.of(options, "lookupd", ssl.SSLContext, log.error)
    try:
        tls.load()
    except OSError as error:
        raise StartError(f"failed to set up TLS to nsqlookupd - {error.strerror or error}") from error
    return tls
