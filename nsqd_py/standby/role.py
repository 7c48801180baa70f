"""The standby role: refuse all requests except statistics and promotion.

A promotion makes a standby's data path that of a primary: with a new epoch, which its old primary recognizes. Then
fencing keeps the old primary from serving: the promoted nsqd sends it the newer epoch, until it gets the answer that
the other one does not serve. An nsqd with `--accept-standbys` whose logs the sender continues gives way for good: it
becomes a standby of the sender. Both prove to each other that they belong to one group, so that no one else can fence
an nsqd.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.broker.additions import Replication
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.state_files import read_epochs
from nsqd_py.errors import HttpError, Invalid, IsStandby, StartError
from nsqd_py.feed.pieces import OfferedLog
from nsqd_py.net.transport import Stream
from nsqd_py.protocol.frames import OK
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby.copies.data_path import StandbyState, read_state, remove_state
from nsqd_py.standby.copies.upkeep import Upkeep
from nsqd_py.standby.follower import Follower, sentence
from nsqd_py.standby.group import Handshakes
from nsqd_py.standby.link import ask
from nsqd_py.standby.messages import FENCE, FOLLOW, STREAM_FRAME, Offer

if TYPE_CHECKING:
    from nsqd_py.standby.election import Election


# The time in which an old primary that came back can serve.
_PAUSE_S = 1.0


@dataclass(eq=False, repr=False)
class StandbyRole(Replication):
    """The `Replication` of a standby, and of an nsqd that waits, since it knows no holder of its lease.

    `_on_promotion` is called once, when it shall become a primary, unless a lease decides about that.
    """

    takes_members = True

    _follower: Follower
    _handshakes: Handshakes
    _on_promotion: Callable[[], None]
    _election: Election | None

    def __post_init__(self) -> None:
        self._primary = self._follower.primary or "none: no nsqd has the lease"

    def refusal(self) -> IsStandby:
        """Return the error for clients that publish, subscribe or create something."""
        return IsStandby(self._primary)

    def member(self, client: Stream, body: bytes) -> None:
        self._handshakes.member(client, body)

    def attach(self, client: Stream, body: bytes) -> None:
        offer = self._handshakes.admit(client, body)
        if offer is None:
            return
        if not offer.fenced_by:
            raise Invalid(f"cannot STANDBY: this nsqd is a standby of {self._primary} itself")
        client.send(OK)  # it does not serve

    def scrub_source(self) -> Upkeep:
        return self._follower.upkeep

    def detach(self, client: Stream) -> None:
        self._handshakes.forget(client)

    def notice(self) -> str | None:
        if self._election is not None and not self._follower.primary:
            return f"waiting for the lease {self._election.name}"
        fenced = None
        if self._follower.is_fenced:
            fenced = f"fenced: {self._primary} was promoted"
        return self._follower.notice() or fenced

    def statistics(self) -> dict[str, Any]:
        return self._follower.statistics() | (
            self._election.statistics() if self._election is not None else {}
        )

    def lags(self) -> list[tuple[str, dict[str, int]]]:
        if self._follower.primary:
            return [(self._primary, self._follower.lag.statistics())]
        return []

    def promote(self) -> None:
        if self._election is not None:
            raise HttpError(409, "LEASE_DECIDES")
        if not self._follower.is_complete:
            raise HttpError(409, "STANDBY_INCOMPLETE")
        self._on_promotion()


def check_role(directory: Path, standby_of: str, store: str, *, promote: bool) -> StandbyState | None:
    """Return the state if this data path must be promoted at this start, or if it was fenced; else None.

    Raises StartError if it is a standby's, and it must not, or cannot, be promoted.
    """
    try:
        state = read_state(directory)
    except OSError as error:
        raise StartError(f"failed to read the state of the standby in {directory} - {error}") from error
    if state is None:
        saved = read_epochs(directory)
        if promote and standby_of and (saved is None or not saved.node):
            raise StartError(
                "--promote and --standby-of exclude each other: this data path was never a standby's"
            )
        return None
    if promote:
        if not state.is_complete:
            raise StartError(
                f"the copy of {state.primary} in {directory.absolute()} is not complete, and cannot be promoted; start "
                f"nsqd with --standby-of={state.primary}, and wait for its state `following`"
            )
        if state.lacks_store(store):
            raise StartError(
                f"{state.primary} had unfinished messages only in its store, and the copy in {directory.absolute()} lacks them: "
                f"give --store={state.needs_store} too"
            )
        return state
    if standby_of:
        return None
    if state.is_fenced:
        return state
    raise StartError(
        f"{directory.absolute()} is the copy of {state.primary}: start nsqd with --standby-of={state.primary} to "
        "follow it, or with --promote to make it a primary"
    )


def goes_on_as_primary(directory: Path, options: NsqdOptions, log: Log) -> bool:
    """True if this data path was promoted before, and the nsqd of --standby-of is not a newer primary.

    So a promoted standby may restart with the same flags. Blocks this greenlet. Raises OSError.
    """
    saved = read_epochs(directory)
    if read_state(directory) is not None or saved is None or not saved.node:
        return False
    with suppress(Exception):  # whatever it answers, it does not let an nsqd of this epoch follow
        if ask(options, FOLLOW, Offer(saved.node)) == STREAM_FRAME:
            return False
    log.warning(
        "STANDBY: this data path was promoted, and %s is no newer primary: --standby-of has no effect",
        options.standby_of,
    )
    return True


def promote(
    broker: Broker, directory: Path, state: StandbyState | None, election: Election | None = None
) -> None:
    """Begin a new epoch in all logs of a loaded broker, and make that durable. Raises OSError. Blocks this greenlet.

    state     that of a standby's data path; None if it is a primary's
    election  is notified of the epoch before and after. If it has lost its lease, it ends the daemon.
    """
    if election is not None:
        broker.logs.epoch_numbers.skip_past(election.highest_epoch)
    epoch = broker.logs.epoch_numbers.next()
    if election is not None and not election.announce(epoch):
        return
    broker.logs.begin_node_epoch(epoch)
    for topic in broker.topics.values():
        if topic.log is not None:
            topic.log.begin_epoch(epoch)
    broker.metadata.persist()
    if state is not None:
        remove_state(directory)
        broker.log.warning("STANDBY: promoted; %s was its primary", state.primary)
    if election is not None:
        election.begin(epoch)


def fence(broker: Broker, options: NsqdOptions, address: str) -> None:
    """Fence the nsqd at `options.standby_of`, until it answers that it does not serve. Blocks this greenlet.

    address  where that one can follow
    """
    reported = ""
    while True:
        logs = {
            topic.name: OfferedLog(topic.log.epochs)
            for topic in broker.topics.values()
            if topic.log is not None
        }
        try:
            ask(options, FENCE, Offer(broker.logs.node_epoch, "", logs, address))
        except Exception as error:  # noqa: BLE001 - whatever it answers, this must go on
            if repr(error) != reported:
                text = "STANDBY: cannot fence the old primary %s - %s; trying again"
                broker.log.warning(text, options.standby_of, sentence(error))
                reported = repr(error)
        else:
            broker.log.warning("STANDBY: the old primary %s is fenced: it does not serve", options.standby_of)
            return
        gevent.sleep(_PAUSE_S)


def check_fence(broker: Broker, offer: Offer) -> None:
    """Raise Invalid unless the sender of this offer was promoted after this nsqd, and continues one of its logs."""
    if offer.epoch <= broker.logs.node_epoch:
        raise Invalid(
            f"cannot STANDBY: your epoch {offer.epoch} is not newer than mine, {broker.logs.node_epoch}"
        )
    for name, offered in offer.logs.items():
        topic = broker.topics.get(name)
        mine = topic.log.epochs if topic is not None and topic.log is not None else ()
        if mine and mine[-1] in offered.epochs[:-1]:
            return
    raise Invalid("cannot STANDBY: no log of the sender continues one of this nsqd's logs")
