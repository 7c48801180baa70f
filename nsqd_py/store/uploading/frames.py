"""The frames of a round: the pieces of a feed, and what must be said of log files that the store has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nsqd_py.broker.broker import Broker
from nsqd_py.diskqueue.files.log_file import parse_log_file_name
from nsqd_py.feed.pieces import Begin, Commit, Piece, Remove, TopicListing, Write
from nsqd_py.standby.copies.data_path import topic_of
from nsqd_py.store.files import Replacing
from nsqd_py.store.rounds import piece_frame
from nsqd_py.store.uploading.log_files import FileUploads


class NotCovered(Exception):
    """A sparse file has got messages that no stored file has, although its first ones were not sent: begin a base."""


class PieceFrames:
    """Makes frames of the pieces of one feed. A sparse file is left out where the store has the originals."""

    def __init__(self, broker: Broker, uploads: FileUploads) -> None:
        self._broker = broker
        self._uploads = uploads
        self._files = uploads.files
        self._covered: set[str] = set()  # names of the files that are left out

    def of(self, pieces: Iterator[Piece]) -> Iterator[bytes]:
        """Yield the frames of these pieces. Raises NotCovered."""
        for piece in pieces:
            if isinstance(piece, TopicListing):
                yield from self._listed(piece)
            elif isinstance(piece, Begin) and parse_log_file_name(piece.name) is not None:
                yield from self._replaced(piece, pieces)
            elif isinstance(piece, Write) and piece.name in self._covered:
                if not self._replacing(piece.name).is_covered:
                    raise NotCovered
            else:
                yield piece_frame(piece)
                if isinstance(piece, Remove):
                    yield from self._remove_merged(piece.name)

    # ---- lists of files

    def _listed(self, listing: TopicListing) -> Iterator[bytes]:
        self._covered = {name for name in self._covered if topic_of(name) != listing.topic}
        yield from self._remove_others(listing.topic)
        yield piece_frame(self._with_stored_ends(listing))

    def _remove_others(self, topic_name: str) -> Iterator[bytes]:
        """Yield the frame that removes the stored files of another log of this topic, which was deleted."""
        topic = self._broker.topics.get(topic_name)
        log = topic.log if topic is not None else None
        others = self._files.forget_others(topic_name, log)
        if others:
            yield self._uploads.removing(others)

    def _with_stored_ends(self, listing: TopicListing) -> TopicListing:
        """Return the list with offsets that are the ends of stored files; others are covered by their originals."""
        ends = self._files.ends(listing.topic)
        offsets = dict(listing.files)
        for name, offset in listing.files.items():
            if offset and ends.get(name) != offset:
                offsets[name] = 0
                self._covered.add(name)
        return replace(listing, files=offsets)

    # ---- what compaction has done

    def _remove_merged(self, name: str) -> Iterator[bytes]:
        """Yield the frame that removes a stored file which nsqd has removed, since other files have its messages."""
        parsed = parse_log_file_name(name)
        if parsed is None:
            return
        topic_name, first_seq = parsed
        merged = self._files.forget_removed(topic_name, first_seq, self._covered)
        self._covered.discard(name)
        if merged:
            yield self._uploads.removing(merged)

    def _replaced(self, begin: Begin, pieces: Iterator[Piece]) -> Iterator[bytes]:
        """Yield the new version of a log file; nothing, if stored files have all of its messages."""
        replacing = self._replacing(begin.name)
        self._covered.discard(begin.name)
        if replacing.is_covered:
            self._covered.add(begin.name)
        if replacing.replaced:
            yield self._uploads.removing(replacing.replaced)
        if not replacing.is_covered:
            yield piece_frame(begin)
        for piece in pieces:
            if not replacing.is_covered:
                yield piece_frame(piece)
            if isinstance(piece, Commit):
                return

    def _replacing(self, name: str) -> Replacing:
        topic_name = topic_of(name) or ""
        return self._files.replacing(topic_name, name)
