"""Stores of nsqd (`--store`) as archives, read in place: their stored log files, and the tails that only rounds have.

The list of stored files has the numbers, ids and times of each, so that no file is opened which has nothing of a request.
A tail is a file of the rounds that it is in: `<store>/rounds/<first>-<last>/<name in a data path>`. These never change; the
writer removes them an hour after a newer base.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nsq_spark.archive.files import BytesFile
from nsq_spark.archive.splits import ArchiveError, FileInfo, Format, Gone
from nsqd_py.diskqueue.files.log_file import parse_log_file_name
from nsqd_py.diskqueue.journals.epochs import Epochs
from nsqd_py.errors import NsqdError
from nsqd_py.objects.calls import Listed, Missing, ReadableObjects, Version
from nsqd_py.store.contents import Gap, LogPart, incomplete_base, parts_of, tail_file, topics_of
from nsqd_py.store.image import StoreImage, StoreReader, read_rounds, take_round
from nsqd_py.store.layout import ROUNDS, BadObject, Head, round_name
from nsqd_py.stores.files import File

_TAIL = re.compile(
    rf"(?P<store>.+)/{ROUNDS}/(?P<first>[0-9a-f]{{16}})-(?P<last>[0-9a-f]{{16}})/(?P<name>[^/]+)", re.DOTALL
)
# The rounds that this process has read last: a task has many tails of the same ones.
_read: dict[tuple[str, int, int], StoreImage] = {}

# Opens the file with a path. Raises ArchiveError, and Gone if there is none.
Open = Callable[[str], File]
# Returns the names in a directory.
Names = Callable[[str], list[str]]


class StoredLog(NamedTuple):
    """Messages of a log that one file has.

    store   id of the store
    epochs  of the log, the last one last; none if they are not known
    """

    info: FileInfo
    part: LogPart
    store: str
    epochs: Epochs


class DamagedStore(ArchiveError):
    """Objects of a store are damaged or missing: it will be the same later."""


class StoreLogs:
    """The logs of one store. Methods raise ArchiveError.

    url  of the store, or its directory, without a slash at the end
    """

    def __init__(
        self, url: str, open_file: Open, names: Names, on_damage: Callable[[str], None] | None = None
    ) -> None:
        """`on_damage` is called with what is missing in the store, such as a damaged round; None makes it an error."""
        self.url = url
        self._on_damage = on_damage
        report = None if on_damage is None else lambda error: self._report(str(error))
        self._reader = StoreReader(_StoreObjects(url, open_file, names), report)
        self._logs: list[StoredLog] | None = None

    def refresh(self) -> None:
        """Read what is new: two requests if there is nothing."""
        logs = self._logs
        self._logs = None  # what was read before an error is new the next time
        with _errors_of(self.url):
            if not self._reader.refresh() and logs is not None:
                self._logs = logs
                return
        text = incomplete_base(self._reader)
        if text:
            self._report(text)

    def logs(self) -> list[StoredLog]:
        """Return the files with messages, those of a topic in order, as of the last `refresh`."""
        if self._logs is None:
            self._logs = list(self._listed())
        return self._logs

    def _listed(self) -> Iterator[StoredLog]:
        image = self._reader.image
        head = self._reader.head
        assert head is not None
        span = f"{max(1, image.base):016x}-{image.next_number - 1:016x}"
        for topic in topics_of(image):
            listing = image.topics.get(topic)
            epochs = listing.epochs if listing is not None else ()
            for part in parts_of(image, topic):
                if isinstance(part, Gap):
                    self._report(str(part))
                    continue
                if part.stored:
                    name = part.stored.name
                else:
                    name = f"{ROUNDS}/{span}/{part.local_name}"
                info = FileInfo(
                    f"{self.url}/{name}",
                    part.size_bytes,
                    part.last_ns,
                    Format.TOPIC_LOG,
                    topic=topic,
                    nsqd=head.node,
                    numbers=(part.first_seq, part.end_seq) if part.is_cut else None,
                )
                yield StoredLog(info, part, head.store, epochs)

    def _report(self, text: str) -> None:
        if self._on_damage is None:
            raise DamagedStore(f"{self.url}: {text}; --skip-damaged reads what is left of it")
        self._on_damage(f"{self.url}: {text}")


def is_head(data: bytes) -> bool:
    """True for the head of a store, as `head.json` has it."""
    try:
        Head.decode(data)
    except BadObject:
        return False
    return True


# ---- tails


def open_tail(path: str, open_file: Open) -> File | None:
    """Open a tail; None if the path is not one. Raises ArchiveError, and Gone if its rounds are not there any more."""
    match = _TAIL.fullmatch(path)
    parsed = parse_log_file_name(match["name"]) if match else None
    if match is None or parsed is None:
        return None
    image = _image(match["store"], int(match["first"], 16), int(match["last"], 16), open_file)
    for source in image.log_files(parsed[0]):
        if source.name == match["name"]:
            return BytesFile(tail_file(source))
    raise Gone(f"{path} is not in these rounds")


def _image(url: str, first: int, last: int, open_file: Open) -> StoreImage:
    """Return the state of a store after rounds `first` to `last`; damaged ones are left out, which the plan has reported."""
    key = (url, first, last)
    if key not in _read:
        objects = _StoreObjects(url, open_file)
        with _errors_of(url):
            image = _read_image(objects, first, last)
            is_complete = image.next_number > last and _is_there(objects, round_name(first))
        if not is_complete:
            raise Gone(f"rounds {first:x} to {last:x} of {url} are not there any more: read the store again")
        _read.clear()
        _read[key] = image
    return _read[key]


def _read_image(objects: ReadableObjects, first: int, last: int) -> StoreImage:
    image = StoreImage(first)
    while image.next_number <= last:
        for number, data in read_rounds(objects, image.next_number):
            take_round(image, number, data, _ignore)
            if number == last:
                break
        if not image.epoch:
            break
        if image.next_number <= last:
            image.skip()  # one that is missing, which the plan has reported
    return image


def _is_there(objects: ReadableObjects, name: str) -> bool:
    """True if an object was not deleted since; the writer deletes the first rounds with the others."""
    try:
        objects.get(name)
    except Missing:
        return False
    return True


def _ignore(error: BadObject) -> None:
    """The plan has reported it."""


# ---- objects


class _StoreObjects(ReadableObjects):
    """The objects of a store, read by what opens files of archives, with its settings and credentials."""

    def __init__(self, url: str, open_file: Open, names: Names = lambda directory: []) -> None:
        self._url = url
        self._open = open_file
        self._names = names

    def __repr__(self) -> str:
        return self._url

    def get(self, name: str) -> tuple[bytes, Version]:
        try:
            with self._open(f"{self._url}/{name}") as file:
                return file.read_at(0, file.size_bytes), None
        except Gone:
            raise Missing(f"{name} is missing") from None

    def list(self, prefix: str) -> Iterator[Listed]:
        for name in self._names(f"{self._url}/{prefix}"):
            yield Listed(f"{prefix}/{name}", 0)


@contextmanager
def _errors_of(url: str) -> Iterator[None]:
    """Raise the errors of a store, and of reading it, as ArchiveError."""
    try:
        yield
    except BadObject as error:
        raise DamagedStore(f"{url}: {error}") from error
    except (NsqdError, OSError) as error:
        raise ArchiveError(f"{url}: {error}") from error
