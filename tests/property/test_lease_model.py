"""Nsqds that share a lease, in simulated time: at most one serves at any moment, and each epoch has one primary.

The store, the network and the processes are random: answers are late or lost, processes are paused and killed, and
their clocks run at other rates. Somebody deletes and overwrites the keys of the lease, and revokes it. `Election`,
`LeaseKeeper` and `promote` are the real ones, and so is `BucketStore`; etcd is a model. The primary and its standby are a
plain model of what docs/standby.md says of `--standby-acks=1`.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import md5
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.broker.state_files import METADATA_FILE, read_epochs
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, EpochNumbers, encode_epoch_file
from nsqd_py.errors import NsqdError
from nsqd_py.lease import keeper
from nsqd_py.lease.bucket import BucketStore
from nsqd_py.lease.store import Lease, LeaseError, LeaseLost, LeaseState, LeaseStore, Note, parse_lease_url
from nsqd_py.objects.calls import Changed, Missing, StoreError
from nsqd_py.standby import election
from nsqd_py.standby.acks import InSyncSet
from nsqd_py.standby.copies.data_path import StandbyState, own_member, read_state, write_state
from nsqd_py.standby.election import Election
from nsqd_py.standby.role import promote
from tests.property.simulated_time import Process, Simulation
from tests.support.examples import examples
from tests.unit.fakes import FakeLog, quick_syncs

TTL_S = 5.0
REQUEST_TIMEOUT_S = TTL_S * election._REQUEST_PART_OF_TTL
# Stopping may take most of the margin; the rest is for clocks that do not run at the same rate.
LONGEST_STOP_S = 0.5 * keeper.MARGIN * TTL_S
LARGEST_DRIFT = 0.03
SHORT_DELAY_S = 0.3
HANGS_S = 100 * TTL_S


# The longest time for which a store keeps a lease that has ended.
EXPIRY_LAG_S = 0.5
# The part of a bucket's answers that say something else than what has happened, until the end of a test.
MISLEADING = 0.05


class Key(NamedTuple):
    """A key: its value, the number of its last change, and the lease that ends it."""

    value: str
    number: int
    handle: str = ""


NO_KEY = Key("", 0)


class World(Protocol):
    """What the nsqds share, and how each of them uses it. `CHANGES` is what somebody may do to it by hand."""

    CHANGES: Sequence[str]

    def store_of(self, nsqd: Nsqd) -> LeaseStore: ...

    def change(self, what: str) -> None: ...


class Etcd:
    """The keys of one lease, and the leases that may end them, as `EtcdStore` uses them.

    Each call takes effect at one moment, also those of somebody who changes the keys by hand.
    """

    CHANGES = ("delete", "delete both", "overwrite", "overwrite with a lease", "revoke", "write again")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.revision = 0
        self.holds = self.last = self.noted = NO_KEY
        self.ends_s: dict[str, float] = {}
        self._lags_s: dict[str, float] = {}

    def store_of(self, nsqd: Nsqd) -> LeaseStore:
        return RemoteStore(self, nsqd)  # type: ignore[return-value]

    def poll(self, handle: str = "") -> LeaseState:
        self._expire()
        holds, last = self.holds, self.last
        found = LeaseState(turn=last.number, is_released=last.value == "released")
        if holds is NO_KEY:
            return found
        lives_s = self._lives_s(handle) if handle and handle == holds.handle else None
        is_holder = holds.handle and holds.value.startswith("nsqd")
        return found._replace(
            number=holds.number,
            handle=holds.handle,
            holder=holds.value if is_holder else None,
            stranger="" if is_holder else holds.value,
            lives_s=lives_s,
        )

    def _lives_s(self, handle: str) -> float:
        left_s = self.ends_s[handle] - self.cluster.simulation.now_s
        return math.floor(left_s) + 1.0 if left_s > 0 else 0.0

    def acquire(self, holder: str, state: LeaseState) -> Lease | None:
        self._expire()
        if (self.holds.number, self.last.number) != (state.number, state.turn):
            return None
        self.cluster.check()  # before anybody else may serve
        self.revision += 1
        handle = self.grant(TTL_S)
        self.holds, self.last = Key(holder, self.revision, handle), Key("taken", self.revision)
        return Lease(self.revision, handle, holder)

    def grant(self, ttl_s: float) -> str:
        handle = f"lease {len(self.ends_s)}"
        self.ends_s[handle] = self.cluster.simulation.now_s + ttl_s
        self._lags_s[handle] = self.cluster.chance.uniform(0.0, EXPIRY_LAG_S)
        return handle

    def renew(self, lease: Lease) -> None:
        self._check(lease)
        if self.cluster.simulation.now_s >= self.ends_s[lease.handle]:
            raise LeaseLost("the lease has ended")
        self.ends_s[lease.handle] = self.cluster.simulation.now_s + TTL_S

    def release(self, lease: Lease) -> None:
        self._expire()
        if self.holds == Key(lease.holder, lease.number, lease.handle):
            self.revision += 1
            self.holds, self.last = NO_KEY, Key("released", self.revision)
        self.revoke(lease.handle)

    def revoke(self, handle: str) -> None:
        self.ends_s[handle] = -EXPIRY_LAG_S
        self._expire()

    def note(self) -> Note:
        return Note(*self.noted[:2])

    def write_note(self, lease: Lease, text: str, revision: int) -> int:
        self._check(lease)
        if revision != self.note().revision:
            raise LeaseError("the note was changed")
        self.revision += 1
        self.noted = Key(text, self.revision)
        return self.revision

    def _check(self, lease: Lease) -> None:
        self._expire()
        if self.holds != Key(lease.holder, lease.number, lease.handle):
            raise LeaseLost("the key was changed")

    def _expire(self) -> None:
        handle = self.holds.handle
        if handle and self.cluster.simulation.now_s >= self.ends_s[handle] + self._lags_s[handle]:
            self.holds = NO_KEY

    # ---- somebody who changes the keys by hand

    def put(self, value: str, handle: str = "") -> None:
        self.revision += 1
        self.holds = Key(value, self.revision, handle)

    def change(self, what: str) -> None:
        self._expire()
        holds = self.holds
        if what == "delete":
            self.holds = NO_KEY
        elif what == "delete both":
            self.holds = self.last = NO_KEY
        elif what == "overwrite":
            self.put("somebody")
        elif what == "overwrite with a lease":
            self.put("somebody", self.grant(TTL_S))
        elif holds.handle and what == "revoke":
            self.revoke(holds.handle)
        elif holds is not NO_KEY and what == "write again":
            self.put(holds.value, holds.handle)


class RemoteStore:
    """The store over a network, of which each call is one request."""

    key = title = note_title = "key"
    delete_command = "etcdctl del key"

    def __init__(self, store: Etcd, nsqd: Nsqd) -> None:
        self._store = store
        self._nsqd = nsqd

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._nsqd.ask, getattr(self._store, name))


class Bucket:
    """The object of one lease, as `BucketStore` uses it. Its version is computed from its content, as S3's."""

    CHANGES = ("delete", "overwrite", "write again")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.content: bytes | None = None

    def store_of(self, nsqd: Nsqd) -> LeaseStore:
        url = parse_lease_url("s3://bucket/lease")
        return BucketStore(url, int(TTL_S), self, nsqd.ask, nsqd.process.clock)  # type: ignore[arg-type]

    def get(self, name: str) -> tuple[bytes, str]:
        self._fail_sometimes()
        if self.content is None:
            raise Missing(name)
        return self.content, _etag(self.content)

    def swap(self, name: str, data: bytes, version: str | None) -> str:
        self._fail_sometimes()
        if version != _etag(self.content):
            raise Changed(name)
        self.content = data
        if self._is_misleading():  # the client has lost the answer, and sends the request once more
            raise Changed(name)
        self._fail_sometimes()
        return _etag(data)

    def _fail_sometimes(self) -> None:
        if self._is_misleading():
            raise StoreError("503")

    def _is_misleading(self) -> bool:
        return self.cluster.chance.random() < self.cluster.misleading

    def change(self, what: str) -> None:
        """Somebody writes the object by hand. Without a primary that is well, that would lose its note."""
        cluster = self.cluster
        if not cluster.is_well():
            return
        if what == "delete":
            self.content = None
        elif what == "overwrite":
            self.content = b"somebody"
            cluster.simulation.run(2 * TTL_S)
            assert self.content == b"somebody"
            assert not any(nsqd.is_serving for nsqd in cluster.nsqds)
            self.content = None
        cluster.simulation.run(3 * TTL_S)


def _etag(content: bytes | None) -> str | None:
    return md5(content).hexdigest() if content is not None else None


class Nsqd:
    """A machine: its disk, its way to the others, and the process that runs on it.

    messages  those in its log
    lost      the part of its requests and answers that is lost; the others take up to `longest_delay_s`
    """

    def __init__(self, cluster: Cluster, directory: Path, number: int) -> None:
        self.cluster = cluster
        self.directory = directory
        self.address = f"nsqd{number}:4150"
        self.messages: list[int] = []
        self.lost = 0.0
        self.longest_delay_s = SHORT_DELAY_S
        self.server: Server | None = None
        directory.mkdir()
        (directory / METADATA_FILE).write_text("{}")
        self.start()

    def start(self) -> None:
        self.server = None
        self.process = Process(
            self.cluster.simulation, 1 + self.cluster.chance.uniform(-LARGEST_DRIFT, LARGEST_DRIFT)
        )
        self.process.spawn(self._run)

    def kill(self) -> None:
        self.process.kill()
        self.server = None

    def delay_s(self) -> float:
        chance = self.cluster.chance
        return (
            HANGS_S
            if chance.random() < self.lost
            else chance.choice((0.001, chance.uniform(0, self.longest_delay_s)))
        )

    def ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a request returns or raises, which may take effect after this nsqd has given up."""
        simulation = self.cluster.simulation
        answer: list[Any] = []
        event = simulation.event()

        def take_effect() -> None:
            try:
                answer.append(call(*arguments))
            except (LeaseError, NsqdError) as error:
                answer.append(error)
            simulation.after(self.delay_s(), event.set)

        simulation.after(self.delay_s(), take_effect)
        if not event.wait(REQUEST_TIMEOUT_S):
            raise LeaseError("no answer")
        if isinstance(answer[0], Exception):
            raise answer[0]
        return answer[0]

    def _run(self) -> None:
        options = SimpleNamespace(
            data_path=str(self.directory),
            lease="etcd://store/lease",
            lease_ttl_ns=int(TTL_S * 1e9),
            standby_acks=1,
            broadcast_tcp_port=0,
            tcp_address=self.address,
            broadcast_address=self.address.partition(":")[0],
        )
        options.replace = lambda **changed: SimpleNamespace(**vars(options) | changed)
        store = self.cluster.world.store_of(self)
        make = partial(keeper.LeaseKeeper, clock=self.process.clock)
        with mock.patch.object(election, "LeaseKeeper", make):
            mine = Election(
                options,
                FakeLog(),
                store,
                own_member(self.directory, options),  # type: ignore[arg-type]
                lambda options, mine: Server(self, options, mine),
                "lease",
            )
        mine.run()

    @property
    def epoch(self) -> int:
        saved = read_epochs(self.directory)
        return saved.node if saved is not None else 0

    def write_epoch(self, epoch: int) -> None:
        (self.directory / EPOCHS_FILE).write_bytes(encode_epoch_file(epoch, {}))

    @property
    def is_serving(self) -> bool:
        return self.process.is_running and self.server is not None and self.server.epoch != 0


@dataclass
class FakeLogs:
    """What a promotion needs of the logs of a broker."""

    node_epoch: int
    epoch_numbers: EpochNumbers

    def begin_node_epoch(self, number: int) -> None:
        self.node_epoch = number


class Server:
    """A daemon in one role. `epoch` is not 0 while it serves; `followers` have all that it has."""

    def __init__(self, nsqd: Nsqd, options: Any, mine: Election | None) -> None:
        self.nsqd = nsqd
        self.options = options
        self.election = mine if mine is not None and mine.is_primary else None
        self.epoch = 0
        self.followers: dict[Server, int] = {}  # with the number of messages that each has acknowledged
        self.in_sync = (
            InSyncSet(self.election.member.id, 1, goes_on_alone=False) if self.election is not None else None
        )
        self.over_since_s = math.inf
        self._end = nsqd.cluster.simulation.event()

    def run(self) -> int:
        self.nsqd.server = self
        if self.election is not None:
            self._promote()
        elif self.options.standby_of:
            self.nsqd.process.spawn(self._follow)
        self._end.wait()
        if self.epoch:  # it serves on while it stops
            self.nsqd.process.sleep(self.nsqd.cluster.chance.choice((0.0, LONGEST_STOP_S)))
        self.epoch = 0
        self.nsqd.server = None
        return 0

    def yield_role(self) -> None:
        self.over_since_s = min(self.over_since_s, self.nsqd.cluster.simulation.now_s)
        self._end.set()

    @property
    def is_over(self) -> bool:
        return self.over_since_s < math.inf

    @property
    def was_resumed_to_end(self) -> bool:
        """Whether it was suspended, and only ends now what it could not end before: connections that are closed."""
        return self.nsqd.process.paused_until_s >= self.over_since_s

    def _promote(self) -> None:
        nsqd, process = self.nsqd, self.nsqd.process
        before = nsqd.epoch
        logs = FakeLogs(before, EpochNumbers(lambda: int(process.clock() * 1e9)))

        def persist_metadata() -> None:
            process.sleep(nsqd.cluster.chance.choice((0, 0, 1)))
            nsqd.write_epoch(logs.node_epoch)

        metadata = SimpleNamespace(persist=persist_metadata)
        broker = SimpleNamespace(topics={}, logs=logs, metadata=metadata, log=FakeLog())
        promote(broker, nsqd.directory, read_state(nsqd.directory), self.election)
        if not self.is_over:
            nsqd.cluster.begin(nsqd, logs.node_epoch, before)
            self.epoch = logs.node_epoch
            process.spawn(self._publish)

    def _publish(self) -> None:
        """A message is acknowledged when all members of the in-sync set have it."""
        cluster, nsqd = self.nsqd.cluster, self.nsqd
        nsqd.process.spawn(self._write_sets)
        while self.epoch:
            message = next(cluster.numbers)
            nsqd.messages.append(message)
            for follower in self.followers:
                cluster.simulation.after(nsqd.delay_s(), partial(self._deliver, follower, message))
            nsqd.process.sleep(0.3)

    def _write_sets(self) -> None:
        """As `Standbys` does; who has not acknowledged what is two messages old is late."""
        in_sync = self.in_sync
        election = self.election
        while self.epoch:
            count = len(self.nsqd.messages)
            late = max(0, count - 2)
            target = in_sync.next_set(self.acknowledged, is_waited=True, late_write=late, recent_write=late)
            if target is not None:
                in_sync.begin(target)
                if election.write_members(dict.fromkeys(target, "")):
                    in_sync.end(target)
            self._answer()
            self.nsqd.process.sleep(0.1)

    def _answer(self) -> None:
        if self.in_sync is not None and self.nsqd.server is self and self.nsqd.is_serving:
            last = self.in_sync.answerable(self.acknowledged, len(self.nsqd.messages))
            self.nsqd.cluster.acknowledged.update(self.nsqd.messages[:last])

    @property
    def acknowledged(self) -> dict[str, int]:
        return {follower.member: has for follower, has in self.followers.items()}

    @property
    def member(self) -> str:
        return own_member(self.nsqd.directory, self.options).id

    def _deliver(self, follower: Server, message: int) -> None:
        """The connection is in order: one that lost a message has ended."""
        nsqd = follower.nsqd
        if follower not in self.followers or nsqd.server is not follower or not nsqd.process.is_running:
            return
        if nsqd.messages + [message] != self.nsqd.messages[: len(nsqd.messages) + 1]:
            del self.followers[follower]
            return
        nsqd.messages.append(message)
        acknowledge = partial(self._acknowledge, follower, len(nsqd.messages))
        self.nsqd.cluster.simulation.after(self.nsqd.delay_s(), acknowledge)

    def _acknowledge(self, follower: Server, count: int) -> None:
        if follower in self.followers:
            self.followers[follower] = max(self.followers[follower], count)
            self._answer()

    def _follow(self) -> None:
        """Copy all that the primary has, and get from then on what it gets."""
        nsqd, cluster = self.nsqd, self.nsqd.cluster
        primary = next(other for other in cluster.nsqds if other.address == self.options.standby_of)
        state = read_state(nsqd.directory)
        is_complete = state is not None and state.is_complete and state.primary == primary.address
        write_state(nsqd.directory, StandbyState(primary.address, is_complete))
        while not self.is_over:
            nsqd.process.sleep(nsqd.delay_s())
            server = primary.server
            if (
                server is None
                or not primary.is_serving
                or nsqd.epoch > server.epoch
                or self in server.followers
            ):
                continue
            nsqd.process.sleep(nsqd.delay_s())
            if server.epoch and primary.is_serving and primary.server is server and not self.is_over:
                nsqd.messages = primary.messages[:]
                nsqd.write_epoch(server.epoch)
                write_state(nsqd.directory, StandbyState(primary.address, True))
                server.followers[self] = len(nsqd.messages)


class Cluster:
    """All machines, the store, and what was promised."""

    def __init__(self, chance: random.Random, make_world: Callable[[Cluster], World]) -> None:
        self.chance = chance
        self.simulation = Simulation(self.check)
        self.misleading = MISLEADING
        self.world = make_world(self)
        self.numbers = iter(range(1 << 30))
        self.acknowledged: set[int] = set()
        self.epochs: dict[int, str] = {}
        self.nsqds: list[Nsqd] = []

    def begin(self, nsqd: Nsqd, epoch: int, before: int) -> None:
        """It begins an epoch, and had got as far as `before`."""
        assert before >= max(self.epochs, default=0), "an old copy serves"
        assert epoch > max(self.epochs, default=0), "an epoch that is not newer"
        self.epochs[epoch] = nsqd.address

    def check(self) -> None:
        servers = [nsqd.server for nsqd in self.nsqds if nsqd.server is not None and nsqd.is_serving]
        serving = [server.nsqd.address for server in servers if not server.was_resumed_to_end]
        assert len(serving) <= 1, f"{serving} serve at {self.simulation.now_s}"

    def check_nothing_is_lost(self) -> None:
        (primary,) = [nsqd for nsqd in self.nsqds if nsqd.is_serving]
        assert self.acknowledged <= set(primary.messages)

    def do(self, what: str, which: int, seconds: float) -> None:
        nsqd = self.nsqds[which % len(self.nsqds)]
        if what == "kill":
            nsqd.kill()
            self.simulation.run(seconds)
            nsqd.start()
        elif what == "pause":
            nsqd.process.paused_until_s = self.simulation.now_s + seconds
        elif what == "bad network":
            nsqd.lost, nsqd.longest_delay_s = 0.3, 2 * REQUEST_TIMEOUT_S
        elif what == "no network":
            nsqd.lost = 1.0
        elif what == "good network":
            self.heal()
        else:
            self.world.change(what)
        self.simulation.run(seconds)

    def is_well(self) -> bool:
        """True if a primary serves, and every machine and its network are well."""
        are_well = all(nsqd.process.is_running and nsqd.lost == 0 for nsqd in self.nsqds)
        return are_well and any(nsqd.is_serving for nsqd in self.nsqds)

    def heal(self) -> None:
        for nsqd in self.nsqds:
            nsqd.lost, nsqd.longest_delay_s = 0.0, SHORT_DELAY_S

    def end(self) -> None:
        for nsqd in self.nsqds:
            nsqd.kill()


def events_of(world: type[Etcd | Bucket]) -> st.SearchStrategy[list[tuple[str, int, float]]]:
    """Draw what happens to whom, and the time after that."""
    names = ("kill", "pause", "bad network", "no network", "good network", *world.CHANGES)
    return st.lists(
        st.tuples(st.sampled_from(names), st.integers(0, 2), st.floats(0.01, 4 * TTL_S)), max_size=12
    )


@contextmanager
def simulated(simulation: Simulation) -> Iterator[None]:
    """Let the modules under test wait in simulated time."""
    time = SimpleNamespace(monotonic=lambda: simulation.current.clock() if simulation.current else 0.0)
    signals = mock.MagicMock(is_asked=False, wait=simulation.sleep)
    signals.__enter__.return_value = signals
    with (
        mock.patch.multiple(keeper, gevent=simulation, Event=simulation.event),
        mock.patch.multiple(election, gevent=simulation, StopSignals=lambda: signals, time=time),
        quick_syncs(),
    ):
        yield


seeds = st.integers(0, 1 << 32)
counts = st.sampled_from([2, 2, 3])


@settings(max_examples=examples(60))
@given(seed=seeds, what=events_of(Etcd), machines=counts)
def test_with_etcd_at_most_one_serves_and_nothing_acknowledged_is_lost(
    seed: int, what: list[tuple[str, int, float]], machines: int
) -> None:
    live(Etcd, seed, what, machines)


@settings(max_examples=examples(60))
@given(seed=seeds, what=events_of(Bucket), machines=counts)
def test_with_a_bucket_at_most_one_serves_and_nothing_acknowledged_is_lost(
    seed: int, what: list[tuple[str, int, float]], machines: int
) -> None:
    live(Bucket, seed, what, machines)


def live(
    make_world: Callable[[Cluster], World], seed: int, what: list[tuple[str, int, float]], machines: int
) -> None:
    """Let a group live through what happens, and check that it serves in the end with all that it has promised."""
    cluster = Cluster(random.Random(seed), make_world)
    simulation = cluster.simulation
    with tempfile.TemporaryDirectory() as name, simulated(simulation):
        try:
            cluster.nsqds += [Nsqd(cluster, Path(name) / str(number), number) for number in range(machines)]
            simulation.run(3 * TTL_S)
            for event in what:
                cluster.do(*event)
            cluster.heal()
            cluster.misleading = 0.0
            simulation.run(12 * TTL_S)
            assert any(nsqd.is_serving for nsqd in cluster.nsqds), "nobody serves"
            cluster.check_nothing_is_lost()
        finally:
            cluster.end()
