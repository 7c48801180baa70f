"""A cluster of real processes: nsqds that report to every nsqlookupd, and what is done to them."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tests.support.background import Background
from tests.support.ledger import Bodies, History, judge
from tests.support.network import Network
from tests.support.nsqd_process import NsqdProcess, ServerProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess, Producer
from tests.support.wire import Client, bodies

LOOKUPDS, NSQDS = 2, 3
NSQD_PORTS = (4150, 4151)
LOOKUPD_PORTS = (4160, 4161)
# More than the 15 s between two pings of an nsqd.
LOOKUPD_FLAGS = ("--inactive-producer-timeout=20s",)
# A lookupd that can be reached hears of a change within this time,
SOON_S = 40.0
# and what was away, or could not be reached, is back within this one.
RETURN_S = 40.0
# No answer takes longer than this, whatever happens to the lookupds. nsqd waits 5 s for theirs.
ANSWER_S = 4.0
# Some hundred publishes, one each 10 ms, on a busy machine.
PUBLISHES_S = 60.0

T = TypeVar("T")


def eventually(ask: Callable[[], T], expected: T, deadline_s: float = SOON_S) -> None:
    """Asks until the answer is as expected. Fails at the deadline with the last answer."""
    answer: list[T] = []

    def matches() -> bool:
        answer[:] = [ask()]
        return answer[0] == expected

    try:
        wait_until(matches, deadline_s)
    except AssertionError as error:
        raise AssertionError(f"waited {deadline_s} s for {expected!r}, last was {answer[0]!r}") from error


@contextlib.contextmanager
def answered_within() -> Iterator[None]:
    """Fails when what is done inside takes longer than ANSWER_S."""
    start = time.monotonic()
    yield
    took_s = time.monotonic() - start
    assert took_s < ANSWER_S, f"took {took_s:.3f} s"


class ClusterNsqd(NsqdProcess):
    """An nsqd on a host of its own."""

    def try_to_connect(self) -> Client | None:
        """A connection, or None when it does not listen yet."""
        with contextlib.suppress(ConnectionRefusedError):
            return self.connect()
        return None

    @property
    def identity(self) -> str:
        """How producers are distinguished below; see `Cluster.producers`."""
        return f"{self.host.address}:{NSQD_PORTS[0]}"

    def delete_topic(self, topic: str) -> None:
        self.post(f"/topic/delete?topic={topic}")

    def delete_channel(self, topic: str, channel: str) -> None:
        self.post(f"/channel/delete?topic={topic}&channel={channel}")

    def received(self, topic: str, channel: str, count: int) -> list[bytes]:
        """The next `count` messages of a channel, finished, sorted."""
        return sorted(bodies(self.consume(topic, channel, count)))


class Publisher(Background):
    """Publishes one message after the other in the background, notes it, and how long the answers took."""

    INTERVAL_S = 0.01

    def __init__(self, nsqd: ClusterNsqd, topic: str, channel: str = "channel") -> None:
        """The channel is there, or will be the first one of the topic: it gets everything."""
        super().__init__(self._publish)
        self.history = History()
        self.history.created(topic, channel)
        self._channel = channel
        self.slowest_s = 0.0
        self._nsqd = nsqd
        self._topic = topic

    def go_on(self, count: int = 50) -> None:
        """Returns when it has published `count` more; that they were answered in time is checked as well."""
        goal = self.history.acknowledged + count
        (running,) = self.running
        wait_until(
            lambda: self.history.acknowledged >= goal or running.done(), PUBLISHES_S, f"{count} publishes"
        )
        assert not running.done(), running.result()
        assert self.slowest_s < ANSWER_S, f"an answer took {self.slowest_s:.3f} s"

    def require_received(self) -> None:
        """The channel has what was acknowledged, each message once."""
        for body in self._nsqd.received(self._topic, self._channel, self.history.acknowledged):
            self.history.delivered(self._topic, self._channel, body)
        judge(self.history, also=["twice"]).require_sound()

    def _publish(self) -> None:
        bodies = Bodies(f"{self._nsqd.identity}-", longest_bytes=1)
        with self._nsqd.connect() as client:
            while not self.is_over.wait(self.INTERVAL_S):
                (body,) = bodies.take(1)
                start = time.monotonic()
                publish = self.history.sending(self._topic, [body])
                client.pub(self._topic, body)
                self.slowest_s = max(self.slowest_s, time.monotonic() - start)
                self.history.ok(publish)


class Cluster:
    """Two nsqlookupds and three nsqds, each on a host of its own, and guests that come later."""

    def __init__(self, network: Network, directory: Path) -> None:
        self._network = network
        self._directory = directory
        self._guests: list[ClusterNsqd] = []
        self.lookupds = [self._new_lookupd(f"nsqlookupd{number}") for number in range(LOOKUPDS)]
        self.nsqds = [self._new_nsqd(f"nsqd{number}") for number in range(NSQDS)]

    def _new_lookupd(self, name: str) -> NsqlookupdProcess:
        log_path = self._directory / f"{name}.log"
        return NsqlookupdProcess(log_path, *LOOKUPD_FLAGS, host=self._network.add_host(), ports=LOOKUPD_PORTS)

    def _new_nsqd(self, name: str) -> ClusterNsqd:
        host = self._network.add_host()
        ways = [self._network.way(host, lookupd.host, LOOKUPD_PORTS[0]) for lookupd in self.lookupds]
        flags = [f"--lookupd-tcp-address={way}" for way in ways]
        return ClusterNsqd(self._directory / name, *flags, host=host, ports=NSQD_PORTS)

    def new_guest(self) -> ClusterNsqd:
        """One more nsqd, not started. It is gone after the test."""
        guest = self._new_nsqd(f"guest-{len(list(self._directory.glob('guest-*.log')))}")
        self._guests.append(guest)
        return guest

    # --- its life

    def start(self) -> None:
        start_all(self.lookupds)
        start_all(self.nsqds)
        self.wait_until_whole(RETURN_S * 2)

    def close(self) -> None:
        for process in (*self.lookupds, *self.nsqds, *self._guests):
            process.destroy()

    def make_whole(self) -> None:
        """Undoes what a test has done to it, or has left undone."""
        for nsqd in self.nsqds:
            for lookupd in self.lookupds:
                self._network.heal(nsqd.host, lookupd.host)
        for guest in self._guests:
            guest.destroy()
        self._guests.clear()
        for process in (*self.lookupds, *self.nsqds):
            if process.is_running:
                process.signal(signal.SIGCONT)
        for processes in (self.lookupds, self.nsqds):
            start_all([process for process in processes if not process.is_running])
        for nsqd in self.nsqds:
            # With something to tell, it connects at once.
            nsqd.create("nudge")
            nsqd.delete_topic("nudge")
        self.wait_until_whole(RETURN_S * 2)

    def wait_until_whole(self, deadline_s: float = RETURN_S) -> None:
        """Until each lookupd lists each nsqd, once."""
        expected = [identities(self.nsqds)] * len(self.lookupds)
        eventually(lambda: [names(lookupd.nodes()) for lookupd in self.lookupds], expected, deadline_s)

    # --- what is done to it

    @contextlib.contextmanager
    def partition(self, nsqd: ClusterNsqd, *lookupds: NsqlookupdProcess) -> Iterator[None]:
        """Between one nsqd and some lookupds nothing gets through."""
        for lookupd in lookupds:
            self._network.cut(nsqd.host, lookupd.host)
        try:
            yield
        finally:
            for lookupd in lookupds:
                self._network.heal(nsqd.host, lookupd.host)

    # --- what the lookupds say

    def wait_for_producers(
        self,
        topic: str,
        nsqds: Sequence[ClusterNsqd],
        deadline_s: float = SOON_S,
        *,
        channel: str = "",
        lookupds: Sequence[NsqlookupdProcess] = (),
    ) -> None:
        """Until the lookupds (all, if none is given) list these nsqds for the topic, or its channel, each once."""
        asked = lookupds or self.lookupds
        expected = [identities(nsqds)] * len(asked)
        eventually(lambda: [producers_of(lookupd, topic, channel) for lookupd in asked], expected, deadline_s)

    def wait_for_channels(self, topic: str, channels: Sequence[str]) -> None:
        """Until every lookupd lists these channels for the topic."""
        expected = [sorted(channels)] * len(self.lookupds)
        eventually(lambda: [lookupd.channels(topic) for lookupd in self.lookupds], expected)


def start_all(processes: Sequence[ServerProcess]) -> None:
    """Starts them at the same time; returns when all listen."""
    for process in processes:
        process.launch()
    for process in processes:
        process.wait_until_it_listens()


@contextlib.contextmanager
def hung(process: ServerProcess) -> Iterator[None]:
    """Does not run in the meantime; its kernel goes on to take connections, and what is sent on them."""
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


def producers_of(lookupd: NsqlookupdProcess, topic: str, channel: str) -> list[str]:
    """The producers of a topic, or of a channel of it if one is named."""
    return names(lookupd.channel_producers(topic, channel) if channel else lookupd.lookup(topic))


def names(producers: Sequence[Producer]) -> list[str]:
    """The producers that a lookupd lists, sorted, as often as it does."""
    return sorted(f"{producer['broadcast_address']}:{producer['tcp_port']}" for producer in producers)


def identities(nsqds: Sequence[ClusterNsqd]) -> list[str]:
    return sorted(nsqd.identity for nsqd in nsqds)
