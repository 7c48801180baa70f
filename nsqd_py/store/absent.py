"""Says which unfinished messages a data path lacks: they are only in a store, or lost.

A start of nsqd counts them as lost where its store does not have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nsqd_py.diskqueue.journals.journal import SavedPosition, read_journal
from nsqd_py.diskqueue.journals.ranges import Range, count_of, minus, union
from nsqd_py.diskqueue.recovery import TopicFiles, find_topic_files
from nsqd_py.runtime.private_files import read_bytes
from nsqd_py.runtime.threads import nothing
from nsqd_py.store.log_bytes import end_of
from nsqd_py.store.restoring.restoration import joined

_MOST_NAMED = 10  # topics


def absent_in(directory: Path, on_progress: Callable[[], None] = nothing) -> dict[str, list[Range]]:
    """Return the numbers of the messages that some channel has not finished, and that no log file has, by topic.

    Damaged records are in their file. Only files before the last one of a topic are read, and only if they have something
    unfinished or follow such a file. Raises OSError.
    """
    topics, _ = find_topic_files(directory)
    found = {}
    for topic, files in topics.items():
        on_progress()
        ranges = _absent(files)
        if ranges:
            found[topic] = ranges
    return found


def absent_text(directory: Path, on_progress: Callable[[], None] = nothing) -> str:
    """Return how many messages of which topics are absent, for people; "" if none are. Raises OSError."""
    return counts_text(absent_in(directory, on_progress))


def counts_text(absent: Mapping[str, Sequence[Range]]) -> str:
    """Return the numbers of messages in these ranges by topic, for people."""
    counts = [f"{count_of(ranges)} messages of topic {topic}" for topic, ranges in absent.items()]
    return joined(counts, _MOST_NAMED, "topics")


def _absent(files: TopicFiles) -> list[Range]:
    own = None
    left = []
    for channel, path in files.journals.items():
        position = _position(path)
        if not channel:
            own = position
        elif position is not None and not position.is_deleted:
            left.append(position)
    if own is not None and own.is_deleted:
        return []
    if not left and own is not None:
        left = [own]
    end = max((position.end for position in left), default=0)
    if files.logs:
        end = max(seq for seq, _ in files.logs)
    unfinished = union(gap for position in left for gap in position.finished.gaps(0, end))
    if not unfinished:
        return []
    return minus(unfinished, _ranges_of(files, unfinished[0][0]))


def _position(path: Path) -> SavedPosition | None:
    """Return the position in a journal; None if that is empty or damaged."""
    content = read_journal(read_bytes(path), with_waiting=False)
    return content.saved if content.end else None


def _ranges_of(files: TopicFiles, low: int) -> list[Range]:
    """Return the numbers from which on, and up to which, each log file has messages, of those that reach `low`."""
    logs = sorted(files.logs)
    found = []
    for index, (first_seq, path) in enumerate(logs[:-1]):
        following = logs[index + 1][0]
        if following <= low:
            continue
        end = end_of(path)
        end_seq = following
        if end is not None:
            end_seq = min(end.seq, following)
        found.append((first_seq, end_seq))
    return found
