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

from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.errors import NsqdError
from nsqd_py.objects.calls import Missing, Objects, StoreRefused
from nsqd_py.objects.opening import open_objects
from nsqd_py.store.image import StoreImage, round_sizes
from nsqd_py.store.layout import HEAD_NAME, BadObject, Head, StoredFile, missing_text, round_name
from nsqd_py.store.log_bytes import has_bytes_of, read_object, salt_of
from nsqd_py.store.ownership import Claims
from nsqd_py.store.reading import HeadMoved, StateReader
from nsqd_py.store.rounds import decode

# Of a damaged head: no round has a later one.
_UNKNOWN_EPOCH = 1 << 63


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
    try:
        for _ in read_object(objects, file):
            yield None
    except Missing:
        yield missing_text(file.name)
    except BadObject as error:
        yield str(error)
    else:
        yield ""


def unreadable_text(name: str, error: NsqdError) -> str:
    """Return a sentence about an object that the store refuses to give."""
    return f"{name} cannot be read: {str(error).removeprefix(f'{name}: ')}"


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
    ranges   numbers of the messages that its undamaged log files have, by topic; none if it is not that of the data path
    """

    url: str
    epoch: int = 0
    rounds: int = 0
    files: int = 0
    size_bytes: int = 0
    damaged: list[DamagedObject] = field(default_factory=list)
    problem: str = ""
    ranges: dict[str, list[Range]] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        return not self.damaged and not self.problem

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["ranges"]
        return fields | {"is_well": self.is_well}

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
    while True:
        report = StoreReport(url)
        try:
            _Check(open_objects(url, endpoint), Claims(directory), report).run()
        except HeadMoved:  # an nsqd writes it
            continue
        except (NsqdError, ValueError) as error:
            report.problem = str(error)
        return report


@dataclass(eq=False, repr=False)
class _Check:
    """Reads one store, and adds what it finds to `_report`."""

    _objects: Objects
    _claims: Claims
    _report: StoreReport
    _is_mine: bool = False
    _head_data: bytes = b""

    def run(self) -> None:
        """Raises HeadMoved, after which all must be read again, BadObject and the errors of `Objects`."""
        sizes = round_sizes(self._objects)
        head = self._read_head()
        known = head or Head("", _UNKNOWN_EPOCH, "", "", min(sizes, default=1))
        reader = StateReader(self._objects, known, self._check_same, self._note_round, None)
        reader.read()
        image = reader.image
        first = max(1, image.base or known.base)
        needed = [number for number in sizes if first <= number < image.next_number]
        self._report.rounds = len(needed)
        self._report.size_bytes = sum(sizes[number] for number in needed)
        if image.epoch > known.epoch:
            self._note_earlier(known, image)
        if head is not None and image.base < head.base:
            self._note(round_name(head.base), "the base that head.json names is not complete", self._remedy())
        for file in image.all_files():
            self._check_file(file)

    def _read_head(self) -> Head | None:
        """Return the head, corrected if that is possible; None if it is not."""
        try:
            self._head_data, _ = self._objects.get(HEAD_NAME)
        except Missing:
            raise BadObject(f'{HEAD_NAME} is missing; docs/store.md, "When head.json is missing"') from None
        head: Head | None
        try:
            head = Head.decode(self._head_data)
        except BadObject as error:
            self._is_mine = bool(self._claims.store)
            self._note(HEAD_NAME, str(error), f"{self._remedy()}, or one with --restore-from")
            head = Head.corrected(self._head_data)
        if head is not None:
            self._report.epoch = head.epoch
            self._is_mine = self._claims.is_mine(head)
        return head

    def _check_same(self) -> None:
        if self._objects.get(HEAD_NAME)[0] != self._head_data:
            raise HeadMoved(f"the head of {self._objects!r} was moved")

    def _note_round(self, error: BadObject) -> None:
        if error.name != HEAD_NAME:  # `_note_earlier` says more
            self._note(error.name, str(error), self._remedy())

    def _check_file(self, file: StoredFile) -> None:
        self._report.files += 1
        self._report.size_bytes += file.size_bytes
        try:
            damage = next(found for found in check_file(self._objects, file) if found is not None)
        except StoreRefused as error:  # as an object in an archive class; the others are checked
            damage = unreadable_text(file.name, error)
        if not damage:
            if self._is_mine:
                self._report.ranges.setdefault(file.topic, []).append((file.first_seq, file.end_seq))
            return
        remedy = f"only the store had it: messages {file.first_seq} to {file.end_seq - 1}"
        if self._is_mine and self._is_on_disk(file):
            remedy = f"nsqd puts it again from {file.local_name}: start it"
        self._note(file.name, damage, remedy)

    def _is_on_disk(self, file: StoredFile) -> bool:
        path = self._claims.directory / file.local_name
        with suppress(FileNotFoundError):
            return salt_of(path) == file.salt and has_bytes_of(path, file)
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
