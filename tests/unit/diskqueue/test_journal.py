"""How a channel's position is kept on disk."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.diskqueue.journals.journal import (
    CHANGE,
    SNAPSHOT,
    Journal,
    Range,
    SavedPosition,
    Wait,
    encode_entry,
    read_journal,
)
from tests.support.examples import examples
from tests.unit.fakes import refuse
from tests.unit.log_bench import flip

Entry = tuple[int, int, list[Range], list[Wait]]  # kind, floor, finished, waiting
Plain = tuple[set[int], dict[int, tuple[int, int]]]  # finished, waiting

ranges = st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda r: (r[0], r[0] + r[1]))
waits = st.tuples(ranges, st.sampled_from([0, 5, 10**18]), st.integers(0, 3)).map(
    lambda w: (*w[0], w[1], w[2])
)
kinds = st.sampled_from([CHANGE, SNAPSHOT])
entries = st.tuples(kinds, st.integers(0, 20), st.lists(ranges, max_size=4), st.lists(waits, max_size=4))
rows = st.lists(entries, min_size=1, max_size=6)


def plain_state(entries: list[Entry]) -> Plain:
    """What the entries add up to, number by number."""
    finished = set()
    waiting = {}
    last_floor = 0
    for kind, floor, done, waits_now in entries:
        if kind == SNAPSHOT:
            finished.clear()
            waiting.clear()
        last_floor = floor
        for low, high in done:
            finished.update(range(low, high))
        for low, high, due_ns, attempts in waits_now:
            waiting.update(dict.fromkeys(range(low, high), (due_ns, attempts)))
    finished.update(range(last_floor))
    return finished, {seq: state for seq, state in waiting.items() if seq not in finished}


def plain_saved(saved: SavedPosition) -> Plain:
    finished = set(range(saved.finished.floor))
    for low, high in saved.finished.islands():
        finished.update(range(low, high))
    return finished, saved.waiting.by_number()


@given(rows)
def test_a_row_of_entries_adds_up(entries: list[Entry]) -> None:
    data = b"".join(encode_entry(*entry) for entry in entries)
    saved, damaged, end = read_journal(data)
    assert plain_saved(saved) == plain_state(entries)
    assert (damaged, end) == ([], len(data))
    everything = plain_state(entries)[0] | set(plain_state(entries)[1])
    assert saved.end == max(everything, default=-1) + 1


@given(rows)
@settings(max_examples=examples(30))
def test_every_cut_gives_what_some_first_entries_give(entries: list[Entry]) -> None:
    pieces = [encode_entry(*entry) for entry in entries]
    ends = [sum(map(len, pieces[: i + 1])) for i in range(len(pieces))]
    data = b"".join(pieces)
    for cut in range(len(data)):
        whole = sum(end <= cut for end in ends)
        saved, damaged, end = read_journal(data[:cut])
        assert plain_saved(saved) == plain_state(entries[:whole])
        assert (damaged, end) == ([(0, cut)] if cut and not whole else [], [0, *ends][whole])


@pytest.mark.parametrize("low", [0, 1 << 40])
def test_an_entry_with_more_messages_than_memory_can_hold_is_damage(low: int) -> None:
    good = encode_entry(SNAPSHOT, 5, [], [(7, 9, 0, 1)])
    bomb = encode_entry(CHANGE, 5, [], [(low, low + (1 << 62), 0, 1)])
    saved, damaged, end = read_journal(good + bomb + good)
    assert (list(saved.waiting.by_number()), damaged) == ([7, 8], [(len(good), end - len(good))])


# --- the file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "topic:channel.cursor"


@pytest.fixture
def journal(path: Path) -> Journal:
    """Message 0 is finished."""
    journal = Journal(path)
    journal.snapshot(1, [], [])
    return journal


def is_alone(path: Path) -> bool:
    return list(path.parent.iterdir()) == [path]


def load(path: Path) -> Plain | None:
    """What a new process reads."""
    saved = Journal(path).load()
    return None if saved is None else plain_saved(saved)


@pytest.mark.parametrize("behind", [b"", bytes(100)])
def test_goes_on_behind_a_torn_entry(journal: Journal, path: Path, behind: bytes) -> None:
    journal.change(4, [], [])
    path.write_bytes(path.read_bytes()[:-3] + behind)
    second = Journal(path)
    second.load(pytest.fail)
    second.change(3, [(8, 9)], [])
    assert load(path) == ({0, 1, 2, 8}, {})
    assert is_alone(path)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_damaged_entry_is_skipped_and_the_file_kept_aside(
    journal: Journal, path: Path, is_first: bool
) -> None:
    place = 0 if is_first else path.stat().st_size
    journal.change(4, [(6, 7)], [])
    journal.change(5, [(8, 9)], [])
    flip(path, place + 9)
    damaged = path.read_bytes()
    reported = []
    second = Journal(path)
    second.load(reported.append)
    second.change(6, [], [])
    assert load(path) == ({*range(6), 8} | ({6} if is_first else set()), {})
    aside = path.with_name("topic:channel.cursor.damaged")
    assert aside.read_bytes() == damaged
    (line,) = reported
    assert aside.name in line


def test_a_change_that_did_not_fit_is_as_if_it_never_was(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[: len(data) // 2], offset))
        with pytest.raises(OSError, match="short write"):
            journal.change(3, [(5, 9)], [(3, 4, 0, 1)])
    assert load(path) == ({0}, {})
    journal.change(2, [], [])
    assert load(path) == ({0, 1}, {})


@pytest.mark.parametrize("call", ["open", "write", "rename"])
def test_a_failed_snapshot_leaves_the_journal_as_it_was(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    journal.change(2, [], [])
    before = len(os.listdir("/proc/self/fd"))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(OSError, match="No space"):
            journal.snapshot(5, [], [])
    assert len(os.listdir("/proc/self/fd")) == before
    journal.change(3, [], [])
    assert load(path) == ({0, 1, 2}, {})


def test_wants_a_snapshot_when_it_grew_to_several_times_of_it(path: Path) -> None:
    journal = Journal(path)
    journal.snapshot(0, [], [])
    changes_written = 0
    while not journal.wants_snapshot(0, 0):
        journal.change(changes_written, [], [])
        changes_written += 1
    assert path.stat().st_size > 64 * 1024
    journal.snapshot(changes_written, [], [])
    assert path.stat().st_size < 100
    assert not journal.wants_snapshot(0, 0)
    assert load(path) == (set(range(changes_written)), {})


def test_changes_during_a_replacement_are_in_it(path: Path) -> None:
    journal = Journal(path)
    journal.change(0, [(5, 6)], [])
    replacement = journal.begin_large_snapshot(lambda: (2, [(5, 6)], [(3, 4, 9, 1)]))
    journal.change(2, [(7, 8)], [(4, 5, 0, 2)])
    replacement.write()
    journal.change(2, [(9, 10)], [])
    assert load(path) == ({0, 1, 5, 7, 9}, {4: (0, 2)})
    replacement.finish()
    expected = {0, 1, 5, 7, 9}, {3: (9, 1), 4: (0, 2)}
    assert load(path) == expected
    journal.change(2, [(11, 12)], [])
    assert load(path) == ({*expected[0], 11}, expected[1])
    assert is_alone(path)


@pytest.mark.parametrize("what", ["snapshot", "abandon"])
def test_a_replacement_that_something_came_before_is_dropped(journal: Journal, path: Path, what: str) -> None:
    replacement = journal.begin_large_snapshot(lambda: (2, [], []))
    replacement.write()
    if what == "snapshot":
        journal.snapshot(9, [], [])
        replacement.finish()
    else:
        journal.change(9, [], [])
        replacement.abandon()
    assert load(path) == (set(range(9)), {})
    assert is_alone(path)


FIRST = encode_entry(SNAPSHOT, 10, [(20, 30)], [(40, 42, 99, 3)])
SECOND = encode_entry(CHANGE, 12, [(33, 35)], [])
THIRD = encode_entry(CHANGE, 15, [(50, 51)], [(52, 53, 0, 1)])
WHOLE = FIRST + SECOND + THIRD


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_any_damage_forgets_and_never_invents(place: int, change: int) -> None:
    damaged = WHOLE[:place] + bytes([WHOLE[place] ^ change]) + WHOLE[place + 1 :]
    whole, journal = read_journal(WHOLE).saved, read_journal(damaged)
    assert journal.damaged or journal.end < len(damaged)
    assert all(whole.finished.covers(low, high) for low, high in journal.saved.finished.islands())
    assert journal.saved.finished.floor <= whole.finished.floor
    assert journal.saved.waiting.by_number().items() <= whole.waiting.by_number().items()
