"""A reader without a channel gets all messages from the first one on, whatever is dropped while nsqd makes the answer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsqd_py.diskqueue.compaction import Compaction
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.reading import Piece
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, batches_in
from tests.support.examples import examples
from tests.unit.fakes import make_batch, messages_of
from tests.unit.log_bench import TOPIC, append_to, clear

FIRST_ID = 1000
BATCH = 3
FILE_BYTES = FILE_HEADER_BYTES + 2 * (RECORD_HEADER_BYTES + BATCH * (4 + 40))
FILE_MESSAGES = 2 * BATCH
FILES = 6
DROP, COMPACT, APPEND = "drop", "compact", "append"

# In each pause of a read, some of these are done to a file, or to the end of the log.
happenings = st.tuples(st.sampled_from((DROP, COMPACT, APPEND)), st.integers(0, FILES - 1))
pauses = st.lists(st.lists(happenings, max_size=3), max_size=12)


def body_of(seq: int) -> bytes:
    return b"%040d" % seq


class Reading:
    """A log that is read while files of it go.

    gone  the numbers that were dropped so far
    """

    def __init__(self, directory: Path, schedule: list[list[tuple[str, int]]]) -> None:
        self.damage: list[str] = []
        self.log = TopicLog(directory, TOPIC, FILE_BYTES, self.damage.append)
        self.gone: set[int] = set()
        self._schedule = iter(schedule)
        for _ in range(FILES * FILE_MESSAGES // BATCH):
            self._append()

    def in_thread(self, work: Callable[[], Piece]) -> Piece:
        for what, number in next(self._schedule, []):
            closed = self.log.files[:-1]
            if what == APPEND:
                self._append()
            elif closed and what == DROP:
                self._drop(closed[number % len(closed)])
            elif closed:
                self._compact(closed[number % len(closed)])
        return work()

    def _append(self) -> None:
        seq = self.log.next_seq
        bodies = [body_of(number) for number in range(seq, seq + BATCH)]
        append_to(self.log, make_batch(seq, *bodies, base_id=FIRST_ID))

    def _drop(self, file: LogFile) -> None:
        self.gone.update(range(file.first_seq, file.end_seq))
        self.log.drop_unneeded(lambda low, _: low != file.first_seq)

    def _compact(self, file: LogFile) -> None:
        """Leave only the first message of a file."""
        living = [(file.first_seq, file.first_seq + 1)]
        self.gone.update(range(file.first_seq + 1, file.end_seq))
        compaction = Compaction(self.log, file, living, None)
        while not compaction.is_done:
            compaction.step()
        finish = compaction.settle(living)
        assert finish is not None
        finish()

    @staticmethod
    def id_of(seq: int) -> int:
        return FIRST_ID + seq


@settings(max_examples=examples(300), deadline=None)
@given(pauses, st.integers(1, 3000), st.integers(0, FILES * FILE_MESSAGES))
@example([[], [(DROP, 1), (DROP, 1)]], 3000, 0)  # two files go while the first one is read
@example(
    [[(DROP, 0), (APPEND, 0), (APPEND, 0), (APPEND, 0)]], 3000, 0
)  # and another one is written over the first
@example([[], [(COMPACT, 2)]], 3000, 0)
def test_what_is_missing_is_before_the_first_message(
    schedule: list[list[tuple[str, int]]], most_bytes: int, seq: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        reading = Reading(Path(name), schedule)
        log = reading.log
        while seq < log.next_seq:
            retained = log.read_retained(seq, most_bytes, reading.in_thread)
            found = dict(messages_of(list(batches_in(retained.encode(), 0))))
            first_seq = retained.first_seq
            there = range(first_seq, retained.next_seq)
            assert [found.get(number) for number in there] == [body_of(number) for number in there]
            # Files before a compacted one are left out.
            assert reading.gone.issuperset(range(max(seq, log.earliest_seq), first_seq))
            assert retained.before_id == reading.id_of(first_seq) - 1
            assert retained.next_seq > seq
            assert not retained.damaged_bytes
            seq = retained.next_seq
        assert not reading.damage
        clear(Path(name))


def test_what_is_missing_behind_an_id_has_a_number(tmp_path: Path) -> None:
    """Files in the middle are dropped at once, if nothing in them is needed."""
    reading = Reading(tmp_path, [[(DROP, 1), (DROP, 1)]])
    log = reading.log
    reading.in_thread(lambda: Piece([], 0, []))
    behind = log.seq_after_id(reading.id_of(FILE_MESSAGES - 1))
    assert behind == 3 * FILE_MESSAGES
    assert log.hole_before(behind) == FILE_MESSAGES
    assert log.hole_before(2) == 2
    assert log.hole_before(behind + 1) == behind + 1
    clear(tmp_path)
