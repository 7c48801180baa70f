"""Publishes of a producer against a plain model: nsqds that store, refuse, hang and die under random operations.

Each publish is at any moment in exactly one of: waiting, sent (in one window), done, failed. What is done is stored;
what failed for sure is stored nowhere; without retries of the unknown nothing is stored twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqd_py.client.errors import ConnectionFailed, ConnectionLost, NoNsqd, PublishFailed
from nsqd_py.client.publishing.dispatcher import MAX_LOSSES, ConnectionWriter, Dispatcher, WindowLimits
from nsqd_py.client.publishing.publish import DONE, FAILED, SENT, WAITING, PendingPublish
from nsqd_py.runtime.logs.outages import Backoff
from tests.support.examples import examples

ADDRESSES = ("a:1", "b:1", "c:1")
LIMITS = WindowLimits(publishes=4, size_bytes=60)
PUBLISH_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 10.0

which = st.sampled_from(ADDRESSES)


@dataclass
class Peer:
    """One nsqd and the connection to it.

    received   commands that it has not looked at, in order
    answers    what it has answered that did not arrive yet: OKs in a row, or an error code
    stored     what it keeps, whatever becomes of connections
    """

    is_connected: bool = False
    reads: bool = True
    received: list[PendingPublish] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    stored: list[PendingPublish] = field(default_factory=list)

    def store(self, count: int) -> None:
        for _ in range(count):
            if self.received and self.reads:
                self.stored.append(self.received.pop(0))
                self.answers.append("OK")

    def refuse(self, code: str) -> None:
        if self.received and self.reads:
            self.received.pop(0)
            self.answers.append(code)
            self.reads = False  # it closes the connection

    def disconnect(self) -> None:
        self.is_connected = False
        self.received.clear()
        self.answers.clear()


class Publishing(RuleBasedStateMachine):
    @initialize(retry_unknown=st.booleans(), addresses=st.sets(which, min_size=1))
    def start(self, retry_unknown: bool, addresses: set[str]) -> None:
        self.now_s = 0.0
        self.retry_unknown = retry_unknown
        self.dispatcher = Dispatcher(LIMITS, retry_unknown=retry_unknown, answer_timeout_s=ANSWER_TIMEOUT_S)
        self.peers = {address: Peer() for address in ADDRESSES}
        self.publishes: list[PendingPublish] = []
        self.reported: list[PendingPublish] = []
        for address in sorted(addresses):
            self.come(address)

    # ---- the shell

    def send(self, writer: ConnectionWriter, publish: PendingPublish) -> None:
        peer = self.peers[writer.address]
        assert peer.is_connected and writer.is_open
        peer.received.append(publish)

    def pump(self) -> None:
        while (order := self.dispatcher.next_to_send(self.now_s)) is not None:
            assert order.publishes
            for publish in order.publishes:
                self.send(order.writer, publish)

    def writer(self, address: str) -> ConnectionWriter | None:
        return self.dispatcher.writers.get(address)

    # ---- what happens

    @rule(address=which)
    def come(self, address: str) -> None:
        self.dispatcher.add_writer(address, Backoff(0.1, 15.0, lambda: 0.5))

    @rule(addresses=st.sets(which))
    def keep(self, addresses: set[str]) -> None:
        for writer in self.dispatcher.keep_writers(addresses):
            assert not self.peers[writer.address].is_connected

    @rule()
    def end_of_turn(self) -> None:
        self.pump()

    @rule(count=st.integers(1, 6), size_bytes=st.integers(1, 80))
    def publish(self, count: int, size_bytes: int) -> None:
        for _ in range(count):
            if not self.dispatcher.has_room or self.dispatcher.no_nsqd() is not None:
                return
            publish = PendingPublish(b"h", b"x" * (size_bytes - 1), self.now_s + PUBLISH_TIMEOUT_S)
            self.publishes.append(publish)
            self.dispatcher.submit(publish)

    @rule(address=which)
    def connect(self, address: str) -> None:
        writer, peer = self.writer(address), self.peers[address]
        if writer is None or peer.is_connected:
            return
        peer.is_connected = peer.reads = True
        self.dispatcher.opened(writer)
        self.pump()

    @rule(address=which)
    def fail_to_connect(self, address: str) -> None:
        writer = self.writer(address)
        if writer is not None and not self.peers[address].is_connected:
            self.reported += self.dispatcher.not_opened(
                writer, ConnectionFailed(address, "refused"), self.now_s
            )
            self.pump()

    @rule(address=which, count=st.integers(1, 5))
    def store(self, address: str, count: int) -> None:
        self.peers[address].store(count)

    @rule(address=which, code=st.sampled_from(["E_BAD_MESSAGE", "E_PUB_FAILED", "E_MPUB_FAILED", "E_NEWS"]))
    def refuse(self, address: str, code: str) -> None:
        self.peers[address].refuse(code)

    @rule(address=which, count=st.integers(1, 5))
    def hear(self, address: str, count: int) -> None:
        """Answers arrive; OKs in a row as one."""
        peer, writer = self.peers[address], self.writer(address)
        arrived, peer.answers = peer.answers[:count], peer.answers[count:]
        oks = arrived.count("OK")
        if oks:
            self.reported += self.dispatcher.answered_ok(writer, oks, self.now_s)
        for code in arrived[oks:]:
            self.reported += self.dispatcher.answered_error(writer, code, "", self.now_s)
        self.pump()

    @rule(address=which)
    def lose(self, address: str) -> None:
        writer, peer = self.writer(address), self.peers[address]
        if peer.is_connected:
            peer.disconnect()
            self.reported += self.dispatcher.closed(writer, "gone", self.now_s)
            self.pump()

    @rule(seconds=st.floats(0.1, 12.0))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        publishes, hung = self.dispatcher.expire(self.now_s)
        self.reported += publishes
        for writer in hung:
            self.lose(writer.address)
        self.pump()

    @precondition(lambda self: self.dispatcher.writers)
    @rule()
    def heal(self) -> None:
        """When all nsqds work again, and are wanted, everything ends, and early."""
        for address in list(self.dispatcher.writers):
            self.come(address)
        for _ in range(3 * MAX_LOSSES * len(self.publishes) + 3):
            for address in list(self.dispatcher.writers):
                if not self.peers[address].reads:
                    self.lose(address)
                self.connect(address)
                self.store(address, 100)
                self.hear(address, 100)
            if not self.dispatcher.unfinished:
                break
        assert all(publish.is_over for publish in self.publishes)

    # ---- what is true at any moment

    def stored(self) -> list[int]:
        return [id(publish) for peer in self.peers.values() for publish in peer.stored]

    @invariant()
    def each_is_in_exactly_one_place(self) -> None:
        waiting = list(self.dispatcher.waiting)
        assert self.dispatcher.waiting_bytes == sum(publish.size_bytes for publish in waiting)
        sent = [p for writer in self.dispatcher.writers.values() for p in writer.unanswered if not p.is_over]
        places = [*waiting, *sent, *self.reported]
        assert sorted(map(id, places)) == sorted(map(id, self.publishes))
        assert all(publish.state is WAITING for publish in waiting)
        assert all(publish.state is SENT for publish in sent)
        assert all(publish.state in (DONE, FAILED) for publish in self.reported)
        assert self.dispatcher.unfinished == len(waiting) + len(sent)

    @invariant()
    def windows_hold_what_the_peer_has_not_answered(self) -> None:
        for address, peer in self.peers.items():
            writer = self.writer(address)
            if not peer.is_connected:
                assert writer is None or not writer.unanswered
                continue
            assert len(writer.unanswered) == len(peer.received) + len(peer.answers)
            assert len(writer.unanswered) <= LIMITS.publishes
            assert writer.size_bytes == sum(publish.size_bytes for publish in writer.unanswered)
            assert writer.size_bytes < LIMITS.size_bytes + 80

    @invariant()
    def done_means_stored(self) -> None:
        stored = self.stored()
        for publish in self.reported:
            if publish.state is DONE:
                assert id(publish) in stored
            elif isinstance(publish.error, NoNsqd):
                assert id(publish) not in stored
            elif isinstance(publish.error, PublishFailed | ConnectionLost) and not publish.losses:
                assert isinstance(publish.error, PublishFailed)
                assert id(publish) not in stored

    @invariant()
    def nothing_is_stored_twice_unless_it_may(self) -> None:
        assert self.retry_unknown or len(self.stored()) == len(set(self.stored()))


Publishing.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)
TestPublishing = Publishing.TestCase
