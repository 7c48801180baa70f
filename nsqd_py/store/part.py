"""The store as a part of nsqd: its start, the publishers that wait for it, what is shown, and the end.

While nsqd serves, a store that is away costs nothing but its protection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import gevent

from nsqd_py.broker.additions import Addition
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.history import LogHistory
from nsqd_py.errors import NsqdError, StartError
from nsqd_py.objects.calls import StoreRefused
from nsqd_py.objects.opening import open_objects
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.runtime.process import share_arenas
from nsqd_py.runtime.threads import in_thread, in_thread_with_progress
from nsqd_py.server.docking import Host, Part
from nsqd_py.settings.durations import MILLISECOND_NS
from nsqd_py.standby.copies.data_path import read_state
from nsqd_py.store.ownership import Owner
from nsqd_py.store.repairing import StoreCopy
from nsqd_py.store.requests import CountedObjects
from nsqd_py.store.scrub import StoreScrub
from nsqd_py.store.start import Started, StoreStart
from nsqd_py.store.uploading.stream import StoreStream
from nsqd_py.store.waiting import WaitingPublishers

_NOTICE_AFTER_S = 10.0  # /ping says that the store is away
_LAST_ROUNDS_S = 3.0  # how long the end waits for the store
_POLL_S = 0.01
COPYING, STORING, AWAY = "copying", "storing", "away"


@dataclass(eq=False, repr=False)
class StoreAddition(Addition):
    """What the store adds to the broker: waiting publishers, statistics, a notice, and a copy of the logs."""

    _broker: Broker
    started: Started
    waiting: WaitingPublishers
    stream: StoreStream
    scrub: StoreScrub

    def __post_init__(self) -> None:
        if self._broker.options.store_acks:
            self._broker.sync.add_holder(self._written)

    def _written(self, _topic: Topic, publishers: Tickets) -> None:
        """A log was written."""
        self.waiting.add(publishers)
        if publishers:
            self.stream.publishers_wait()

    def close(self) -> None:
        self.waiting.refuse_all("nsqd is stopping")
        self.scrub.stop()
        self.stream.stop()

    # ---- what is shown

    def notice(self) -> str | None:
        objects = self.started.objects
        outage = self.stream.outage
        if outage is not None and monotonic() - outage.since_s >= _NOTICE_AFTER_S:
            return f"the store {objects!r} takes nothing: {outage.reason}"
        missing = self._missing()
        if missing:
            return f"the store {objects!r} has lost {len(missing)} log files, among them {missing[0]}"
        return None

    def statistics(self) -> dict[str, Any]:
        started = self.started
        stream = self.stream
        scrub = self.scrub
        mended = stream.mended_count
        local = stream.local_damage
        met = self._met_by_readers()
        requests = started.objects.requests
        state = COPYING if stream.is_copying else STORING
        away_ms = 0
        error = ""
        if stream.collection_error:
            error = f"cannot delete what is not needed any more: {stream.collection_error}"
        if stream.outage is not None:
            state = AWAY
            away_ms = int((monotonic() - stream.outage.since_s) * 1000)
            error = stream.outage.reason
        last_round_ms_ago = None
        if stream.writer.last_round_s:
            last_round_ms_ago = int((monotonic() - stream.writer.last_round_s) * 1000)
        shown = {
            "url": self._broker.options.store,
            "epoch": started.owner.epoch,
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
            "damaged_objects": len(started.damage) + len(met) + mended + scrub.damaged + bool(local),
            "repaired_objects": mended + scrub.repaired,
            "damage": next(filter(None, [*started.damage, local, scrub.damage, *met]), ""),
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

    def _met_by_readers(self) -> list[str]:
        """Return sentences about the log files that are damaged or missing, as readers say; the scrub has not found them yet."""
        scrub = self.scrub
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
        started = self.started
        services = self._broker.services
        return [StoreCopy(started.objects, services.threadpool, started.files, services.directory)]


class StorePart(Part):
    """Claims the store, restores or catches up from it, and puts what is new there."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._broker = host.broker
        self._options = host.broker.options
        self._directory: Path = host.broker.services.directory
        self._threadpool = host.broker.services.threadpool
        self._log = host.broker.log
        self._is_promoted = False  # the data path is that of a standby, which is promoted at this start
        self._started: Started | None = None
        self._addition: StoreAddition | None = None

    # ---- the start

    def before_load(self) -> None:
        options = self._options
        share_arenas()  # the client of a bucket has threads
        try:
            objects = CountedObjects(open_objects(options.store, options.store_endpoint))
        except (ValueError, StoreRefused) as error:
            raise StartError(f"--store={options.store} cannot be used: {error}") from error
        state = read_state(self._directory)
        self._is_promoted = state is not None
        is_copy = state is not None and not state.is_own

        def start(on_progress: Callable[[], None]) -> None:
            self._started = StoreStart(self.host, objects, on_progress, is_copy=is_copy).run()

        in_thread_with_progress(start, self.host.on_progress)
        assert self._started is not None
        self._broker.logs.use_store(self._started.history)

    def loaded(self) -> None:
        broker = self._broker
        started = self._started
        assert started is not None
        is_promoted = self._is_promoted or self._options.lease  # by `StandbyPart`
        if started.is_other_node and not is_promoted:
            from nsqd_py.standby.role import promote

            promote(broker, self._directory, None)
        started.restoration.end()  # not earlier: a start after a crash must know that it was another node's
        started.owner.image = None
        broker.logs.keep_epochs()  # so that the next start knows a topic that was made again
        objects = started.objects
        waiting = WaitingPublishers(broker, objects)
        stream = StoreStream(
            broker,
            self._directory,
            self._threadpool,
            objects,
            started.owner,
            started.files,
            waiting,
            self._superseded,
        )
        scrub = StoreScrub(objects, started.owner, stream, self._options.store_scrub_requests, self._log)
        self._addition = StoreAddition(broker, started, waiting, stream, scrub)
        broker.additions.add(self._addition)

    def start(self) -> None:
        if self._addition is not None:
            self._addition.started.history.start()
            self._addition.stream.start()
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
            self._addition.waiting.refuse_all(str(error))
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
        if self._addition is None:
            return
        waiting = self._addition.waiting
        self._addition.stream.hurry()
        ends_s = monotonic() + _LAST_ROUNDS_S
        last_write = waiting.last_write()
        while waiting.has_up_to(last_write) and monotonic() < ends_s:
            gevent.sleep(_POLL_S)

    def answered(self) -> None:
        """Put what is left, and say in the store that it has everything."""
        if self._addition is None:
            return
        stream = self._addition.stream
        stream.hurry()
        ends_s = monotonic() + _LAST_ROUNDS_S
        while (self._has_unsaved() or not stream.has_all) and monotonic() < ends_s:
            gevent.sleep(_POLL_S)
        if stream.has_all:
            owner = self._addition.started.owner
            gevent.spawn(self._close_head, owner).join(max(0.0, ends_s - monotonic()))

    def _close_head(self, owner: Owner) -> None:
        try:
            in_thread(self._threadpool, owner.close)
        except NsqdError as error:
            self._log.warning("STORE: cannot say in the store that this nsqd has stopped - %s", error)

    def closed(self) -> None:
        if self._started is not None:
            self._started.history.stop()

    def _has_unsaved(self) -> bool:
        """True if a channel has finished something that is not in its journal."""
        channels = [channel for topic in self._broker.topics.values() for channel in topic.channels.values()]
        return any(channel.is_dirty and channel.journal is not None for channel in channels)
