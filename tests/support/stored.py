"""A store of nsqd, written from the files in a data path: what a reader finds when nsqd has stored all of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from google_crc32c import extend

from nsqd_py.diskqueue.files.log_file import log_file_name, parse_log_file_name
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epoch, Epochs, decode_epochs_of_logs
from nsqd_py.diskqueue.messages import record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader, RecordHeader, encode_record
from nsqd_py.feed.pieces import Begin, Commit, Part, Piece, Remove, TopicListing, TopicsListed, Write
from nsqd_py.objects.calls import Objects
from nsqd_py.objects.opening import open_objects
from nsqd_py.protocol.batch import Batch
from nsqd_py.runtime.documents import load_member_json
from nsqd_py.store.layout import HEAD_NAME, Head, StoredFile
from nsqd_py.store.rounds import BASE, MARK, RoundObject, files_frame, piece_frame

NODE = "127.0.0.1:4150"
WRITER = "00112233445566ff"
STORE = "feedfacefeedface"
SALT = 0x5EED
PER_RECORD = 3


class StoreOfFiles:
    """A store that gets the files of a data path: log files that do not grow any more as objects, all else in rounds."""

    def __init__(self, url: str, node: str = NODE, epoch: int = 1) -> None:
        self.objects: Objects = open_objects(url)
        self.url = url
        self.node = node
        self._head = Head(STORE, epoch, WRITER, node)
        self._number = 0
        self._files: dict[str, StoredFile] = {}  # by name in the data path
        self._ends: dict[str, int] = {}  # of what rounds have

    def base(self, data_path: Path, *, stores_prefixes: bool = False) -> None:
        """Put a base with everything: sealed files as objects, with `stores_prefixes` the beginnings of others too."""
        self._ends.clear()
        logs = dict(_logs_in(data_path))
        added = []
        for name, (path, is_sealed) in logs.items():
            known = self._files.get(name)
            if (is_sealed or stores_prefixes) and (known is None or known.size_bytes < _end_of(path)):
                added.append(self._put(name, path, is_sealed=is_sealed))
        removed = [self._files[one.local_name].name for one in added if one.local_name in self._files]
        self._files |= {one.local_name: one for one in added}
        frames = [files_frame(list(self._files.values()), removed)]
        frames += [piece_frame(listing) for listing in self._listings(data_path, logs)]
        frames += [piece_frame(TopicsListed())]
        frames += map(piece_frame, self._news(data_path, logs))
        number = self._number + 1
        self._round(BASE | MARK, frames)
        self._head = Head(STORE, self._head.epoch, WRITER, self._head.node, number)
        self.objects.swap(HEAD_NAME, self._head.encode(), self._version())

    def round(self, data_path: Path, *, seals: bool = False, stores_prefixes: bool = False) -> None:
        """Put what is new since the last one; with `seals`, files that do not grow any more become objects."""
        logs = dict(_logs_in(data_path))
        frames = list(map(piece_frame, self._news(data_path, logs)))
        if seals or stores_prefixes:
            added = [
                self._put(name, path, is_sealed=is_sealed)
                for name, (path, is_sealed) in logs.items()
                if (is_sealed or stores_prefixes)
                and not (name in self._files and self._files[name].is_sealed)
            ]
            removed = [self._files[one.local_name].name for one in added if one.local_name in self._files]
            self._files |= {one.local_name: one for one in added}
            frames.append(files_frame(added, removed))
        self._round(MARK, frames)

    def replace(self, path: Path, *removed: str) -> None:
        """Let a compaction replace a log file that is not stored by this one, and remove others."""
        name, data = path.name, path.read_bytes()
        pieces = [Begin(name), Part(name, 0, data), Commit(name), *map(Remove, removed)]
        self._ends[name] = len(data)
        self._round(MARK, map(piece_frame, pieces))

    def move(self, node: str) -> None:
        """Let an nsqd at another address have the store."""
        self.node = node
        self._head = replace(self._head, node=node)
        self.objects.swap(HEAD_NAME, self._head.encode(), self.objects.get(HEAD_NAME)[1])

    def drop(self, *names: str) -> None:
        """Let retention drop log files, by their names in the data path."""
        gone = [self._files.pop(name).name for name in names]
        self._round(MARK, [files_frame((), gone)])
        self.objects.delete(gone)

    def files(self) -> list[StoredFile]:
        return sorted(self._files.values())

    def _version(self) -> object:
        return self.objects.get(HEAD_NAME)[1] if self._head.base > 1 else None

    def _round(self, flags: int, frames: Iterable[bytes]) -> None:
        self._number += 1
        one = RoundObject(self._number, self._head.epoch, WRITER, time.time_ns(), flags, b"".join(frames))
        self.objects.create(one.name, one.encode())

    def _put(self, name: str, path: Path, *, is_sealed: bool) -> StoredFile:
        parsed = parse_log_file_name(name)
        assert parsed is not None
        data = path.read_bytes()[: _end_of(path)]
        salt = FileHeader.decode(data).salt
        headers = _headers(data)
        last = headers[-1]
        times_ns = [header.timestamp_ns for header in headers]
        ids = headers[0].base_id, last.base_id + last.count - 1
        crc = extend(0, data)
        bounds = (last.end_seq, *ids, min(times_ns), max(times_ns))
        one = StoredFile(*parsed, salt, len(data), crc, is_sealed, *bounds, self._head.epoch)
        self.objects.put_file(one.name, path, len(data))
        return one

    def _listings(self, data_path: Path, logs: dict[str, tuple[Path, bool]]) -> Iterator[TopicListing]:
        epochs = _epochs_in(data_path)
        offsets: dict[str, dict[str, int]] = {}
        for name in logs:
            parsed = parse_log_file_name(name)
            assert parsed is not None
            offset = self._files[name].size_bytes if name in self._files else 0
            offsets.setdefault(parsed[0], {})[name] = self._ends[name] = offset
        for topic, files in offsets.items():
            yield TopicListing(topic, epochs.get(topic, (Epoch(1, 0),)), 0, files)

    def _news(self, data_path: Path, logs: dict[str, tuple[Path, bool]]) -> Iterator[Piece]:
        for name, (path, _) in logs.items():
            begin, end = self._ends.get(name, 0), _end_of(path)
            if begin < end:
                yield Write(name, begin, path.read_bytes()[begin:end])
            self._ends[name] = end
        if (data_path / EPOCHS_FILE).exists():
            yield Write(EPOCHS_FILE, 0, (data_path / EPOCHS_FILE).read_bytes())


class GrowingLog:
    """A log file in a data path, which grows by records of three messages."""

    def __init__(self, data_path: Path, first_seq: int = 0, topic: str = "orders", salt: int = SALT) -> None:
        data_path.mkdir(exist_ok=True)
        self.path = data_path / log_file_name(topic, first_seq)
        self.next_seq = first_seq
        self.path.write_bytes(FileHeader(salt + first_seq, first_seq, 0).encode())

    def grow(self, records: int, step: int = 1) -> None:
        """Add records; with a larger step, as a compaction leaves out others."""
        data = self.path.read_bytes()
        salt = FileHeader.decode(data).salt
        for _ in range(0, records, step):
            seq = self.next_seq
            batch = Batch(seq, 1000 + seq, 10**18 + seq, 0, PER_RECORD, 5, b"\0\0\0\1x" * PER_RECORD)
            data += encode_record(batch, salt)
            self.next_seq += PER_RECORD * step
        self.path.write_bytes(data)


def a_compacted_log(store: StoreOfFiles, directory: Path) -> GrowingLog:
    """Put a log of 48 messages, of which a compaction has made one sparse file of the first three; return that.

    Only the second one was stored before. The sparse file has every second record.
    """
    names = []
    for first_seq in (0, 12, 24, 36):
        log = GrowingLog(directory / "data", first_seq)
        log.grow(4)
        names.append(log.path.name)
    store.base(directory / "data")
    store.drop(names[0], names[2])
    sparse = GrowingLog(directory / "compacted", salt=SALT + 1)
    sparse.grow(12, step=2)
    store.replace(sparse.path, *names[1:3])
    return sparse


def _logs_in(data_path: Path) -> Iterator[tuple[str, tuple[Path, bool]]]:
    """Yield the log files by name; True if a later one of the topic follows."""
    names = sorted(path.name for path in data_path.glob("*.log"))
    for name, following in zip(names, [*names[1:], ""], strict=True):
        own, other = parse_log_file_name(name), parse_log_file_name(following)
        assert own is not None
        yield name, (data_path / name, other is not None and other[0] == own[0])


def _headers(data: bytes) -> list[RecordHeader]:
    salt = FileHeader.decode(data).salt
    return [header for _, header in record_positions(data, FILE_HEADER_BYTES, salt)]


def _end_of(path: Path) -> int:
    data = path.read_bytes()
    salt = FileHeader.decode(data).salt
    ends = [at + header.record_bytes for at, header in record_positions(data, FILE_HEADER_BYTES, salt)]
    return max(ends, default=FILE_HEADER_BYTES)


def _epochs_in(data_path: Path) -> dict[str, Epochs]:
    path = data_path / EPOCHS_FILE
    if not path.exists():
        return {}
    fields = load_member_json(path.read_bytes().partition(b"\n")[2])
    return decode_epochs_of_logs(fields).logs
