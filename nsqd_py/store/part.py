"""The store as a part of nsqd: the claim at the start, the publishers that wait for it, what is shown, and the end.

nsqd with `--store` starts only when the store has answered: after a power cut the store may have what the disk has lost,
and another nsqd may have taken over. While it serves, a store that is away costs nothing but its protection.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import gevent

from nsqd_py.broker.additions import Addition
from nsqd_py.broker.answer_gate import AnswerGate
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.clock_file import read_clock_file, read_clocks
from nsqd_py.broker.services import Topic
from nsqd_py.broker.state_files import BACKUP_FILE
from nsqd_py.diskqueue.history import LogHistory
from nsqd_py.errors import NsqdError, StartError
from nsqd_py.objects.calls import Missing, Objects, StoreError, StoreRefused
from nsqd_py.objects.opening import open_objects
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.runtime.process import share_arenas
from nsqd_py.runtime.threads import in_thread, in_thread_with_progress
from nsqd_py.server.docking import Host, Part
from nsqd_py.settings.durations import MILLISECOND_NS
from nsqd_py.standby.copies.data_path import own_member, read_state
from nsqd_py.store.files import StoredFiles
from nsqd_py.store.history import StoreHistory
from nsqd_py.store.layout import FILES, BadObject, Head
from nsqd_py.store.ownership import Claims, Owner, Superseded, claim
from nsqd_py.store.permission import Permission
from nsqd_py.store.reading import read_state as read_store
from nsqd_py.store.repairing import StoreCopy
from nsqd_py.store.requests import CountedObjects
from nsqd_py.store.restore import Incomplete, Restoration, catch_up
from nsqd_py.store.scrub import StoreScrub
from nsqd_py.store.uploading.stream import StoreStream

_PATIENCE_S = 60.0  # how long a start waits for the store
_PAUSE_S = 1.0
_NOTICE_AFTER_S = 10.0  # /ping says that the store is away
_LAST_ROUNDS_S = 3.0  # how long the end waits for the store
_POLL_S = 0.01
COPYING, STORING, AWAY = "copying", "storing", "away"


class StoreAddition(Addition):
    """What the store adds to the broker: waiting publishers, statistics, a notice, and a copy of the logs.

    With `--store-acks=1`, each write to a log has a number, beginning at 1, and its publishers wait for the round that
    has it.

    damaged_objects  objects that the claim has found damaged, foreign or missing
    damage           a sentence about the first of them
    stream, scrub    None until they are made
    """

    def __init__(
        self, broker: Broker, objects: CountedObjects, owner: Owner, damaged_objects: int, damage: str
    ) -> None:
        options = broker.options
        self._broker = broker
        self._objects = objects
        self._owner = owner
        self._gate = AnswerGate(timeout_ns=options.store_timeout_ns)
        self._writes = 0
        self.damaged_objects = damaged_objects
        self._damage = damage
        self._alarm = broker.alarms.alarm(self._refuse_overdue)
        self.stream: StoreStream | None = None
        self.scrub: StoreScrub | None = None
        if options.store_acks:
            broker.sync.add_holder(self._written)

    # ---- publishers that wait

    def _written(self, _topic: Topic, publishers: Tickets) -> None:
        """A log was written: count that, and hold the publishers until the store has it."""
        self._writes += 1
        if not publishers:
            return
        self._gate.hold(self._writes, publishers, self._broker.clock())
        if self.stream is not None:
            self.stream.publishers_wait()
        deadline_ns = self._gate.next_deadline_ns
        if deadline_ns is not None:
            self._alarm.set_no_later(deadline_ns)

    def last_write(self) -> int:
        return self._writes

    def count(self) -> int:
        return self._gate.publisher_count

    def stored(self, write: int) -> None:
        self._gate.answer(write)
        self._alarm.set(self._gate.next_deadline_ns)

    def _refuse_overdue(self, now_ns: int) -> None:
        reason = f"the store {self._objects!r} did not take a message in time (--store-timeout)"
        self._gate.refuse_overdue(now_ns, TimeoutError(errno.ETIMEDOUT, reason))
        self._alarm.set(self._gate.next_deadline_ns)

    def waits_for(self, write: int) -> bool:
        """True if a publisher waits for this write, or for one before it."""
        first = self._gate.first_write
        return first is not None and first <= write

    def refuse_all(self, reason: str) -> None:
        """Refuse all publishers that wait."""
        self._gate.answer_all(lambda _write: OSError(errno.EIO, reason))
        self._alarm.set(None)

    def close(self) -> None:
        self.refuse_all("nsqd is stopping")
        if self.scrub is not None:
            self.scrub.stop()
        if self.stream is not None:
            self.stream.stop()

    # ---- what is shown

    def notice(self) -> str | None:
        outage = self.stream.outage if self.stream is not None else None
        if outage is not None and monotonic() - outage.since_s >= _NOTICE_AFTER_S:
            return f"the store {self._objects!r} takes nothing: {outage.reason}"
        missing = self._missing()
        if missing:
            return f"the store {self._objects!r} has lost {len(missing)} log files, among them {missing[0]}"
        return None

    def statistics(self) -> dict[str, Any]:
        stream = self.stream
        scrub = self.scrub
        if stream is None or scrub is None:
            return {}
        mended = stream.mended_count
        local = stream.local_damage
        met = self._met_by_readers(scrub)
        requests = self._objects.requests
        state = COPYING if stream.is_copying else STORING
        away_ms = 0
        error = ""
        if stream.outage is not None:
            state = AWAY
            away_ms = int((monotonic() - stream.outage.since_s) * 1000)
            error = stream.outage.reason
        last_round_ms_ago = None
        if stream.writer.last_round_s:
            last_round_ms_ago = int((monotonic() - stream.writer.last_round_s) * 1000)
        shown = {
            "url": self._broker.options.store,
            "epoch": self._owner.epoch,
            "state": state,
            "acks": self._broker.options.store_acks,
            "interval_ms": self._broker.options.store_interval_ns // MILLISECOND_NS,
            **stream.lag().statistics(),
            "last_round": stream.writer.last_round,
            "last_round_ms_ago": last_round_ms_ago,
            "objects": len(stream.files) + stream.writer.round_count,
            "size_bytes": stream.files.size_bytes + stream.writer.round_bytes,
            "requests": requests.by_kind(),
            "requests_today": requests.today(self._broker.services.wall_clock()),
            "errors": requests.errors,
            "damaged_objects": self.damaged_objects + len(met) + mended + scrub.damaged + bool(local),
            "repaired_objects": mended + scrub.repaired,
            "damage": self._damage or local or scrub.damage or next(iter(met), ""),
            "scrub": scrub.statistics(),
            "away_ms": away_ms,
            "error": error,
            "read_error": self._read_error(),
        }
        return {"store": shown}

    def _read_error(self) -> str:
        """Return why a channel cannot read on in the store, where its messages have left the disk."""
        return next((history.problem for history in self._histories() if history.problem), "")

    def _missing(self) -> list[str]:
        """Return the names of the log files that channels have passed over, since the store does not have them any more."""
        return sorted(name for history in self._histories() for name in history.missing)

    def _met_by_readers(self, scrub: StoreScrub) -> list[str]:
        """Return sentences about the log files that are damaged or missing, as readers say; the scrub has not found them yet."""
        missing = self._missing()
        names = [f"{name} is missing" for name in missing if not scrub.knows(name)]
        for history in self._histories():
            if history.damaged:
                needed = {segment.name for segment in history.segments}
                damaged = sorted((history.damaged & needed).difference(missing))
                names.extend(f"{name} is damaged" for name in damaged if not scrub.knows(name))
        return names

    def _histories(self) -> Iterator[LogHistory]:
        for topic in self._broker.topics.values():
            if topic.log is not None and topic.log.history is not None:
                yield topic.log.history

    def other_copies(self) -> list[StoreCopy]:
        if self.stream is None:
            return []
        return [StoreCopy(self._objects, self._broker.services.threadpool, self.stream.files)]


class StorePart(Part):
    """Claims the store, restores or catches up from it, and puts what is new there."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._broker = host.broker
        self._options = host.broker.options
        self._directory: Path = host.broker.services.directory
        self._threadpool = host.broker.services.threadpool
        self._log = host.broker.log
        self._objects: CountedObjects | None = None
        self._owner: Owner | None = None
        self._addition: StoreAddition | None = None
        self._files: StoredFiles | None = None
        self._history: StoreHistory | None = None
        self._is_other_node = False  # the state was another node's
        self._former_node = ""  # who had the store that is restored
        self._is_copy = False  # the data path is that of a standby, which is promoted at this start
        self._restoration: Restoration | None = None
        self._damaged_objects = 0
        self._damage = ""  # the first of them

    # ---- the start

    def before_load(self) -> None:
        options = self._options
        share_arenas()  # the client of a bucket has threads
        try:
            objects = CountedObjects(open_objects(options.store, options.store_endpoint))
        except (ValueError, StoreRefused) as error:
            raise StartError(f"--store={options.store} cannot be used: {error}") from error
        self._objects = objects
        self._is_copy = read_state(self._directory) is not None
        in_thread_with_progress(partial(self._get_state, objects), self.host.on_progress)

    def _get_state(self, objects: CountedObjects, on_progress: Callable[[], None]) -> None:
        """Claim the store, and get from it what is missing here. Raises StartError and OSError.

        It runs in a thread, so that a lease is renewed in the meantime. Nothing else uses this part, or the data path.
        """
        options = self._options
        restoration = self._restoration = Restoration(self._directory, objects, on_progress, self._log)
        was_restored = (self._directory / BACKUP_FILE).exists()  # although not completely
        may_be_copy = self._is_copy or bool(options.lease)
        is_restored = restoration.is_due(options.restore_from, is_copy=may_be_copy)
        self._is_other_node = was_restored or is_restored
        claims = Claims(self._directory)
        permission = Permission(objects, claims, options.store, is_restored, may_be_copy, self._log)

        def check(head: Head | None) -> None:
            on_progress()  # a request may have taken so long that the lease is another nsqd's, and this head too
            permission.check(head)
            self._is_other_node |= permission.is_other  # a claim that is repeated finds its own head
            if is_restored and head is not None:
                self._former_node = self._former_node or head.node
                self._check_whole(objects, claims, restoration, head)

        owner = self._owner = self._claim(objects, claims, check, on_progress, is_restored=is_restored)
        image = owner.image
        assert image is not None
        self._log.info("STORE: %r is this nsqd's, in the epoch %d", objects, owner.epoch)
        is_copy = self._is_copy or permission.is_other
        try:
            if is_restored:
                restoration.run(image)
            else:
                catch_up(restoration, image, is_last=not is_copy and self._is_same_boot(), is_copy=is_copy)
        except Incomplete as error:
            raise self._damaged(
                objects,
                restoration,
                error,
                f"The store was claimed. If the data path of {self._former_node} is left, start nsqd there with another "
                "--store: it has its messages",
            ) from error
        except (BadObject, Missing, StoreError, StoreRefused) as error:
            raise StartError(
                f"cannot get from the store {objects!r} what is missing here: {error}"
            ) from error
        for text in restoration.failed.values():
            self._damage = self._damage or text
            self._damaged_objects += 1
        stored = [file for files in image.files.values() for file in files]
        self._files = StoredFiles(file for file in stored if file.name not in restoration.gone)
        self._history = StoreHistory(objects, self._files, options)
        self._broker.logs.use_store(self._history)

    def _check_whole(
        self, objects: CountedObjects, claims: Claims, restoration: Restoration, head: Head
    ) -> None:
        """Raise StartError if the store has lost messages: it is not claimed then, so that who has them may go on.

        What is left is written into the data path, which may claim the store when the operator decides so, if it is still
        that of the same process. Damage of a log file is found later.
        """
        damage: list[BadObject] = []
        image = read_store(objects, damage.append, self._directory).image
        sizes = {listed.name: listed.size_bytes for listed in objects.list(FILES)}
        stored = [file for files in image.files.values() for file in files]
        if not image.is_broken and all(sizes.get(file.name) == file.size_bytes for file in stored):
            return
        try:
            restoration.run(image)
        except Incomplete as error:
            claims.add(head.store, head.writer)
            for each in damage:
                self._note_damage(each)
            advice = f"The store was not claimed: if the data path of {head.node} is left, start nsqd there instead"
            raise self._damaged(objects, restoration, error, advice) from error

    def _damaged(
        self, objects: CountedObjects, restoration: Restoration, error: Incomplete, advice: str
    ) -> StartError:
        """Return the error for a restoration that lacks messages."""
        damage = self._damage or next(iter(restoration.failed.values()))
        return StartError(
            f"the store {objects!r} is damaged ({damage}), and {error}. {advice}. What is left is in "
            f"{self._directory.absolute()}: start nsqd without --restore-from to serve that; until then, nothing in the store is "
            "replaced"
        )

    def _claim(
        self,
        objects: Objects,
        claims: Claims,
        check: Callable[[Head | None], None],
        on_progress: Callable[[], None],
        *,
        is_restored: bool,
    ) -> Owner:
        """Claim the store; wait for it for a minute. Raises StartError."""
        ends_s = monotonic() + _PATIENCE_S
        node = own_member(self._directory, self._options).address
        reported = ""
        self.host.notifier.status(f"claiming the store {objects!r}")
        while True:
            try:
                return claim(objects, node, claims, check, self._note_damage, is_restoring=is_restored)
            except StoreError as error:
                if monotonic() >= ends_s:
                    raise StartError(f"the store {objects!r} does not answer: {error}") from error
                if str(error) != reported:
                    self._log.warning("STORE: %r does not answer - %s; trying again", objects, error)
                    reported = str(error)
            except (StoreRefused, Superseded, BadObject) as error:
                raise StartError(f"the store {objects!r} cannot be claimed: {error}") from error
            on_progress()
            sleep(_PAUSE_S)

    def _note_damage(self, error: BadObject) -> None:
        self._damage = self._damage or str(error)
        self._damaged_objects += 1
        self._log.error("STORE: %s", error)

    def _is_same_boot(self) -> bool:
        """True if the machine was not rebooted since: then nsqd.dat is what the last nsqd on this data path has written last.

        Other files may be damaged or missing nevertheless.
        """
        before = read_clock_file(self._directory)
        return before is not None and before.is_same_boot(read_clocks(0))

    def loaded(self) -> None:
        broker, owner, objects = self._broker, self._owner, self._objects
        assert owner is not None
        assert objects is not None
        assert owner.image is not None
        if self._is_other_node and not (
            self._is_copy or self._options.lease
        ):  # else `StandbyPart` has done it
            from nsqd_py.standby.role import promote

            promote(broker, self._directory, None)
        assert self._restoration is not None
        self._restoration.end()  # not earlier: a start after a crash must know that it was another node's
        assert self._files is not None
        owner.image = None
        broker.logs.keep_epochs()  # so that the next start knows a topic that was made again
        addition = self._addition = StoreAddition(broker, objects, owner, self._damaged_objects, self._damage)
        addition.stream = StoreStream(
            broker, self._directory, self._threadpool, objects, owner, self._files, addition, self._superseded
        )
        addition.scrub = StoreScrub(
            objects, owner, addition.stream, broker.options.store_scrub_requests, broker.log
        )
        broker.additions.add(addition)

    def start(self) -> None:
        if self._history is not None:
            self._history.start()
        if self._addition is not None and self._addition.stream is not None:
            self._addition.stream.start()
            assert self._addition.scrub is not None
            self._addition.scrub.start()

    def _superseded(self, error: NsqdError) -> None:
        """End serving at once: another nsqd serves these messages. With a lease, this one follows it."""
        follows = self._has_lost_lease()
        if follows:
            self._log.warning("STORE: %s", error)
        else:
            self._log.error("STORE: %s; this nsqd ends", error)
        self.host.cut_off("another nsqd has taken over the store")
        if self._addition is not None:
            self._addition.refuse_all(str(error))
        if not follows:
            self.host.fail()

    def _has_lost_lease(self) -> bool:
        """True if another nsqd of the group has the lease, and so the store."""
        if not self._options.lease:
            return False
        from nsqd_py.standby.part import has_lost_lease

        return has_lost_lease(self.host)

    # ---- the end

    def stop(self) -> None:
        """Put what publishers wait for now. They go on publishing until their connections are closed."""
        addition = self._addition
        if addition is None or addition.stream is None:
            return
        addition.stream.hurry()
        ends_s = monotonic() + _LAST_ROUNDS_S
        last_write = addition.last_write()
        while addition.waits_for(last_write) and monotonic() < ends_s:
            gevent.sleep(_POLL_S)

    def answered(self) -> None:
        """Put what is left, and say in the store that it has everything."""
        stream = self._addition.stream if self._addition is not None else None
        if stream is None:
            return
        stream.hurry()
        ends_s = monotonic() + _LAST_ROUNDS_S
        while (self._has_unsaved() or not stream.has_all) and monotonic() < ends_s:
            gevent.sleep(_POLL_S)
        if stream.has_all:
            gevent.spawn(self._close_head).join(max(0.0, ends_s - monotonic()))

    def _close_head(self) -> None:
        assert self._owner is not None
        try:
            in_thread(self._threadpool, self._owner.close)
        except NsqdError as error:
            self._log.warning("STORE: cannot say in the store that this nsqd has stopped - %s", error)

    def closed(self) -> None:
        if self._history is not None:
            self._history.stop()

    def _has_unsaved(self) -> bool:
        """True if a channel has finished something that is not in its journal."""
        channels = [channel for topic in self._broker.topics.values() for channel in topic.channels.values()]
        return any(channel.is_dirty and channel.journal is not None for channel in channels)
