"""How many messages of a log are what to whom."""

from __future__ import annotations

from nsqd_py.broker import state_files
from nsqd_py.diskqueue.journals import ranges
from nsqd_py.diskqueue.journals.journal import SavedPosition
from nsqd_py.diskqueue.journals.ranges import SeqRanges, union
from nsqd_py.diskqueue.journals.waits import PackedWaits
from nsqd_py.fsck.reading import LogNumbers, released_until
from nsqd_py.stores.directories import STATE_FILES

NOW_NS = 1000
# 0..9 and 20..39 can be read; 30 and up is in no channel yet; 22..24 are deferred.
LOG = LogNumbers([(0, 10), (20, 40)], 30, [PackedWaits([(22, 25, NOW_NS + 1, 0)])], 40)


def counts(saved: SavedPosition) -> tuple[int, int, int, int]:
    report = LOG.report("c", saved, NOW_NS, is_paused=False)
    return report.queued, report.deferred, report.finished, report.missing


def test_ranges() -> None:
    assert union([(5, 9), (1, 3), (3, 4), (7, 8), (2, 2)]) == [(1, 4), (5, 9)]


def test_a_channel_that_did_nothing_yet() -> None:
    assert counts(SavedPosition()) == (17, 3, 0, 10)


def test_finished_messages_count_where_they_can_be_read() -> None:
    assert counts(SavedPosition(SeqRanges(5, [(8, 23)]))) == (3 + 5, 2, 5 + 2 + 3, 0)


def test_what_was_requeued_is_due_by_that() -> None:
    later_ns = NOW_NS + 5
    waiting = PackedWaits(
        [(22, 23, NOW_NS, 1), (23, 24, later_ns, 1), (26, 27, later_ns, 2), (15, 16, later_ns, 2)]
    )
    assert counts(SavedPosition(SeqRanges(20), waiting)) == (7, 3, 10, 0)


def test_what_the_topic_holds_back() -> None:
    assert LOG.held == [(30, 40)]


def test_up_to_where_a_topic_has_given_its_messages() -> None:
    saved, held = [SavedPosition(SeqRanges(3, [(7, 9)]))], SavedPosition(SeqRanges(8))
    assert released_until(100, saved, held, is_held=False) == 100
    assert released_until(100, saved, held, is_held=True) == 9
    assert released_until(100, [], held, is_held=True) == 8
    assert released_until(100, [], None, is_held=True) == 0


def test_the_state_files_are_those_that_nsqd_writes() -> None:
    written = {
        name
        for names in (vars(state_files), vars(ranges))
        for key, name in names.items()
        if key.endswith("_FILE")
    }
    assert written == set(STATE_FILES)
