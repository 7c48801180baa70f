"""A lease decides which of several nsqds is the primary: the holder of the lease is, the others are its standbys.

`EpochNote` is the note of the lease, `Election` gives this nsqd its role.

The note of the lease says which copy of the messages may serve. It has two epochs: `epoch` is that of the last primary
which served; `announced` is at least as high, and one that a new primary was about to begin. An nsqd whose epoch is
lower than `epoch` lacks messages that were acknowledged, and does not compete. A new primary begins an epoch above
both, so that what another one had begun, and could not serve, is older in any case.

With `--standby-acks`, the note also has the in-sync set of the primary (see `InSyncSet`): only its members compete.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gevent

from nsqd_py.broker.clock_file import read_clock_file, read_clocks
from nsqd_py.broker.state_files import METADATA_FILE, STOP_FILE, read_epochs
from nsqd_py.errors import NsqdError, StartError
from nsqd_py.lease.keeper import LeaseKeeper, LeaseWatch
from nsqd_py.lease.store import LeaseError, LeaseLost, LeaseStore, LeaseUrl, parse_lease_url
from nsqd_py.runtime.documents import checked_number, load_foreign_json
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.logs.outages import OutageLog
from nsqd_py.runtime.process import StopSignals
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby.copies.data_path import own_member, read_state
from nsqd_py.standby.messages import GroupMember

_SECOND_NS = 1_000_000_000
_POLL_INTERVAL_S = 0.1
# An nsqd without a role opens its ports after this time, so that a failover opens them once.
_OPENS_AFTER_S = 1.0
# A request to the store must fail early enough to be repeated before the lease ends.
_REQUEST_PART_OF_TTL = 0.25
# Where several start at the same time, one without messages lets another one take the lease first; so does one that a power
# cut may have taken messages from.
_WAITS_TTLS = 2
# The role of the holder; that of a standby is the address of its primary; None is that of an nsqd without either.
_PRIMARY = ""


# ---- the note


class EpochNote(NamedTuple):
    """The note of the lease; see the module's text."""

    epoch: int = 0
    announced: int = 0
    members: dict[str, str] | None = None  # addresses by id; None if every nsqd with the epoch may compete

    @classmethod
    def of(cls, text: str) -> EpochNote:
        """Parse the text of a note. Raises ValueError."""
        if not text:
            return cls()
        try:
            fields = load_foreign_json(text.encode())
            return cls(
                checked_number(fields["epoch"]),
                checked_number(fields["announced"]),
                _members(fields.get("members")),
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"{text!r} is not a note") from error

    def encode(self) -> str:
        return json.dumps(self._asdict())


def _members(value: object) -> dict[str, str] | None:
    if value is not None and not (
        isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
    ):
        raise ValueError(f"{value!r} is not a set of members")
    return value


# ---- the roles of this nsqd


class RoleServer(Protocol):
    """A daemon in one role."""

    def run(self) -> int:
        """Serve until a signal, a drain or `yield_role` ends it, and return the exit status. Raises StartError."""

    def yield_role(self) -> None:
        """End it, so that this nsqd can take another role."""


@dataclass(eq=False, repr=False)
class Election:
    """Runs this nsqd in the role that the lease gives it.

    `_make_server(options, election)` returns the daemon of a role. `name` is that of the lease.
    """

    _options: NsqdOptions
    _log: Log
    _store: LeaseStore
    member: GroupMember
    _make_server: Callable[[NsqdOptions, Election], RoleServer]
    name: str

    def __post_init__(self) -> None:
        self._directory = Path(self._options.data_path or ".")
        self._note = EpochNote()
        self._note_revision = 0
        self._must_read_note = False  # a request to write it, without an answer, may have been carried out
        self._outage = OutageLog(self._log, time.monotonic)
        self._missed = ""  # the members for which it waits, if it is not one of them
        self._server: RoleServer | None = None
        self._role: str | None = None
        self._yielded_role = False
        ttl_s = self._options.lease_ttl_ns / _SECOND_NS
        self._is_new = not (self._directory / METADATA_FILE).exists()
        self._may_be_cut = _may_be_cut(self._directory)
        self._waits_until_s = time.monotonic() + _WAITS_TTLS * ttl_s
        self._keeper = LeaseKeeper(
            self._store, self.member.address, ttl_s, self._log, self._may_take, self._decide
        )

    def run(self) -> int:
        """Serve in one role after the other until a signal or a drain ends it. Return the exit status.

        Raises StartError.
        """
        status = 0
        self._log.info("LEASE: waiting for %s", self._options.lease)
        self._keeper.start()
        try:
            with StopSignals() as signals:
                opens_s = time.monotonic() + _OPENS_AFTER_S
                while not signals.is_asked:
                    if self._keeper.has_failed:
                        return 1
                    role = self._granted_role()
                    if role is None and time.monotonic() < opens_s:
                        signals.wait(_POLL_INTERVAL_S)
                        continue
                    status = self._serve(role)
                    if not self._yielded_role:
                        break
                    opens_s = time.monotonic() + _OPENS_AFTER_S
            return status
        finally:
            self._keeper.close()

    def _serve(self, role: str | None) -> int:
        self._role = role
        self._yielded_role = False
        is_promoted = self.is_primary and read_state(self._directory) is not None
        options = self._options.replace(standby_of=role or "", accept_standbys=True, promote=is_promoted)
        self._server = self._make_server(options, self)
        try:
            return self._server.run()
        finally:
            self._server = None

    def serve_again(self) -> None:
        """Make another daemon when the present one ends; it gets the role that the lease gives this nsqd then."""
        self._yielded_role = True

    @property
    def is_primary(self) -> bool:
        """True if the daemon is made, or runs, as the primary."""
        return self._role == _PRIMARY

    @property
    def is_held(self) -> bool:
        """True while this nsqd has the lease."""
        return self._keeper.is_held

    def statistics(self) -> dict[str, Any]:
        """Return what /stats shows of the lease."""
        keeper = self._keeper
        if keeper.is_held:
            holder = self.member.address
        else:
            holder = keeper.other_holder or ""
        waits_for = "" if holder else self._missed
        return {
            "lease": {
                "name": self.name,
                "key": self._store.key,
                "holder": holder,
                "error": keeper.error,
                "waits_for": waits_for,
                "losses": keeper.losses,
                "last_loss": keeper.last_loss,
            }
        }

    # ---- the lease

    def _may_take(self) -> bool:
        """True if this data path has all that was acknowledged, according to the note. Raises LeaseError."""
        self._read_note()
        try:
            state = read_state(self._directory)
            saved = read_epochs(self._directory)
        except OSError as error:
            raise LeaseError(f"failed to read the state of {self._directory} - {error}") from error
        if state is not None and not state.is_complete:
            return False
        if state is not None and state.needs_store and state.lacks_store(self._options.store):
            return False
        if not self._is_in_sync():
            return False
        if self._lets_others_first() and time.monotonic() < self._waits_until_s:
            return False
        epoch = saved.node if saved is not None else 0
        return epoch >= self._note.epoch

    def _lets_others_first(self) -> bool:
        """True if another nsqd may have messages that this one lacks, although the note names both."""
        if not self._note.epoch:
            return self._is_new
        others = (self._note.members or {}).keys() - {self.member.id}
        return self._may_be_cut and bool(others)

    def _is_in_sync(self) -> bool:
        """True if this nsqd has all that was acknowledged, or if the note does not say who has it."""
        members = self._note.members
        missed = ""
        if members is not None and self.member.id not in members:
            missed = ", ".join(sorted(members.values()))
        if missed and missed != self._missed:
            self._log.warning(
                "LEASE: waiting for one of %s: this nsqd may lack acknowledged messages", missed
            )
        self._missed = missed
        return not missed

    def _read_note(self) -> None:
        text, self._note_revision = self._store.note()
        self._must_read_note = False
        try:
            self._note = EpochNote.of(text)
        except ValueError as error:
            raise LeaseError(f"{self._store.note_title} has no note of an nsqd: {text[:100]!r}") from error

    def _granted_role(self) -> str | None:
        """Return the role that the lease gives this nsqd; None while no other nsqd has it either."""
        if self._keeper.is_held:
            return _PRIMARY
        return self._keeper.other_holder

    def _decide(self) -> None:
        """End the daemon if its role is over. A standby stays one while there is no holder."""
        granted = self._granted_role()
        has_changed = granted != self._role and (granted is not None or self._role == _PRIMARY)
        if self._keeper.has_failed or has_changed:
            self._yield_role()

    def _yield_role(self) -> None:
        self._yielded_role = True
        if self._server is not None:
            self._server.yield_role()

    # ---- a promotion, before the daemon serves

    @property
    def highest_epoch(self) -> int:
        """The highest epoch that the note has; a new one must be above it."""
        return max(self._note.epoch, self._note.announced)

    def announce(self, epoch: int) -> bool:
        """Write that this nsqd is about to begin an epoch. Return False if the lease has ended."""
        return self._write(self._note._replace(announced=epoch))

    def begin(self, epoch: int) -> bool:
        """Write that this nsqd serves in an epoch, which is durable here. Return False if the lease has ended."""
        has_promised = self._options.standby_acks > 0
        members = dict([self.member]) if has_promised else None
        return self._write(EpochNote(epoch, epoch, members))

    def write_members(self, members: Mapping[str, str]) -> bool:
        """Write the in-sync set. Return False if the lease has ended, or if it is not certain that the store has it."""
        return self._try_to_write(self._note._replace(members=dict(members)))

    def _write(self, note: EpochNote) -> bool:
        while not self._yielded_role and self._keeper.is_held:
            if self._try_to_write(note):
                return True
            gevent.sleep(_POLL_INTERVAL_S)
        self._yield_role()
        return False

    def _try_to_write(self, note: EpochNote) -> bool:
        try:
            if self._must_read_note:
                _, self._note_revision = self._store.note()  # whatever it says, the holder knows better
                self._must_read_note = False
            self._note_revision = self._keeper.write_note(note.encode(), self._note_revision)
        except LeaseLost:  # the keeper reports it
            self._yield_role()
            return False
        except LeaseError as error:
            self._outage.report("LEASE: failed to write the note - %s", error)
            self._must_read_note = True
            return False
        self._outage.end("LEASE: the note is written again")
        self._note = note
        return True

    def watch(self, loop: Any, on_end: Callable[[], object]) -> LeaseWatch:
        """Call `on_end` from the event loop as soon as the lease has ended, and end the daemon."""

        def end() -> None:
            on_end()
            self._yield_role()

        return LeaseWatch(self._keeper, loop, self._log, end)


def _may_be_cut(directory: Path) -> bool:
    """True if a power cut may have taken the ends of logs: there was no clean stop, and the machine was rebooted since."""
    try:
        before = read_clock_file(directory)
    except OSError:
        return True
    is_same_boot = before is not None and before.is_same_boot(read_clocks(0))
    return not is_same_boot and not (directory / STOP_FILE).exists()


def elect(options: NsqdOptions, log: Log, make_server: Callable[[NsqdOptions, Election], RoleServer]) -> int:
    """Run nsqd with `--lease`. Return the exit status. Raises StartError."""
    try:
        url = parse_lease_url(options.lease, options.lease_password_file)
        store = _open_store(url, options, log)
    except (ValueError, NsqdError) as error:
        raise StartError(f"--lease: {error}") from error
    try:
        member = own_member(Path(options.data_path or "."), options)
    except OSError as error:
        raise StartError(f"failed to write to data-path: {error}") from error
    return Election(options, log, store, member, make_server, url.name).run()


def _open_store(url: LeaseUrl, options: NsqdOptions, log: Log) -> LeaseStore:
    """Return the store of the lease; only the modules of this kind of store are loaded. Raises ValueError, NsqdError."""
    ttl_s = options.lease_ttl_ns // _SECOND_NS
    timeout_s = ttl_s * _REQUEST_PART_OF_TTL
    if url.bucket:
        from nsqd_py.lease.bucket import open_bucket

        return open_bucket(url, ttl_s, timeout_s, options.store_endpoint)
    from gevent import ssl

    from nsqd_py.lease.etcd import EtcdStore
    from nsqd_py.net.http.client import HttpClient
    from nsqd_py.net.peer_tls import PeerTls

    tls = None
    if url.is_secure:
        tls = PeerTls.of(options, "lease", ssl.SSLContext, log.error)
        tls.load()
    return EtcdStore(url, ttl_s, HttpClient(timeout_s, timeout_s, tls=tls))
