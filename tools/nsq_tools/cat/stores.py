"""The stores of nsqd (`--store`), read in place: what is selected of them, object by object. Blocks."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

from nsq_tools.cat.selection import Selection
from nsqd_py.diskqueue.records import Data
from nsqd_py.errors import NsqdError
from nsqd_py.objects.calls import Missing, Objects, StoreError, StoreRefused
from nsqd_py.objects.opening import open_objects
from nsqd_py.store.contents import Gap, LogPart, incomplete_base, parts_of, topics_of
from nsqd_py.store.image import StoreReader
from nsqd_py.store.layout import ROUNDS
from nsqd_py.stores.files import File, FileWindow

# Requests to a store cost more than bytes.
_READ_BYTES = 8 * 1024 * 1024


class StoredMessages:
    """The messages of one store. What is missing or damaged in it is reported, and reading goes on behind it.

    node  the address of the nsqd that writes it
    """

    def __init__(self, name: str, on_damage: Callable[[str], None]) -> None:
        self._on_damage = on_damage
        self._objects: Objects | None = None
        self.node = ""
        try:
            if "://" in name:
                url = name
            else:
                url = Path(name).absolute().as_uri()
            self._objects = open_objects(url)
            self._reader = StoreReader(self._objects, lambda error: on_damage(str(error)))
            self._reader.refresh()
        except (NsqdError, ValueError) as error:
            on_damage(str(error))
            return
        head = self._reader.head
        assert head is not None
        self.node = head.node
        text = incomplete_base(self._reader)
        if text:
            on_damage(text)

    def parts(self, selection: Selection) -> Iterator[tuple[str, LogPart]]:
        """Yield the parts that may have selected messages, in order, with the names of their objects or files."""
        if not self.node:
            return
        image = self._reader.image
        for topic in filter(selection.has_topic, topics_of(image)):
            for part in parts_of(image, topic):
                if isinstance(part, Gap):
                    self._on_damage(str(part))
                elif selection.overlaps(part.first_ns, part.last_ns):
                    yield part.stored.name if part.stored else f"{part.local_name} in {ROUNDS}", part

    def data_of(self, part: LogPart) -> Data:
        """Return a part as a file of records. Reading it raises OSError."""
        if part.stored is None:
            return part.data
        assert self._objects is not None
        return FileWindow(_StoredObject(self._objects, part.stored.name, part.size_bytes))


class _StoredObject(File):
    """An object, read in large pieces."""

    def __init__(self, objects: Objects, name: str, size_bytes: int) -> None:
        self._objects = objects
        self._name = name
        self._size_bytes = size_bytes
        self._start = 0
        self._piece = b""

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read_at(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self._size_bytes)
        if offset < self._start or end > self._start + len(self._piece):
            try:
                last = min(offset + max(size, _READ_BYTES), self._size_bytes)
                self._piece = self._objects.get_range(self._name, offset, last)
            except (StoreError, StoreRefused, Missing) as error:
                raise OSError(errno.EIO, str(error)) from error
            self._start = offset
        return self._piece[offset - self._start : end - self._start]

    def close(self) -> None:
        self._piece = b""
