"""What a data path may have lost before this start, as the load finds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.journals.ranges import Range


class Losses:
    """The messages that were in no file at the start, and the logs that may have lost their end.

    The end of a log is *open* if messages behind it may have been lost: no clean stop recorded it. It is settled when all
    standbys that may have more have answered, or when the log goes on: other messages have those numbers then.
    """

    def __init__(self) -> None:
        self._missing: dict[str, Sequence[Range]] = {}
        self._unsure: dict[str, Sequence[Range]] = {}
        self._ends_at_start: dict[str, int] = {}
        self._open_ends: set[str] = set()
        self._cut_ends: set[str] = set()

    # ---- messages

    def note_missing(self, topic: str, missing: Sequence[Range], unsure: Sequence[Range]) -> None:
        """Note unfinished messages that are in no file. After a power cut, those of `unsure` may be finished."""
        self._missing[topic] = missing
        self._unsure[topic] = unsure

    def missing(self, topic: str) -> Sequence[Range]:
        return self._missing.get(topic, ())

    def unsure(self, topic: str) -> Sequence[Range]:
        return self._unsure.get(topic, ())

    @property
    def has_missing(self) -> bool:
        return any(self._missing.values())

    # ---- ends

    def note_open_end(self, topic: str, next_seq: int, *, may_be_given_back: bool, may_be_cut: bool) -> None:
        """Note a log that was not ended cleanly: the number of its next message.

        may_be_given_back  a standby may have more
        may_be_cut         a power cut may have taken its end; a kill takes none
        """
        self._ends_at_start[topic] = next_seq
        if may_be_given_back:
            self._open_ends.add(topic)
            if may_be_cut:
                self._cut_ends.add(topic)

    def is_end_open(self, topic: str, next_seq: int) -> bool:
        """True if the log was not ended cleanly, and has not gone on since."""
        return self._ends_at_start.get(topic) == next_seq

    def may_be_cut(self, topic: str, next_seq: int) -> bool:
        """True if a power cut may have taken the end of a log, and a standby that has not answered may have it."""
        return topic in self._cut_ends and self.is_end_open(topic, next_seq)

    def cut_ends(self, topics: Mapping[str, Topic]) -> set[str]:
        """Return the topics among these whose ends a power cut may have taken, see `may_be_cut`."""
        return {
            name for name in self._cut_ends & topics.keys() if self.may_be_cut(name, topics[name].next_seq)
        }

    @property
    def has_open_ends(self) -> bool:
        """True if standbys must be asked for the end of a log."""
        return bool(self._open_ends)

    def standbys_answered(self) -> None:
        """All standbys have answered: no end is open any more."""
        self._open_ends.clear()
        self._cut_ends.clear()

    def open_ends(self, topics: Mapping[str, Topic]) -> set[str]:
        """Return the topics among these whose ends standbys may still have."""
        return {
            name for name in self._open_ends & topics.keys() if self.is_end_open(name, topics[name].next_seq)
        }
