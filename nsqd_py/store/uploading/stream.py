"""The greenlet that puts bases and rounds into the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import gevent

from nsqd_py.broker.broker import Broker
from nsqd_py.errors import NsqdError
from nsqd_py.feed.feed import Feed
from nsqd_py.feed.lag import Lag
from nsqd_py.objects.calls import Objects, StoreError, StoreRefused
from nsqd_py.runtime.threads import in_thread
from nsqd_py.settings.durations import MILLISECOND_NS
from nsqd_py.store.files import StoredFiles
from nsqd_py.store.layout import BadObject, StoredFile
from nsqd_py.store.ownership import Owner, Superseded
from nsqd_py.store.uploading.calls import FIRST_PAUSE_S, LONGEST_PAUSE_S, Outage, StoreCalls
from nsqd_py.store.uploading.frames import NotCovered, PieceFrames
from nsqd_py.store.uploading.lag import FollowedFeed
from nsqd_py.store.uploading.log_files import FileChanges, FileUploads
from nsqd_py.store.uploading.timing import RoundTimer, Waiting
from nsqd_py.store.uploading.writing import RoundWriter, is_far_behind

_COLLECTION_S = 60.0
# How long a store that is not written may be another nsqd's before this one finds it: 86,400 requests a month.
_LOOK_S = 30.0
_MOST_WAITS = 20  # of a round for a journal that is being written


class StoreStream:
    """Puts everything that changes in a data path, in a greenlet.

    writer          puts the objects, and counts them
    files           the log files of the store, as its rounds say
    collection_error  why the last collection could not list or delete; "" if it could
    _on_superseded  called once, when another nsqd has taken over the store
    """

    def __init__(
        self,
        broker: Broker,
        directory: Path,
        threadpool: Any,
        objects: Objects,
        owner: Owner,
        files: StoredFiles,
        waiting: Waiting,
        on_superseded: Callable[[NsqdError], None],
    ) -> None:
        self._broker = broker
        self._directory = directory
        self._threadpool = threadpool
        self._owner = owner
        self._on_superseded = on_superseded
        self.files = files
        self._calls = StoreCalls(objects, owner, threadpool, broker.log)
        self.writer = RoundWriter(self._calls, owner)
        self._uploads = FileUploads(broker, objects, owner, self._calls, files)
        self._timer = RoundTimer(waiting, broker.clock, broker.options.store_interval_ns)
        self._following: FollowedFeed | None = None
        self._frames = PieceFrames(broker, self._uploads)
        self._greenlet: Any = None
        self._started_ns = broker.clock()
        self._looked_s = 0.0  # at the head
        self._is_look_wanted = False
        self._next_collection_s = 0.0
        self.collection_error = ""

    def start(self) -> None:
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End at once. A request that a thread has begun goes on."""
        self._leave_feed()
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
        self._uploads.stop()

    # ---- what the part asks

    def hurry(self) -> None:
        """Put what is new at once: nsqd ends."""
        self._timer.hurry()

    def publishers_wait(self) -> None:
        """Begin a round soon, since publishers wait for it."""
        self._timer.publishers_wait()

    @property
    def local_damage(self) -> str:
        """What is damaged on the disk, because of which bases wait: a sentence; "" if nothing is."""
        return self._uploads.damage.text

    @property
    def mended_count(self) -> int:
        """How many damaged heads were written again."""
        return self._calls.mended_count

    @property
    def outage(self) -> Outage | None:
        """None while the store takes what is put. An outage begins with the first request that it does not answer."""
        return self._calls.outage

    @property
    def has_all(self) -> bool:
        """True if the store has everything that there is."""
        following = self._following
        if following is None or not self._timer.is_idle:
            return False
        return not following.feed.since_ns and not self._uploads.has_added

    @property
    def is_copying(self) -> bool:
        """True until the first base is stored."""
        return self._following is None or not self._following.feed.is_following

    def lag(self) -> Lag:
        """Return how far the last complete state in the store is behind.

        The messages that a base brings are not counted, only their bytes.
        """
        following = self._following
        if following is not None and following.feed.round_number:
            return following.lag()
        oldest_ns = self._oldest_change_ns()
        behind_ns = 0
        if oldest_ns:
            behind_ns = self._broker.clock() - oldest_ns
        return Lag(0, self._uploads.lacking_bytes(), behind_ns // MILLISECOND_NS)

    def _oldest_change_ns(self) -> int:
        """Return when the oldest change was made that the store does not have; 0 if there is none.

        Until the first base is stored, it is not known what the store lacks: at least what comes since the start.
        """
        if self._following is None:
            return self._started_ns
        return self._following.oldest_change_ns()

    # ---- what the scrub asks

    @property
    def last_round(self) -> int:
        """The number of the last object that is stored."""
        return self.writer.last_round

    def files_now(self) -> list[StoredFile]:
        return list(self.files)

    def has_file(self, file: StoredFile) -> bool:
        return file in self.files

    def replace_file(self, before: StoredFile, file: StoredFile) -> None:
        """Let the next round name a file that was put again."""
        if before.name != file.name:
            self._uploads.replace(file)
            self._timer.wake()

    def begin_base(self) -> None:
        """Put a new base soon."""
        self.writer.want_base()
        self._timer.wake()

    def look_soon(self) -> None:
        """Look at the head soon, and write it again if it is damaged."""
        self._is_look_wanted = True
        self._timer.wake()

    # ---- its greenlet

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                following = self._put_base()
                pause_s = FIRST_PAUSE_S
                while not self._is_base_ready(following.feed):
                    self._wait_until_due(following.feed)
                    self._put_round(following)
            except NotCovered:
                continue
            except (Superseded, BadObject) as error:
                self._leave_feed()
                self._on_superseded(error)
                return
            except OSError as error:
                self._broker.log.error("STORE: cannot read what is new - %s; beginning a new base", error)
            except Exception as error:
                self._broker.log.exception("STORE: %r; beginning a new base", error)
            else:
                continue
            gevent.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    # ---- when a round begins

    def _wait_until_due(self, feed: Feed) -> None:
        """Return when a round must begin. Blocks this greenlet."""
        with self._timer.idling():
            while True:
                if self._is_due_base_ready():  # a base follows a burst also if nothing comes after it
                    return
                if self._timer.is_tick():
                    if self._is_base_ready(feed):
                        return
                    self._look_at_files(feed)
                if self._is_look_wanted:
                    self._look()
                last_round_s = self.writer.last_round_s
                wait_s = self._timer.wait_s(feed, last_round_s, are_files_new=self._uploads.are_changed)
                if wait_s <= 0:
                    return
                if self._is_look_due():
                    self._look()
                    continue
                self._timer.sleep(wait_s)

    def _look(self) -> None:
        """Look at the head. Raises Superseded."""
        self._is_look_wanted = False
        self._calls.ask(self._owner.look)
        self._looked_s = monotonic()

    def _is_look_due(self) -> bool:
        """True if nothing was written for so long that another nsqd may have taken over unnoticed."""
        return monotonic() - max(self.writer.last_round_s, self._looked_s) >= _LOOK_S

    def _look_at_files(self, feed: Feed) -> None:
        """Note which files are gone, and put those that are sealed."""
        feed.note_gone_files()
        self._uploads.start()

    # ---- bases

    def _is_base_ready(self, feed: Feed) -> bool:
        """True if a base must begin now. It asks each topic that has changed, so not at each publish."""
        if is_far_behind(feed.unread().size_bytes):
            self._uploads.prepare_base()
            self._uploads.join()
            return self._uploads.is_base_ready
        return self._is_due_base_ready()

    def _is_due_base_ready(self) -> bool:
        """True if a base is due, and a greenlet has put the log files for it. Rounds go on in the meantime."""
        if not self.writer.is_base_due():
            return False
        self._uploads.prepare_base()
        return self._uploads.is_base_ready

    def _put_base(self) -> FollowedFeed:
        """Put the whole state, from the log files that are in the store. Return the feed that continues it.

        Raises Superseded and OSError.
        """
        file_bytes = self._uploads.complete_base()
        self._uploads.take_changes()  # a base names all files that it does not remove
        since_ns = self._oldest_change_ns()  # the feed before has noted what came in the meantime
        self._leave_feed()
        following = self._follow_new_feed(since_ns)
        self.writer.begin_base()
        covers = self._timer.round_begins()
        self.writer.put(self._frames_of_base(following.feed), is_base=True)
        self._end_round(following, covers)
        self._uploads.are_named(self.files)
        following.feed.follow()
        self.writer.end_base(file_bytes)
        self._uploads.delete_removed()
        return following

    def _follow_new_feed(self, since_ns: int) -> FollowedFeed:
        """Let a feed begin with what the log files in the store have. Raises OSError.

        `since_ns` is when the oldest change was made that the store does not have; 0 if there is none.
        """
        broker = self._broker
        topics = [topic for topic in broker.topics.values() if topic.log is not None]
        offered = self.files.offer(topics, lambda *work: in_thread(self._threadpool, *work))
        feed = Feed(broker, self._directory, self._threadpool, offered, self._timer.note_change)
        broker.listen(feed)
        self._frames = PieceFrames(broker, self._uploads)
        self._following = FollowedFeed(feed, since_ns)
        return self._following

    def _leave_feed(self) -> None:
        if self._following is not None:
            self._broker.stop_listening(self._following.feed)
            self._following.feed.close()

    def _frames_of_base(self, feed: Feed) -> Iterator[bytes]:
        yield from self._uploads.frames_of_base()
        yield from self._frames.of(feed.list_files())
        yield from self._frames.of(feed.whole_round(_MOST_WAITS))

    # ---- rounds

    def _put_round(self, following: FollowedFeed) -> None:
        """Put what has changed. Raises Superseded and OSError."""
        covers = self._timer.round_begins()
        following.round_begins()
        changes = self._uploads.take_changes()
        self.writer.put(self._frames_of_round(following.feed, changes))
        self._end_round(following, covers)
        self._uploads.are_named(changes.added)
        self._uploads.delete_removed()
        now_s = monotonic()
        if now_s >= self._next_collection_s:
            self._next_collection_s = now_s + _COLLECTION_S
            self._uploads.release()
            self._collect()

    def _collect(self) -> None:
        """Delete what has left the state long ago. Rounds go on if that fails: the next collection repeats it."""
        try:
            in_thread(self._threadpool, self._owner.collect)
        except (StoreError, StoreRefused) as error:
            if not self.collection_error:
                self._broker.log.error("STORE: cannot delete what is not needed any more - %s", error)
            self.collection_error = str(error)
        else:
            self.collection_error = ""

    def _frames_of_round(self, feed: Feed, changes: FileChanges) -> Iterator[bytes]:
        yield from changes.frames()
        yield from self._frames.of(feed.whole_round(_MOST_WAITS))

    def _end_round(self, following: FollowedFeed, covers: int) -> None:
        """Count the round as stored, and answer the publishers that waited for it."""
        following.round_is_stored()
        self._timer.round_is_stored(covers)
