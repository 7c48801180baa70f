"""Standbys, the role of a standby, and the lease, as parts of nsqd: when each of them begins and ends.

An nsqd that is promoted, fenced or given back what it had lost ends, and another one continues in the same process.
`Host.shared` has what the next one must know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.broker.state_files import STANDBY_FILE, STANDBYS_FILE
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.server.docking import Host, Part, StartsOver
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby.follower import Follower
from nsqd_py.standby.group import Handshakes
from nsqd_py.standby.primary import Standbys
from nsqd_py.standby.repairs.fetch_server import FetchServer
from nsqd_py.standby.repairs.give_back import GiveBack, OfferedBack, remembered_standbys
from nsqd_py.standby.repairs.rebuilding import Returned
from nsqd_py.standby.role import StandbyRole, check_role, fence, goes_on_as_primary, promote

if TYPE_CHECKING:
    from nsqd_py.lease.keeper import LeaseWatch
    from nsqd_py.standby.copies.data_path import StandbyState
    from nsqd_py.standby.election import Election, RoleServer

_MOST_NAMED = 10  # files in a line of the log
_LAST_ROUNDS_S = 3.0  # how long the end of a primary waits for what its standbys have not got yet

# The names in `Host.shared`.
_ASKED = "asked"
_ELECTION = "election"


@dataclass
class Asked:
    """The requests of the nsqds of this process to their standbys, one after the other.

    is_due  True if a standby has come that has what is lost here
    before  True if the standbys were asked at a start
    tried   files for which this nsqd was loaded again, with the addresses of the standbys that had them
    """

    is_due: bool = False
    before: bool = False
    tried: set[OfferedBack] = field(default_factory=set)


def _held_election(host: Host) -> Election | None:
    """Return the election, if it has made this nsqd the primary; else None."""
    election: Election | None = host.shared.get(_ELECTION)
    if election is not None and election.is_primary:
        return election
    return None


def has_lost_lease(host: Host) -> bool:
    """True if a lease had made this nsqd the primary, and has ended: then `LeasePart` ends its service."""
    election = _held_election(host)
    return election is not None and not election.is_held


class StandbyPart(Part):
    """Makes this nsqd a standby, or a primary with standbys; promotes it, and fences the primary before it."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._broker = host.broker
        self._options = host.broker.options
        self._directory = host.broker.services.directory
        self._threadpool = host.broker.services.threadpool
        self._log = host.broker.log
        self._asked: Asked = host.shared.setdefault(_ASKED, Asked())
        self._group: Election | None = host.shared.get(_ELECTION)  # also if another nsqd is the primary
        self._election = _held_election(host)
        self._promoted: StandbyState | None = None  # the state of the standby that this start promotes
        self._old_primary = ""  # that must be fenced
        self._standbys: Standbys | None = None
        self._follower: Follower | None = None
        self._may_wait = True  # False if another nsqd in this process takes over at once
        self._returned: Returned | None = None

    # ---- the role

    def take_role(self) -> None:
        options = self._options
        if self._group is not None and self._election is None and not options.standby_of:
            self._be_standby(options)  # it waits until an nsqd has the lease
            return
        if not options.standby_of and not options.promote and not (self._directory / STANDBY_FILE).exists():
            return
        state = check_role(self._directory, options.standby_of, options.store, promote=options.promote)
        if state is not None and options.promote:
            self._old_primary = "" if options.lease else state.primary
            self._promoted = state
            return
        if state is not None:  # it was fenced
            options = options.replace(standby_of=state.primary)
        # With both flags and without a state, an earlier start has promoted it.
        if (
            options.standby_of
            and not options.lease
            and goes_on_as_primary(self._directory, options, self._log)
        ):
            self._old_primary = options.standby_of
        elif options.standby_of:
            self._be_standby(options)

    def _be_standby(self, options: NsqdOptions) -> None:
        """Follow the primary that the options name; without one, wait."""
        self._asked.before = False  # it asks again when it is a primary again
        self._asked.tried.clear()
        place = self._broker.services.data_path
        addresses = self._http_address, self._tcp_address
        follower = Follower(options, self._directory, place, self._threadpool, self._log, *addresses)
        fetches = FetchServer(self._directory, self._threadpool, follower.node_state, follower.epochs_of)
        become_primary = partial(self._change_role, standby_of="", promote=True)
        self._follower = follower
        role = StandbyRole(follower, Handshakes(self._broker, fetches), become_primary, self._group)
        self._broker.additions.take_role(role)

    def _tcp_address(self) -> str:
        """Return where other nsqds reach this one; with port 0 if it listens on no TCP port."""
        return f"{self._options.broadcast_address}:{self._options.broadcast_tcp_port}"

    def _http_address(self) -> str:
        return f"{self._options.broadcast_address}:{self._options.broadcast_http_port}"

    def _change_role(self, standby_of: str, *, promote: bool) -> None:
        """End this nsqd, and let one in another role replace it."""
        self.host.continue_as(self._options.replace(standby_of=standby_of, promote=promote))
        self.host.yield_role()

    # ---- a primary

    def loaded(self) -> None:
        has_standbys = self._options.accept_standbys or self._options.standby_acks
        if has_standbys and (self._directory / STANDBYS_FILE).exists():
            self._get_back()
        if self._promoted is not None or self._election is not None:
            promote(self._broker, self._directory, self._promoted, self._election)
            self.host.end_if_asked()
        if has_standbys:
            if self._options.lease:
                follow = None
            else:
                follow = partial(self._change_role, promote=False)
            self._standbys = Standbys(
                self._broker, self._directory, self._threadpool, follow, self._election, self._may_load_again
            )
            self._broker.additions.take_role(self._standbys)

    def _get_back(self) -> None:
        """Get from the standbys what is missing here. Raises OSError and StartsOver."""
        asked = self._asked
        is_end_open = self._broker.losses.has_open_ends or asked.is_due
        give_back = GiveBack(
            self._broker,
            self._directory,
            self.host.on_progress,
            is_end_open=is_end_open,
            begins_epoch=self._election is not None,
        )
        is_due = asked.is_due or (give_back.is_due() and not asked.before)
        asked.is_due = False
        asked.before = True
        if not is_due:
            return
        self.host.notifier.status("asking the standbys for what is missing")
        standbys = remembered_standbys(self._directory)
        returned = give_back.run(standbys)
        if len(give_back.answered) == len(standbys):
            self._broker.losses.standbys_answered()
        if returned.files:
            self._returned = returned
            self._load_again()
            raise StartsOver

    def _may_load_again(self, offered: set[OfferedBack]) -> bool:
        """Load this nsqd again, in its present role, to get back what a standby has. Return False if all of it was tried."""
        if offered <= self._asked.tried:
            return False
        self._asked.tried |= offered
        self._asked.is_due = True
        self._load_again()
        return True

    def _load_again(self) -> None:
        if self._group is not None:
            self._group.serve_again()
        else:
            self.host.continue_as(self._options)
        self.host.yield_role()

    def start(self) -> None:
        if self._follower is not None:
            self._follower.start()

    def started(self) -> None:
        """Begin to fence the old primary, which can follow this nsqd at its present address."""
        if self._old_primary:
            options = self._options.replace(standby_of=self._old_primary)
            self.host.in_greenlet(fence, self._broker, options, self._tcp_address())

    # ---- the end

    def leave_role(self) -> None:
        self._may_wait = False

    def last_readers(self) -> set[Any]:
        if self._standbys is not None and self._may_wait:
            return self._standbys.clients()
        return set()

    def answered(self) -> None:
        """Let the standbys get what was published last: one of them may be promoted next."""
        if self._standbys is not None and self._may_wait:
            self._standbys.wait_until_caught_up(_LAST_ROUNDS_S)

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()

    def closed(self) -> None:
        """Install what the standbys gave back."""
        returned = self._returned
        if returned is None:
            return
        try:
            returned.install()
        except OSError as error:
            self._log.error("STANDBY: cannot use what the standbys gave back - %s", error)
            return
        names = [file.name for file in returned.files]
        if len(names) > _MOST_NAMED:
            names[_MOST_NAMED:] = ["..."]
        self._log.warning(
            "STANDBY: %d messages that were missing here came back from standbys: %s",
            returned.count,
            ", ".join(names),
        )


# ---- a lease


def serve_by_lease(
    options: NsqdOptions, log: Log, shared: dict[str, Any], make_server: Callable[[NsqdOptions], RoleServer]
) -> int:
    """Run nsqds in the roles that the lease gives them. Return the exit status. Raises StartError."""
    from nsqd_py.standby.election import elect

    def make(role_options: NsqdOptions, election: Election) -> RoleServer:
        shared[_ELECTION] = election
        return make_server(role_options)

    return elect(options, log, make)


class LeasePart(Part):
    """Ends serving as soon as a primary has lost the lease."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._election = _held_election(host)
        self._watch: LeaseWatch | None = None

    def serving(self) -> None:
        if self._election is not None:
            self._watch = self._election.watch(gevent.get_hub().loop, self._cut_off)
            self.host.broker.iteration.before_output = self._watch.check

    def _cut_off(self) -> None:
        """End serving at once: nothing may arrive from here when the next primary serves."""
        self.host.cut_off("the lease is lost")

    def leave_role(self) -> None:
        if self._election is not None:
            self._end_watch()
            self._cut_off()  # first, as what follows may wait for others

    def answered(self) -> None:
        self._end_watch()  # not earlier: answers leave only while this nsqd has the lease

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
