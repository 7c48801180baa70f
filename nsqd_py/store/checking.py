"""Checks the objects of a store against the checksums that their formats have: for the scrub, and for `--check-data`.

What a store needs is its head, the rounds from its base on, and the log files that these name. Rounds before the base are kept
for an hour, and takeovers for ever, for their names: their content is not needed any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from google_crc32c import extend

from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.records import Damaged
from nsqd_py.errors import NsqdError
from nsqd_py.objects.calls import Missing, Objects
from nsqd_py.objects.opening import open_objects
from nsqd_py.store.image import StoreImage, take_round
from nsqd_py.store.layout import HEAD_NAME, ROUNDS, BadObject, Head, StoredFile, parse_round_name, round_name
from nsqd_py.store.ownership import Claims
from nsqd_py.store.rounds import decode

# A request for a part of a log file reads so much.
PIECE_BYTES = 4 * 1024 * 1024


# ---- one object


def round_damage(number: int, data: bytes) -> str:
    """Return what is wrong with a round; "" if nothing is."""
    try:
        decode(number, data)
    except BadObject as error:
        return str(error)
    return ""


def check_file(objects: Objects, file: StoredFile) -> Iterator[str | None]:
    """Read the object of a log file: yield None after each request, then what is wrong with it; "" if nothing is.

    Blocks. Raises StoreError and StoreRefused.
    """
    crc = 0
    for start in range(0, file.size_bytes, PIECE_BYTES):
        end = min(start + PIECE_BYTES, file.size_bytes)
        try:
            data = objects.get_range(file.name, start, end)
        except Missing:
            yield f"{file.name} is missing: it was deleted or lost"
            return
        if len(data) != end - start:
            yield f"{file.name} is damaged: it ends at {start + len(data)}"
            return
        crc = extend(crc, data)
        yield None
    yield "" if crc == file.crc else f"{file.name} is damaged: its checksum is wrong"


def has_bytes_of(path: Path, file: StoredFile) -> bool:
    """True if a local log file begins with the bytes that the object has, or must have. Raises OSError."""
    crc = 0
    with open(path, "rb") as opened:
        for start in range(0, file.size_bytes, PIECE_BYTES):
            crc = extend(crc, opened.read(min(PIECE_BYTES, file.size_bytes - start)))
    return crc == file.crc


# ---- a store, for --check-data


@dataclass(frozen=True, slots=True)
class DamagedObject:
    """An object that is damaged or missing, with a sentence about that, and one about what to do."""

    name: str
    damage: str
    remedy: str


@dataclass(slots=True)
class StoreReport:
    """What a check of a store has found.

    epoch    of the head; 0 if that is damaged
    rounds   that the state needs, and were read
    files    that the state needs, and were read
    problem  why the store could not be checked; "" if it was
    """

    url: str
    epoch: int = 0
    rounds: int = 0
    files: int = 0
    size_bytes: int = 0
    damaged: list[DamagedObject] = field(default_factory=list)
    problem: str = ""

    @property
    def is_well(self) -> bool:
        return not self.damaged and not self.problem

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"is_well": self.is_well}

    def as_text(self) -> Iterator[str]:
        yield ""
        if self.problem:
            yield f"{self.url} could not be checked: {self.problem}"
            return
        counts = f"{self.rounds:,} rounds and {self.files:,} log files, {self.size_bytes:,} bytes"
        yield f"{self.url}: epoch {self.epoch}, {counts}"
        if self.damaged:
            yield ""
            yield "damage in the store:"
            yield from (f"  {each.damage}; {each.remedy}" for each in self.damaged)
        yield ""
        yield "the store is well" if self.is_well else f"{len(self.damaged)} damaged objects in the store"


def check_store(url: str, endpoint: str, directory: Path) -> StoreReport:
    """Read what a store needs; change nothing. Blocks. Raises OSError.

    directory  the data path, whose nsqd repairs the store when it runs
    """
    report = StoreReport(url)
    try:
        _Check(open_objects(url, endpoint), directory, report).run()
    except (NsqdError, ValueError) as error:
        report.problem = str(error)
    return report


class _Check:
    """Reads one store, and adds what it finds to `report`."""

    def __init__(self, objects: Objects, directory: Path, report: StoreReport) -> None:
        self._objects = objects
        self._directory = directory
        self._report = report
        self._claims = Claims(directory)
        self._is_mine = False

    def run(self) -> None:
        listed = [(parse_round_name(each.name) or 0, each.size_bytes) for each in self._objects.list(ROUNDS)]
        head = self._read_head()
        base = head.base if head is not None else min((number for number, _ in listed), default=1)
        image = StoreImage(max(1, base))
        for number, size_bytes in sorted(listed):
            if number >= image.next_number:
                self._check_round(image, number, size_bytes)
        if head is not None and image.epoch > head.epoch:
            self._note_earlier(head, image)
        if head is not None and head.base and image.base < head.base:
            self._note(round_name(head.base), "the base that head.json names is not complete", self._remedy())
        for files in image.files.values():
            for file in files:
                self._check_file(file)

    def _read_head(self) -> Head | None:
        try:
            data, _ = self._objects.get(HEAD_NAME)
        except Missing:
            raise BadObject(f'{HEAD_NAME} is missing; docs/store.md, "When head.json is missing"') from None
        try:
            head = Head.decode(data)
        except BadObject as error:
            self._is_mine = bool(self._claims.store)
            self._note(HEAD_NAME, str(error), f"{self._remedy()}, or one with --restore-from")
            corrected = Head.corrected(data)
            if corrected is None:
                return None
            head = corrected
        self._report.epoch = head.epoch
        self._is_mine = self._claims.is_mine(head)
        return head

    def _check_round(self, image: StoreImage, number: int, size_bytes: int) -> None:
        if number > image.next_number:
            first = round_name(image.next_number)
            self._note(first, f"{first} is missing, and all up to {round_name(number)}", self._remedy())
            image.skip(number)
        self._report.rounds += 1
        self._report.size_bytes += size_bytes
        try:
            data, _ = self._objects.get(round_name(number))
        except Missing:
            self._note(round_name(number), f"{round_name(number)} is missing", self._remedy())
            image.skip()
            return
        take_round(
            image, number, data, lambda error: self._note(round_name(number), str(error), self._remedy())
        )

    def _check_file(self, file: StoredFile) -> None:
        self._report.files += 1
        self._report.size_bytes += file.size_bytes
        damage = next(found for found in check_file(self._objects, file) if found is not None)
        if not damage:
            return
        remedy = f"only the store had it: messages {file.first_seq} to {file.end_seq - 1}"
        if self._is_mine and self._is_on_disk(file):
            remedy = f"nsqd puts it again from {file.local_name}: start it"
        self._note(file.name, damage, remedy)

    def _is_on_disk(self, file: StoredFile) -> bool:
        path = self._directory / file.local_name
        with suppress(FileNotFoundError, Damaged):
            local = LogFile.open(path, 0)
            salt = local.salt
            local.close()
            return salt == file.salt and has_bytes_of(path, file)
        return False

    def _note_earlier(self, head: Head, image: StoreImage) -> None:
        last = round_name(image.next_number - 1)
        self._note(
            HEAD_NAME,
            f"{HEAD_NAME} has the epoch {head.epoch}, and {last} the epoch {image.epoch}: an earlier version of it was put back",
            "nsqd goes on from the rounds: start it on the data path that has written them, or with --restore-from",
        )

    def _remedy(self) -> str:
        if self._is_mine:
            return "nsqd writes it again from this data path: start it"
        return "the nsqd whose data path the store has writes it again"

    def _note(self, name: str, damage: str, remedy: str) -> None:
        self._report.damaged.append(DamagedObject(name, damage, remedy))
