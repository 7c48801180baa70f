"""Reading a log in chunks of about 1 MiB, which readers at the same place share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.damage import DamageBook
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.memory_budget import MemoryBudget
from nsqd_py.diskqueue.records import Damaged, Incomplete, decode
from nsqd_py.diskqueue.recovery import find_record

READ_BYTES = 1024 * 1024
_SMALL_READ_BYTES = 64 * 1024
_SHARED_CHUNKS = 4


class ChunkReader:
    """Remembers the last few chunks. What is damaged is passed over and reported.

    read_file   reads bytes of a file, as `LogFile.read` does; may raise BlockingIOError: try again later
    budget      counts what is remembered, where there is one
    held_bytes  so much memory that takes
    """

    __slots__ = ("_chunks", "_damage", "_sizes", "budget", "held_bytes", "read_file")

    def __init__(self, damage: DamageBook) -> None:
        self._chunks: OrderedDict[int, list[Batch]] = OrderedDict()
        self._damage = damage
        self.read_file: Callable[[LogFile, int, int], bytes] = LogFile.read
        self._sizes: dict[int, int] = {}
        self.budget: MemoryBudget | None = None
        self.held_bytes = 0

    def remembered(self, seq: int) -> list[Batch] | None:
        """A chunk with this number in it."""
        for chunk in reversed(self._chunks.values()):
            if chunk[0].first_seq <= seq < chunk[-1].end_seq:
                return chunk
        return None

    def forget(self) -> None:
        self._chunks.clear()
        self._sizes.clear()
        self._count()

    def let_go(self, most_bytes: int) -> None:
        """Forget the oldest chunks until at most `most_bytes` are held."""
        left_bytes = self.held_bytes
        while self._chunks and left_bytes > most_bytes:
            first_seq, _ = self._chunks.popitem(last=False)
            left_bytes -= self._sizes.pop(first_seq)
        self._count()

    def _count(self) -> None:
        held_bytes = sum(self._sizes.values())
        change_bytes, self.held_bytes = held_bytes - self.held_bytes, held_bytes
        if self.budget is not None and change_bytes:
            self.budget.note(self, change_bytes)

    def read(self, file: LogFile, seq: int) -> list[Batch]:
        """Batches of one file from the one that holds `seq`, or the first behind it. Empty at its end.

        Raises OSError.
        """
        chunk = self._read(file, seq)
        if chunk:
            self._chunks[chunk[0].first_seq] = chunk
            self._sizes[chunk[0].first_seq] = sum(batch.memory_bytes for batch in chunk)
            while len(self._chunks) > _SHARED_CHUNKS:
                first_seq, _ = self._chunks.popitem(last=False)
                del self._sizes[first_seq]
            self._count()
        return chunk

    def _read(self, file: LogFile, seq: int) -> list[Batch]:
        offset = file.offset_before(seq)
        wanted = READ_BYTES
        chunk: list[Batch] = []
        while offset < file.end_offset and not chunk:
            try:
                data = self.read_file(file, offset, wanted)
            except BlockingIOError:  # a thread reads it
                raise
            except OSError:
                if wanted < READ_BYTES:
                    raise
                wanted = _SMALL_READ_BYTES  # what is before the bad place
                continue
            if not data:  # somebody cut the file
                self._damage.report(file, offset, file.end_offset)
                break
            position = 0
            try:
                while position < len(data):
                    batch, position = decode(data, position, file.header.salt)
                    if batch.end_seq > seq:
                        chunk.append(batch)
            except Incomplete as incomplete:
                if offset + position + incomplete.needed > file.end_offset:  # its length is what is damaged
                    if not chunk:
                        position = self._pass_damage(file, offset, position)
                elif position == 0:
                    if incomplete.needed <= wanted and not self.read_file(file, offset + len(data), 1):
                        self._damage.report(file, offset, file.end_offset)  # somebody cut the file
                        break
                    wanted = incomplete.needed
            except Damaged:
                if not chunk:
                    position = self._pass_damage(file, offset, position)
            offset += position
        if chunk:
            file.note(chunk[-1].end_seq, offset)
        return chunk

    def _pass_damage(self, file: LogFile, offset: int, position: int) -> int:
        """Where the next good record begins behind a damaged one, relative to `offset`."""
        data = self.read_file(file, offset, file.end_offset - offset)
        found = find_record(data, position + 1, file.header.salt)
        after = found if found is not None else len(data)
        self._damage.report(file, offset + position, offset + after)
        return after
