"""A reader of the feed that is no standby: it writes the pieces into a directory of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import gevent
from gevent.event import Event

from nsqd_py.feed.feed import Feed
from nsqd_py.feed.pieces import Begin, Commit, Part, Piece, Remove, TopicListing, TopicsListed, Write
from tests.support.broker_life import Life
from tests.unit.fakes import FakeThreadPool


class Mark(NamedTuple):
    """The end of a round that began when there were so many events."""

    began: int


class Directory:
    """A copy that does with each piece what the piece says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._new: dict[str, bytearray] = {}

    def apply(self, piece: Piece) -> None:
        match piece:
            case Write(name, offset, data):
                path = self.path / name
                with path.open("r+b" if offset or path.exists() else "w+b") as file:
                    file.seek(offset)
                    file.write(data)
            case Begin(name):
                self._new[name] = bytearray()
            case Part(name, offset, data):
                assert len(self._new[name]) == offset
                self._new[name] += data
            case Commit(name):
                (self.path / name).write_bytes(self._new.pop(name))
            case Remove(name):
                (self.path / name).unlink(missing_ok=True)
            case TopicListing(topic):  # of another log than before: it had nothing when it began
                for path in self.path.iterdir():
                    if path.name.startswith((f"{topic}.", f"{topic}:")):
                        path.unlink()
            case TopicsListed():
                pass


class FeedReader:
    """Takes one round after the other, in a greenlet.

    taken   each piece, and the mark at the end of each round, with the number of events by then
    pause   called after each piece
    """

    def __init__(
        self,
        life: Life,
        path: Path,
        count_events: Callable[[], int] = lambda: 0,
        pause: Callable[[], object] = lambda: gevent.sleep(0),
    ) -> None:
        path.mkdir()
        self.taken: list[tuple[Piece | Mark, int]] = []
        self.is_idle = False
        self._life = life
        self._copy = Directory(path)
        self._count_events = count_events
        self._pause = pause
        self._wake = Event()
        self.feed = Feed(life.broker, life.directory, FakeThreadPool(), {}, self._wake.set)
        life.broker.listen(self.feed)
        self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        self._take(self.feed.list_files())
        while True:
            self._wake.clear()
            began = self._count_events()
            self._take(self.feed.round())
            self.taken.append((Mark(began), self._count_events()))
            self.feed.follow()
            if not self.feed.is_due:
                self.is_idle = True
                self._wake.wait()
                self.is_idle = False

    def _take(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._copy.apply(piece)
            self.taken.append((piece, self._count_events()))
            self._pause()

    def catch_up(self) -> None:
        """Return when the copy has everything."""
        self.feed.note_gone_files()
        self.is_idle = False
        self._wake.set()
        while not self.is_idle or self.feed.since_ns:
            assert not self._greenlet.dead
            self._life.settle()

    def end(self) -> None:
        self._life.broker.stop_listening(self.feed)
        self.feed.close()
        self._greenlet.kill()


def copy_after(taken: Iterable[tuple[Piece | Mark, int]], path: Path) -> None:
    """Make the copy that a reader has after these pieces."""
    path.mkdir()
    copy = Directory(path)
    for piece, _ in taken:
        if not isinstance(piece, Mark):
            copy.apply(piece)
