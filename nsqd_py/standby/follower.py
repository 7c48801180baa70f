"""The standby's side: connects to the primary, writes what it sends, and acknowledges it.

A round is acknowledged when everything that has arrived is written; with `--sync-every=1`, when it is synced too. So rounds
that arrive during a sync share the next one. Without that flag, what was written is synced after `--sync-timeout`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent

from nsqd_py.broker.data_path import DataPath
from nsqd_py.broker.state_files import MEMBER_FILE, METADATA_FILE
from nsqd_py.diskqueue.journals.epochs import Epochs
from nsqd_py.errors import NsqdError
from nsqd_py.feed.codec import FileMessage
from nsqd_py.feed.lag import Lag
from nsqd_py.feed.pieces import TopicListing, TopicsListed
from nsqd_py.protocol import outgoing
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.threads import in_thread
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby import messages
from nsqd_py.standby.copies.copy import Copy
from nsqd_py.standby.copies.data_path import StandbyState, own_member, read_state, write_state
from nsqd_py.standby.copies.set_aside import ALONE_PREFIX, REMOVED_PREFIX
from nsqd_py.standby.copies.syncing import sync_paths
from nsqd_py.standby.copies.upkeep import Upkeep
from nsqd_py.standby.link import Link
from nsqd_py.standby.messages import BadStandbyMessage, Offer, Round
from nsqd_py.standby.repairs.fetch_server import NodeState

WAITING = "waiting"
CONNECTING = "connecting"
COPYING = "copying"
FOLLOWING = "following"
DAMAGED = "damaged"  # it follows, and some bytes in its files are damaged
_NOTICE_AFTER_S = 10.0  # /ping says that it cannot follow
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_SLICE_S = 0.005
_MOST_NAMED = 5  # topics in an error


class Follower:
    """A standby's connection to its primary, and the copy that it writes.

    primary  TCP address of the primary; empty if it is not known: then it waits
    state    CONNECTING, COPYING until the copy is complete, FOLLOWING, or WAITING without a primary
    error    why the last connection ended; empty while it follows
    lag      as the primary saw it at the end of the last round
    only_stored  the topics of which the primary has unfinished messages only in its store, as it has listed them
    """

    def __init__(
        self,
        options: NsqdOptions,
        directory: Path,
        place: DataPath,
        threadpool: Any,
        log: Log,
        http_address: Callable[[], str],
        tcp_address: Callable[[], str] = lambda: "",
    ) -> None:
        """Read the state of the data path. Raises OSError. The two functions return where other nsqds reach this one.

        Nothing is written while `place` says that the directory is another one.
        """
        before = read_state(directory)
        self.primary = options.standby_of
        self.state = CONNECTING if self.primary else WAITING
        self.error = ""
        self.lag = Lag()
        self.last_round_s = 0.0
        self._since_s = time.monotonic()
        self._options = options
        self._directory = directory
        self._place = place
        self._threadpool = threadpool
        self._log = log
        self._http_address = http_address
        self._tcp_address = tcp_address
        is_new = all(path.name == MEMBER_FILE for path in directory.iterdir())
        self._needs_store = ""
        if before is None:
            self._is_copied = not self.primary  # an old primary has its own messages
            self._has_former_copy = (directory / METADATA_FILE).exists()
        else:
            self._is_copied = before.is_copy_of(self.primary)
            # Of the primary that it followed last, perhaps at another address: it can give that back, and be promoted with it.
            self._has_former_copy = before.is_complete
            self._needs_store = before.needs_store
        # It stays what it is until another primary changes the files.
        self._is_state_written = before is not None and before.is_complete
        self.only_stored: dict[str, TopicListing] = {}
        self.is_fenced = before is not None and before.is_fenced
        since_utc = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        was_primary = before.was_primary if before is not None else not is_new
        self._copy = Copy(directory, since_utc, was_primary=was_primary, check_place=place.check)
        if options.lease:
            self._copy.member = own_member(directory, options)
        self._link: Link | None = None
        self._to_acknowledge = 0
        self._acknowledged = 0
        self._is_listed = False
        self._next_sync_s = 0.0
        self.upkeep = Upkeep(options, directory, threadpool, log, self._copy, self._end_connection, place)
        self._greenlet: Any = None

    def start(self) -> None:
        """Begin to follow, if there is a primary. Raises OSError."""
        if self.primary:
            if not self._is_state_written:
                self._write_state()
            self._greenlet = gevent.spawn(self._run)
            self.upkeep.start()

    def stop(self) -> None:
        """End, with everything that was received in the files. Blocks this greenlet."""
        self.upkeep.stop()
        if self._greenlet is not None:
            self._greenlet.kill()
            self._close_connection()
            if self._place.is_here():
                sync_paths(*self._unsynced())

    @property
    def is_complete(self) -> bool:
        """True if this nsqd has everything that the primary had, in its data path and in its store."""
        has_store = not self._state().lacks_store(self._options.store)
        return self._is_copied and has_store and self._place.is_here()

    def node_state(self) -> NodeState:
        """Return what the other nsqds of the group get, which fetch from this one."""
        return NodeState(self._copy.epoch, self._has_whole_copy)

    @property
    def _has_whole_copy(self) -> bool:
        """True if the files are everything that some nsqd had: the primary, the one before it, or this one."""
        return self._is_copied or self._has_former_copy

    def epochs_of(self, topic: str) -> Epochs:
        """Return the epochs of a topic's log here."""
        return self._copy.epochs.get(topic, ())

    def statistics(self) -> dict[str, Any]:
        """Return what /stats shows of this standby."""
        damage = self.upkeep.damage
        state = self.state
        if state == FOLLOWING and not damage.is_well:
            state = DAMAGED
        if state in (FOLLOWING, DAMAGED) and not self.is_complete:
            state = COPYING
        last_round_ms_ago = None
        if self.last_round_s:
            last_round_ms_ago = int((time.monotonic() - self.last_round_s) * 1000)
        statistics = {
            "primary": self.primary,
            "epoch": self._copy.epoch,
            "state": state,
            "is_complete": self.is_complete,
            "is_fenced": self.is_fenced,
            **self.lag.statistics(),
            "last_round_ms_ago": last_round_ms_ago,
            "set_aside_messages": self._copy.departures.set_aside_count,
            "lease_decides": bool(self._options.lease),
            **damage.statistics(),
            "error": self.error or self._lack() or damage.text(),
        }
        return {"standby": statistics}

    def notice(self) -> str | None:
        """Return what is wrong with its files, or why it cannot follow, if it has not for some seconds."""
        since_s = max(self._since_s, self.last_round_s)
        if self.error and time.monotonic() - since_s >= _NOTICE_AFTER_S:
            return f"cannot follow {self.primary}: {self.error}"
        if self._lack():
            return f"the copy is not complete: {self._lack()}"
        if self.upkeep.damage.is_well:
            return None
        return f"the copy is damaged: {self.upkeep.damage.text()}"

    def _lack(self) -> str:
        """Return which messages this copy lacks, since the primary has them only in its store; "" if it lacks none."""
        if not self._state().lacks_store(self._options.store):
            return ""
        store = self._needs_store
        counts = [f"{each.only_stored} messages of {name}" for name, each in self.only_stored.items()]
        lacking = ", ".join(counts[:_MOST_NAMED]) or "messages"
        return f"{self.primary} has unfinished messages only in its store ({lacking}): give this standby --store={store} too"

    def _state(self) -> StandbyState:
        return StandbyState(
            self.primary, self._has_whole_copy, self._copy.was_primary, self.is_fenced, self._needs_store
        )

    def _write_state(self) -> None:
        write_state(self._directory, self._state())

    # ---- the connection

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        reported = ""
        is_read = False
        while True:
            try:
                self._place.check()
                if not is_read:
                    in_thread(self._threadpool, self._copy.read)
                    is_read = True
                    self.upkeep.note_found()
                self._sync()
                self.upkeep.check(self._copy.known_files())
                self._follow()
            except Exception as error:  # noqa: BLE001 - whatever the primary sends, this must go on
                if self.state == FOLLOWING:
                    pause_s = _FIRST_PAUSE_S
                    reported = ""
                if self.upkeep.damage.changed:  # it ended the connection to get them again
                    reported = self.upkeep.damage.text()
                    self.error = reported
                else:
                    self.error = sentence(error)
                if self.error != reported:
                    self._log.warning(
                        "STANDBY: cannot follow %s - %s; trying again", self.primary, self.error
                    )
                    reported = self.error
            finally:
                self._close_connection()
            gevent.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _close_connection(self) -> None:
        self.state = CONNECTING
        if self._link is not None:
            self._link.sock.close()
            self._link = None
        self._copy.close()

    def _end_connection(self) -> None:
        """Let `recv` return nothing, which ends the connection. The next offer says what must be sent again."""
        if self._link is not None:
            with suppress(OSError):
                self._link.sock.shutdown(socket.SHUT_RDWR)

    def _follow(self) -> None:
        """Follow until the connection ends. Raises OSError and NsqdError."""
        link = Link(self._options, self._acknowledge)
        self._link = link
        self._to_acknowledge = 0
        self._acknowledged = 0
        self._is_listed = False
        self.only_stored.clear()
        link.offer(messages.FOLLOW, self._offer)
        self.state = COPYING
        self._log.info("STANDBY: following %s", self.primary)
        yielded_s = time.monotonic()
        for kind, data in link.frames:
            if kind == messages.STREAM_FRAME:
                self._take(messages.decode(data))
            else:  # a heartbeat
                link.sock.sendall(outgoing.NOP)
            if time.monotonic() - yielded_s > _SLICE_S:
                gevent.sleep(0)
                yielded_s = time.monotonic()

    def _offer(self) -> Offer:
        return replace(self._copy.offer(self._http_address()), address=self._tcp_address())

    # ---- messages of the primary

    def _take(self, message: messages.Message) -> None:
        if not self._is_listed and not isinstance(message, TopicListing | TopicsListed):
            raise BadStandbyMessage("it sent files before the list of its topics")
        match message:
            case FileMessage():
                self._copy.apply(message)
            case Round():
                self._end_round(message)
            case TopicListing():
                self._list(lambda: self._copy.list_topic(message))
                self._note_only_stored(message)
            case TopicsListed():
                self._list(self._copy.end_list)
                self._is_listed = True
                self._note_store()

    def _note_only_stored(self, listing: TopicListing) -> None:
        self.only_stored.pop(listing.topic, None)
        if listing.only_stored:
            self.only_stored[listing.topic] = listing
        if self._is_listed:
            self._note_store()

    def _note_store(self) -> None:
        """Note durably which store has messages that the primary has only there. All topics are listed."""
        stores = [listing.store for listing in self.only_stored.values()]
        needed = next(iter(stores), "")
        if needed != self._needs_store:
            self._needs_store = needed
            self._write_state()

    def _list(self, handle: Callable[[], None]) -> None:
        """Compare the files with those of the primary; log it if only this copy has some messages."""
        self._end_former_copy()
        departures = self._copy.departures
        alone_before = departures.alone_count
        retained_before = departures.retained_before
        handle()
        if departures.retained_before != retained_before:
            self._log.info(
                "STANDBY: what was not finished here until now is kept in %s for a week",
                departures.retained_before,
            )
        alone = departures.alone_count - alone_before
        if alone:
            self._log.warning(
                "STANDBY: %d messages are here, but not in the logs of %s; their files are kept in %s*",
                alone,
                self.primary,
                ALONE_PREFIX,
            )

    def _end_former_copy(self) -> None:
        """Note durably that the files are no copy of an earlier primary any more, nor this nsqd's own: they change now."""
        had_former_copy = self._has_former_copy
        self._has_former_copy = False
        if self._copy.was_primary:
            self._is_copied = False
        if had_former_copy and not self._is_copied:
            self._write_state()

    def _end_round(self, message: Round) -> None:
        if message.number <= self._to_acknowledge:
            raise BadStandbyMessage(f"it sent the round {message.number} after {self._to_acknowledge}")
        removed = self._copy.departures.end_round(time.monotonic())
        if removed:
            self._log.warning(
                "STANDBY: %s removed %d messages that a channel had not finished; their files stay in %s* for a week",
                self.primary,
                removed,
                REMOVED_PREFIX,
            )
        self.error = ""
        self.lag = message.lag
        self.last_round_s = time.monotonic()
        if self.state != FOLLOWING:
            self._end_first_round()
        self._to_acknowledge = message.number
        self.upkeep.end_round()

    def _end_first_round(self) -> None:
        """Handle that everything that the primary had is here now."""
        if not self._is_copied:
            self._sync()
            self._is_copied = True
            self._copy.was_primary = False
            self._write_state()
        self.state = FOLLOWING
        self.upkeep.damage.changed.clear()
        if self._lack():
            self._log.warning("STANDBY: the copy is not complete, and cannot be promoted: %s", self._lack())
        else:
            self._log.info("STANDBY: has everything of %s", self.primary)

    def _unsynced(self) -> tuple[list[Path], Path | None]:
        paths, has_new_names = self._copy.take_unsynced()
        return paths, self._directory if has_new_names else None

    def _acknowledge(self) -> None:
        """Sync what was written if that is due, and acknowledge the last round. Everything that has arrived is written.

        Raises OSError, also if it was written to another directory than the data path.
        """
        is_new = self._to_acknowledge > self._acknowledged
        if (is_new and self._options.sync_every == 1) or time.monotonic() >= self._next_sync_s:
            self._sync()
        self._place.check()
        if is_new and self._link is not None:
            self._acknowledged = self._to_acknowledge
            self._link.send_line(b"ACK %d\n" % self._acknowledged)

    def _sync(self) -> None:
        paths, directory = self._unsynced()
        to_rewrite = self._copy.to_rewrite
        try:
            in_thread(self._threadpool, sync_paths, paths, directory, to_rewrite.copy())
            self._place.check()  # files that are not there count as removed
        except BaseException:  # else the next round would be acknowledged as if they were synced
            self._copy.sync_failed(paths, has_new_names=directory is not None)
            raise
        to_rewrite.clear()
        self._next_sync_s = time.monotonic() + self._options.sync_timeout_ns / 1e9


def sentence(error: Exception) -> str:
    """Return what an operator reads about an error."""
    if isinstance(error, OSError | NsqdError):
        return str(error)
    return f"it sent something that is not valid ({error!r})"
