"""Files that leave a standby's copy in the name of its primary: those with unfinished messages are set aside first.

`Departing` is a log file that was set aside, `Departures` decides which ones are, and counts their messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX
from nsqd_py.diskqueue.journals.ranges import Range, common, count_of, union
from nsqd_py.standby.copies.data_path import COPIED_STATE_FILES, topic_of
from nsqd_py.standby.copies.set_aside import SetAside
from nsqd_py.standby.copies.unfinished import Unfinished, count_in, finished_in

_SURE_AFTER_S = 2.0


class Departing(NamedTuple):
    """A log file that was set aside.

    retained    the path of the file now
    topic       of the log
    unfinished  the messages that a channel had not finished, by the name of its journal; empty if the channel or the
                whole log is gone, so that nothing can finish them. (0, 1) if the file cannot be read
    """

    retained: Path
    topic: str
    unfinished: dict[str, list[Range]]


@dataclass(eq=False, repr=False)
class Departures:
    """Sets files aside before they leave, and counts the messages that nothing has finished. Methods may raise OSError.

    _logs, _journals  the names of the files of the copy by topic, as they change
    alone_count      messages that were set aside and counted, since the primary has them no more and did not finish them
    retained_before  name of the directory with what an old primary had not finished when it began to follow
    """

    _directory: Path
    since_utc: InitVar[str]
    _logs: Mapping[str, Mapping[str, Any]]
    _journals: Mapping[str, set[str]]
    _unfinished: Unfinished
    alone_count: int = 0
    retained_before: str = ""

    def __post_init__(self, since_utc: str) -> None:
        self._set_aside = SetAside(self._directory, since_utc)
        self._departing: list[Departing] = []  # since the last complete round
        # Earlier ones that were not finished by then, with the time of that round.
        self._unsure: deque[tuple[float, Departing]] = deque()
        self._counted: dict[Path, list[Range]] = {}  # the messages in retained files that were counted
        # The number from which the messages of a file in `standby-alone-` are counted.
        self._counted_from: dict[str, int] = {}
        self._has_saved_unfinished = False

    # ---- what this nsqd has written, and its primary may not have

    def keep_own(self, topic: str, unmatched: list[str], limit: int | None) -> None:
        """Set aside what this nsqd has written as a primary and the new primary may not have.

        If the epochs of that one do not continue those of this nsqd, that is everything, also what it says it has. A
        promotion continues them, at a message that this nsqd has, unless that was lost in a power cut.
        """
        names = sorted(
            path.name for path in self._directory.glob(f"{topic}.*.log") if topic_of(path.name) == topic
        )
        end = 0
        if names:
            _, end = self._unfinished.bounds(topic, names[-1])
        if limit is None or limit > end:
            self.keep_alone(names, 0)
        else:
            self.keep_alone(unmatched, limit)

    def keep_alone(self, names: Iterable[str], limit: int) -> None:
        """Set aside those files that have messages from the number `limit` on, and count these messages."""
        counts = {self._directory / name: count_in(self._directory / name, limit) for name in names}
        paths = [path for path, count in counts.items() if count]
        if not paths:
            return
        for path in paths:
            earlier = self._counted_from.get(path.name, limit)
            self._counted_from[path.name] = min(limit, earlier)
        self.alone_count += sum(counts.values())
        self._set_aside.keep(self._set_aside.alone, [*paths, *self._state_paths()])

    def keep_unfinished(self) -> None:
        """Set aside, once, what this nsqd had not finished as a primary. Call this before anything of that changes."""
        if self._has_saved_unfinished:
            return
        self._has_saved_unfinished = True
        paths = []
        for topic, files in self._logs.items():
            paths += [self._directory / name for name in files if self._unfinished.in_file(topic, name)]
        if paths:
            self._set_aside.keep(self._set_aside.removed, [*paths, *self._state_paths()])
            self.retained_before = self._set_aside.removed.name

    def _state_paths(self) -> list[Path]:
        journals = [name for names in self._journals.values() for name in names]
        return [self._directory / name for name in (*journals, *COPIED_STATE_FILES)]

    # ---- what the primary removes or replaces

    def leaves(self, name: str, replacement: Path | None = None, *, is_other_log: bool = False) -> None:
        """Set a file aside that is about to be removed or replaced, if it has something that was not finished."""
        path = self._directory / name
        topic = topic_of(name)
        if topic is None or not path.exists():
            return
        if name.endswith(JOURNAL_SUFFIX):
            self._channel_leaves(topic, name, replacement)
            return
        unfinished = self._unfinished.in_file(topic, name)
        if self._set_aside.has_alone(path):
            unfinished = _below(unfinished, self._counted_from.pop(name, 0))
        if not unfinished:
            return
        journals = [self._directory / journal for journal in self._journals.get(topic, ())]
        if is_other_log:
            unfinished = {"": union(_ranges_in(unfinished))}
        self._keep_removed(topic, path, journals, unfinished)

    def _channel_leaves(self, topic: str, name: str, replacement: Path | None) -> None:
        """Set aside the journal of a channel that is deleted, with the log files of which it had not finished all."""
        if replacement is not None and finished_in(replacement) is not None:
            return
        journal = self._directory / name
        for log_name in list(self._logs.get(topic, ())):
            path = self._directory / log_name
            unfinished = self._unfinished.in_file(topic, log_name).get(name)
            if unfinished and not self._set_aside.has_alone(path):
                self._keep_removed(topic, path, [journal], {"": unfinished})

    def _keep_removed(
        self, topic: str, path: Path, journals: list[Path], unfinished: dict[str, list[Range]]
    ) -> None:
        retained = self._set_aside.keep_removed(path, journals)
        self._departing.append(Departing(retained, topic, unfinished))

    # ---- what became of it

    def end_round(self, now_s: float) -> int:
        """Keep what has left and is neither here nor finished now; return the number of messages, if it was counted.

        The round has the cursors of that time. Later ones may finish it: they are written every 0.1 s.
        """
        before = self.alone_count
        new = self._departing
        self._departing = []
        old = []
        while self._unsure and self._unsure[0][0] <= now_s - _SURE_AFTER_S:
            old.append(self._unsure.popleft()[1])
        for each in new:
            if self._left(each):
                self._unsure.append((now_s, each))
        for each in old:
            self._count(each, self._left(each))
        needed = self._counted.keys() | {each.retained for _, each in self._unsure}
        for path in {each.retained for each in (*new, *old)} - needed:
            self._set_aside.drop(path)
        return self.alone_count - before

    def _left(self, each: Departing) -> list[Range]:
        return self._unfinished.left(each.retained, each.unfinished, each.topic)

    def _count(self, each: Departing, ranges: list[Range]) -> None:
        if not ranges:
            return
        counted = self._counted.get(each.retained, [])
        self._counted[each.retained] = union([*counted, *ranges])
        self.alone_count += count_of(self._counted[each.retained]) - count_of(counted)

    @property
    def set_aside_count(self) -> int:
        """Return `alone_count` plus the messages that have just left, which may turn out to be finished."""
        left = dict(self._counted)
        unsure = [each for _, each in self._unsure]
        for each in (*self._departing, *unsure):
            known = left.get(each.retained, [])
            left[each.retained] = [*known, *_ranges_in(each.unfinished)]
        counted = sum(map(count_of, self._counted.values()))
        left_count = sum(count_of(union(ranges)) for ranges in left.values())
        return self.alone_count - counted + left_count


def _ranges_in(unfinished: Mapping[str, list[Range]]) -> list[Range]:
    return [each for ranges in unfinished.values() for each in ranges]


def _below(unfinished: Mapping[str, list[Range]], limit: int) -> dict[str, list[Range]]:
    """Return the messages with numbers below `limit`, for those channels that have some."""
    found = {channel: common(ranges, [(0, limit)]) for channel, ranges in unfinished.items()}
    return {channel: ranges for channel, ranges in found.items() if ranges}
