"""The standbys of a primary: their streams, and the answers that wait for them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.broker.additions import Replication
from nsqd_py.broker.answer_gate import AnswerGate
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.journals.epochs import Epochs
from nsqd_py.errors import Invalid
from nsqd_py.net.addresses import host_of, join_address, split_address
from nsqd_py.net.transport import Stream
from nsqd_py.protocol.frames import OK
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.queue.storage import WriteRefused
from nsqd_py.standby.acks import InSyncSet, Members
from nsqd_py.standby.copies.data_path import StandbyState, write_state
from nsqd_py.standby.group import Handshakes
from nsqd_py.standby.messages import Offer
from nsqd_py.standby.repairs.fetch_server import FetchServer, NodeState
from nsqd_py.standby.repairs.give_back import OfferedBack, StandbyMemory, lost_files
from nsqd_py.standby.repairs.repair import StandbyCopy
from nsqd_py.standby.role import check_fence
from nsqd_py.standby.stream import StandbyStream

if TYPE_CHECKING:
    from nsqd_py.standby.election import Election

ALONE = "alone"
_TICK_NS = 1_000_000_000
_MOST_STANDBYS = 16
# A standby acknowledges each round, and each second has one. Its heartbeats end sooner than this if it is gone.
_MOST_WAIT_NS = 30 * _TICK_NS
_RETRY_S = 0.1
_LAST_POLL_S = 0.01  # while it waits for the standbys at its end


@dataclass(eq=False, repr=False)
class Standbys(Replication):
    """All standbys of this nsqd.

    If publishers wait for standbys, each write to a log has a number, beginning at 1. A standby that has acknowledged a
    round has all writes up to the one that was the last when the round began.

    _on_fenced  called with the address of the new primary if this nsqd must not serve any longer; None if a lease
                decides about that
    election    has made this nsqd the primary
    _may_load_again  called with the files of a standby that have what is lost here; returns True if this nsqd is loaded
                again, to get that back
    is_alone    True while publishers are answered although too few standbys have their messages; it ends when enough
                standbys have what was written a second ago
    """

    takes_members = True

    _broker: Broker
    _directory: Path
    _threadpool: Any
    _on_fenced: Callable[[str], None] | None = None
    election: Election | None = None
    _may_load_again: Callable[[set[OfferedBack]], bool] = lambda _: False
    is_alone: bool = False

    def __post_init__(self) -> None:
        broker = self._broker
        options = broker.options
        election = self.election
        self._log = broker.log
        self._door = Handshakes(
            broker, FetchServer(self._directory, self._threadpool, self._state, self._epochs_of)
        )
        self._memory = StandbyMemory(self._directory, self._threadpool, broker.log)
        self._goes_on_alone = options.standby_on_timeout == ALONE
        self._streams: dict[Any, StandbyStream] = {}
        self._gate = AnswerGate(options.standby_acks, options.standby_timeout_ns)
        self._writes = 0
        self._writes_at_tick = 0
        self._in_sync: InSyncSet | None = None
        if election is not None and options.standby_acks:
            self._in_sync = InSyncSet(
                election.member.id, options.standby_acks, goes_on_alone=self._goes_on_alone
            )
        self._addresses: dict[str, str] = {}  # of members, by id
        self._copies: list[list[str]] = []  # addresses of the last standbys, the newest last
        self._patience_ns = options.standby_timeout_ns // 2
        self._set_writer: Any = None
        self._next_tick_ns = 0
        self._alarm = broker.alarms.alarm(self._tick)
        if self._gate.needed:
            broker.sync.add_holder(self._written)
        if self._gate.needed and not self._goes_on_alone:
            broker.space.check_topic = self._check_end
            self._log_cut_ends()

    @property
    def _standbys(self) -> list[StandbyStream]:
        """The streams without those of backups."""
        return [stream for stream in self._streams.values() if not stream.offer.is_backup]

    def _state(self) -> NodeState:
        return NodeState(self._broker.logs.node_epoch, is_complete=True)

    def _epochs_of(self, topic_name: str) -> Epochs:
        topic = self._broker.topics.get(topic_name)
        if topic is not None and topic.log is not None:
            return topic.log.epochs
        return ()

    # ---- connections

    def member(self, client: Stream, body: bytes) -> None:
        if client in self._streams:
            raise Invalid("cannot MEMBER in current state")
        self._door.member(client, body)

    def attach(self, client: Stream, body: bytes) -> None:
        offer = self._door.admit(client, body)
        if offer is None:
            return
        if offer.fenced_by:
            self._fence(client, offer)
            return
        if len(self._streams) >= _MOST_STANDBYS:
            raise Invalid(f"cannot STANDBY: {_MOST_STANDBYS} standbys follow already")
        epoch = self._broker.logs.node_epoch
        if offer.epoch > epoch:
            raise Invalid(
                f"cannot STANDBY: your epoch {offer.epoch} is newer than mine, {epoch}: you were promoted after me"
            )
        if not offer.is_backup:
            self._get_back(client, offer)
        self._log.info("STANDBY(%s): begins %s", client.peer, "a backup" if offer.is_backup else "to follow")
        if self._in_sync is not None and not offer.is_backup:
            self._check_member(offer)
        stream = StandbyStream(
            client,
            self._broker,
            self._directory,
            offer,
            self._threadpool,
            lambda: self._writes,
            self._acknowledged,
            self._gate.needed > 0,
        )
        self._streams[client] = stream
        if not offer.is_backup:
            self._remember_copy(_addresses_of(client, offer))
        self._broker.logs.keep_epochs()
        stream.start()
        self._alarm.set_no_later(self._broker.clock() + _TICK_NS)

    def _remember_copy(self, addresses: list[str]) -> None:
        if addresses:
            others = [each for each in self._copies if not set(each) & set(addresses)]
            self._copies = [*others, addresses][-_MOST_STANDBYS:]

    def _get_back(self, client: Stream, offer: Offer) -> None:
        """Remember the standby. Raise Invalid if it has what is lost here: this nsqd is loaded again to fetch that."""
        addresses = _addresses_of(client, offer)
        if not addresses:
            self._log.info(
                "STANDBY(%s): is of an earlier version, or has no TCP port: it can give nothing back",
                client.peer,
            )
            return
        self._memory.note(addresses)
        lost = lost_files(self._broker, offer, begins_epoch=self.election is not None)
        offered = {(addresses[0], file) for file in lost}
        if offered and self._may_load_again(offered):
            self._log.warning(
                "STANDBY(%s): has messages that are missing here; nsqd is loaded again to get them back",
                client.peer,
            )
            raise Invalid(
                "cannot STANDBY: this nsqd lacks messages that you have: it gets them back, and then you can follow"
            )

    def _check_member(self, offer: Offer) -> None:
        """Let the newest connection of a member replace an older one. Raises Invalid."""
        assert self.election is not None
        member = offer.member
        if member is None:
            raise Invalid("cannot STANDBY: a lease decides who is the primary, and you have none")
        if member.id == self.election.member.id:
            raise Invalid(
                "cannot STANDBY: your nsqd.member is a copy of mine: stop, remove that file, and restart"
            )
        for stream in self._standbys:
            if stream.offer.member is not None and stream.offer.member.id == member.id:
                stream.client.close("the standby has reconnected")
        self._addresses[member.id] = member.address

    def _fence(self, client: Stream, offer: Offer) -> None:
        """Stop serving for good, since a standby of this nsqd was promoted."""
        check_fence(self._broker, offer)
        if self._on_fenced is None:
            raise Invalid("cannot STANDBY: a lease decides who is the primary")
        new_primary = offer.fenced_by
        # Before the answer: it must not serve after a restart either.
        write_state(
            self._directory, StandbyState(new_primary, is_complete=True, was_primary=True, is_fenced=True)
        )
        self._log.error(
            "FENCED: %s was promoted in the place of this nsqd, which follows it now", new_primary
        )
        client.send(OK)
        self._on_fenced(new_primary)

    def acknowledge(self, client: Stream, number: int) -> None:
        stream = self._streams.get(client)
        if stream is not None and not stream.offer.is_backup:
            is_first = not stream.is_following
            stream.acknowledge(number)
            if is_first and stream.is_following:
                self._log.info("STANDBY(%s): has a copy of everything", client.peer)

    def other_copies(self) -> list[StandbyCopy]:
        return [StandbyCopy(self._broker.options, self._threadpool, addresses) for addresses in self._copies]

    def detach(self, client: Stream) -> None:
        self._door.forget(client)
        stream = self._streams.pop(client, None)
        if stream is not None:
            if stream.offer.is_backup:
                self._log.info("STANDBY(%s): the backup has ended", client.peer)
            else:
                self._log.warning(
                    "STANDBY(%s): left, behind by %d messages", client.peer, stream.lag.messages
                )
            stream.stop()
            self._acknowledged()

    def clients(self) -> set[Stream]:
        """Return the connections of the standbys."""
        return {stream.client for stream in self._standbys}

    def wait_until_caught_up(self, timeout_s: float) -> None:
        """Wait until each standby that is still connected has everything, or for this time. Blocks this greenlet."""
        end_s = monotonic() + timeout_s
        while monotonic() < end_s and not all(stream.has_all for stream in self._standbys):
            gevent.sleep(_LAST_POLL_S)

    def close(self) -> None:
        self._alarm.set(None)
        if self._set_writer is not None:
            self._set_writer.kill(block=False)
        self._gate.answer(self._writes)  # they are stored here; the connections end now
        for stream in self._streams.values():
            stream.stop()
        self._memory.settle()

    # ---- changes

    def _check_end(self, topic: Topic) -> None:
        """Raise WriteRefused if a standby that does not follow yet may have the end of this log.

        No publish could get its OK before that, and one that is written would take the numbers of the messages at that end.
        """
        if len(self._standbys) < self._gate.needed and self._broker.losses.may_be_cut(
            topic.name, topic.next_seq
        ):
            raise WriteRefused(errno.ETIMEDOUT, self._cut_text(topic.name))

    def _cut_ends(self) -> list[str]:
        return sorted(self._broker.losses.cut_ends(self._broker.topics))

    def _log_cut_ends(self) -> None:
        cut = self._cut_ends()
        if cut:
            self._log.warning(
                "STANDBY: %s: publishes to %d such topics are refused until then",
                self._cut_text(cut[0]),
                len(cut),
            )

    def _cut_text(self, topic: str) -> str:
        return f"a power cut may have taken the end of topic {topic}, and a standby that has it does not follow yet"

    def _written(self, _topic: Topic, publishers: Tickets) -> None:
        """A log was written: count that, and hold the publishers if they must wait for standbys."""
        self._writes += 1
        if publishers and (self._in_sync is not None or not self.is_alone):
            self._gate.hold(self._writes, publishers, self._broker.clock())
            self._set_alarm()
            if self._in_sync is not None and (self.is_alone or len(self._gate) == 1):
                self._acknowledged()  # without standbys, or one that is gone is left out now

    # ---- answers

    def _acknowledged(self) -> None:
        if not self._gate.needed:
            return
        in_sync = self._in_sync
        if in_sync is not None:
            is_writing = self._set_writer is not None and not self._set_writer.ready()
            if not is_writing and self._next_set(in_sync) is not None:
                self._set_writer = gevent.spawn(self._write_sets, in_sync)
            self._answer_in_sync(in_sync)
            return
        last = self._gate.confirm(stream.acknowledged_write for stream in self._standbys)
        if self.is_alone and last >= self._writes_at_tick and last:
            self._set_alone(False)

    def _set_alone(self, is_alone: bool) -> None:
        if is_alone and not self.is_alone:
            self._log.warning("STANDBY: %s; publishers are answered without them from now on", self._reason())
        elif self.is_alone and not is_alone:
            self._log.info("STANDBY: publishers wait for standbys again")
        self.is_alone = is_alone

    def _set_alarm(self) -> None:
        deadline_ns = self._gate.next_deadline_ns
        if deadline_ns is not None:
            late_ns = deadline_ns - self._patience_ns
            is_early = self._in_sync is not None and self._broker.clock() < late_ns
            self._alarm.set_no_later(late_ns if is_early else deadline_ns)

    def _tick(self, now_ns: int) -> None:
        self._alarm.set(now_ns + _TICK_NS)  # first: also after a bug, publishers must not wait for ever
        if self._in_sync is not None:
            self._acknowledged()
        deadline_ns = self._gate.next_deadline_ns
        if deadline_ns is not None and deadline_ns <= now_ns:
            if self._goes_on_alone and self._in_sync is None:
                self._set_alone(True)
                self._gate.answer(self._writes)
            else:
                self._gate.refuse_overdue(now_ns, TimeoutError(errno.ETIMEDOUT, self._reason()))
        if self._streams and now_ns >= self._next_tick_ns:
            self._next_tick_ns = now_ns + _TICK_NS
            self._writes_at_tick = self._writes
            self._tick_streams(now_ns)
        self._alarm.set(self._next_tick_ns if self._streams else None)
        self._set_alarm()

    def _tick_streams(self, now_ns: int) -> None:
        """Let each stream begin a round, and close those whose standby acknowledges nothing."""
        for client, stream in list(self._streams.items()):
            if stream.waits_ns(now_ns) > _MOST_WAIT_NS:
                self._log.warning(
                    "STANDBY(%s): no ACK for %d s, closing", client.peer, _MOST_WAIT_NS // _TICK_NS
                )
                client.close("no ACK in time")
            else:
                stream.tick()

    # ---- the in-sync set of a lease

    def _acknowledged_writes(self) -> dict[str, int]:
        return {
            stream.offer.member.id: stream.acknowledged_write
            for stream in self._standbys
            if stream.is_following and stream.offer.member is not None
        }

    def _next_set(self, in_sync: InSyncSet) -> Members | None:
        return in_sync.next_set(
            self._acknowledged_writes(),
            is_waited=bool(self._gate),
            late_write=self._gate.last_waiting(self._patience_ns, self._broker.clock()),
            recent_write=self._writes_at_tick,
        )

    def _answer_in_sync(self, in_sync: InSyncSet) -> None:
        self._gate.answer(in_sync.answerable(self._acknowledged_writes(), self._writes))
        self._set_alone(in_sync.is_alone)

    def _write_sets(self, in_sync: InSyncSet) -> None:
        """Write the set until the store has it. If this fails, publishers are refused at their time-out."""
        election = self.election
        assert election is not None
        while (target := self._next_set(in_sync)) is not None:
            in_sync.begin(target)
            addresses = dict([election.member]) | self._addresses
            if election.write_members({member: addresses[member] for member in target}):
                in_sync.end(target)
                others = ", ".join(sorted(addresses[member] for member in in_sync.stored)) or "no standby"
                self._log.info("STANDBY: in sync: %s", others)
            else:
                gevent.sleep(_RETRY_S)
            self._answer_in_sync(in_sync)

    def _reason(self) -> str:
        count = len(self._standbys)
        return (
            f"{count} standbys are connected, and {self._gate.needed} did not acknowledge a message in time"
        )

    # ---- statistics

    def notice(self) -> str | None:
        if self.is_alone:
            return "answering publishers without a standby"
        if self._goes_on_alone or len(self._standbys) >= self._gate.needed:
            return None
        cut = self._cut_ends()
        return self._cut_text(cut[0]) if cut else None

    def statistics(self) -> dict[str, Any]:
        """Return the epoch in which this nsqd serves, and a list of its standbys with their lag."""
        standbys = []
        for stream in self._standbys:
            row = {
                "address": stream.client.peer,
                "http_address": stream.offer.http_address,
                "is_following": stream.is_following,
                **stream.lag.statistics(),
            }
            if self._in_sync is not None:
                member = stream.offer.member
                row["is_in_sync"] = member is not None and member.id in self._in_sync.stored
            standbys.append(row)
        statistics: dict[str, Any] = {
            "standbys": {
                "epoch": self._broker.logs.node_epoch,
                "acks": self._gate.needed,
                "is_alone": self.is_alone,
                "list": standbys,
            }
        }
        if self.election is not None:
            statistics |= self.election.statistics()
        return statistics

    def lags(self) -> list[tuple[str, dict[str, int]]]:
        return [(stream.client.peer, stream.lag.statistics()) for stream in self._standbys]


def _addresses_of(client: Stream, offer: Offer) -> list[str]:
    """Return where the standby may be reached: at the IP address of its connection, and at its broadcast address."""
    parsed = split_address(offer.address)
    if parsed is None or not parsed[1]:
        return []
    host = host_of(client.peer)
    if not host:
        return [offer.address]
    return list(dict.fromkeys([join_address(host, parsed[1]), offer.address]))
