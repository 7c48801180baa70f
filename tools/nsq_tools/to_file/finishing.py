"""What is done with a file that gets no more messages: its place, its line in the manifest, the end of its claim.

Each step may be done again, so a kill between any two of them costs nothing: the next start takes the claim over
and goes on.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from google_crc32c import extend

from nsq_tools.to_file.claims import Claim, Facts, abandoned, new_token, side_path
from nsq_tools.to_file.compression import CODECS
from nsq_tools.to_file.formats import FORMATS
from nsq_tools.to_file.formats.format import Format, Survey
from nsq_tools.to_file.manifest import Entry, Manifest
from nsq_tools.to_file.placing import Make, let_go, make_directories, place
from nsq_tools.to_file.portions import Tally

_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Contents:
    """What is known of a file. `checksum`: crc32c of `size_bytes` from `offset` on."""

    tally: Tally
    offset: int
    size_bytes: int
    checksum: int | None
    is_repaired: bool = False
    cut_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """A synced and closed file of which only the end is missing. `contents` is None when it has its place already."""

    claim: Claim
    contents: Contents | None

    @property
    def name(self) -> str:
        return self.claim.facts.work_name

    def finish(self) -> Entry:
        """Its line in the manifest. May block. Raises OSError: then it may be called again."""
        facts = self.claim.facts
        may_be_listed = facts.entry is not None or self.contents is None or self.contents.is_repaired
        entry = Entry(**facts.entry) if facts.entry is not None else self._place()
        if not self._let_go(entry):
            entry = self._place_again(entry)
        manifest = Manifest(Path(facts.output_dir))
        if not (may_be_listed and manifest.has(entry)):
            manifest.add(entry)
        self.claim.release()
        return entry

    def _place(self) -> Entry:
        """Give it its place in the output-dir, if it is not there."""
        if self._is_in_place():
            return self._entry(self.claim.facts.work_name)
        return self._note(self._entry(self._give_name()))

    def _place_again(self, entry: Entry) -> Entry:
        """An earlier run placed it, and meanwhile somebody removed it or put another file there."""
        entry = self._note(replace(entry, path=self._give_name()))
        if not self._let_go(entry):
            place = Path(self.claim.facts.output_dir) / entry.path
            raise OSError(errno.EBUSY, "is not the file that was just placed there", str(place))
        return entry

    def _is_in_place(self) -> bool:
        """True if the file is written where it belongs."""
        facts = self.claim.facts
        return FORMATS[facts.format].convert is None and self.claim.work_dir.samefile(facts.output_dir)

    def _give_name(self) -> str:
        facts = self.claim.facts
        return place(
            self.claim.work_path, Path(facts.output_dir), facts.name, facts.revision, self.claim.token,
            _converter(FORMATS[facts.format], facts),
        )  # fmt: skip

    def _note(self, entry: Entry) -> Entry:
        """From here on a kill leaves a claim that says where the file is."""
        self.claim.update(replace(self.claim.facts, entry=asdict(entry)))
        return entry

    def _let_go(self, entry: Entry) -> bool:
        """False where the placed file cannot be shown to hold what was written."""
        output_dir = Path(self.claim.facts.output_dir)
        return let_go(self.claim.work_path, output_dir, entry.path, self.claim.token, partial(_holds, entry))

    def _entry(self, name: str) -> Entry:
        facts, contents = self.claim.facts, self._contents(name)
        return Entry(
            path=name,
            topic=facts.topic,
            channel=facts.channel,
            format=facts.format,
            compress=facts.compress,
            messages=contents.tally.messages,
            first_timestamp=contents.tally.first_timestamp_ns,
            last_timestamp=contents.tally.last_timestamp_ns,
            offset=contents.offset,
            bytes=contents.size_bytes,
            crc32c=None if contents.checksum is None else f"{contents.checksum:08x}",
            repaired=contents.is_repaired,
            cut_bytes=contents.cut_bytes,
            closed=time.time_ns(),
        )

    def _contents(self, name: str) -> Contents:
        """With the size and checksum of the file that was made, where another one was written."""
        contents, facts = self.contents, self.claim.facts
        assert contents is not None  # or the claim has the entry
        if FORMATS[facts.format].convert is None:
            return contents
        with (Path(facts.output_dir) / name).open("rb") as file:
            return replace(contents, size_bytes=os.fstat(file.fileno()).st_size, checksum=checksum_of(file))


def checksum_of(file: BinaryIO) -> int:
    """crc32c of what follows in it. Raises OSError."""
    checksum = 0
    while data := file.read(_READ_BYTES):
        checksum = extend(checksum, data)
    return checksum


def _holds(entry: Entry, path: Path) -> bool:
    """True if the file has exactly the bytes of the entry, by its size and checksum. Raises OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return (entry.offset, entry.bytes, entry.crc32c) == (0, size, f"{checksum_of(file):08x}")


def _converter(form: Format, facts: Facts) -> Make | None:
    return None if form.convert is None else partial(_convert, form, facts.compress)


def _convert(form: Format, codec_name: str, source: Path, target: Path) -> None:
    assert form.convert is not None
    form.convert(source, target, codec_name)


def left_behind(*directories: Path) -> Iterator[Claim]:
    """What runs that ended without finishing wrote in these directories. Raises OSError."""
    for directory in dict.fromkeys(directory.resolve() for directory in directories):
        yield from abandoned(directory)


def repair(claim: Claim) -> FinishedFile | None:
    """Its file, readable to its end, with what it holds; None where there is no message in it, or it is in use.

    May block for long. Raises OSError: then the claim stays for the next start.
    """
    if claim.facts.entry is not None:
        return FinishedFile(claim, None)
    path = claim.work_path
    try:
        with path.open("r+b") as file:
            contents = _mended(claim, file)
            if contents.tally.messages or claim.facts.is_shared:
                return FinishedFile(claim, contents)
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                path.unlink()  # while it is locked: nobody has begun to write to it
    except FileNotFoundError:
        claim.release()
        return None
    except BlockingIOError:  # locked by who writes to it: the claim that is gone never got this name
        claim.release()
        return None
    claim.release()
    return None


def _mended(claim: Claim, file: BinaryIO) -> Contents:
    """Raises OSError, and BlockingIOError where another process writes to it."""
    facts = claim.facts
    fcntl.flock(file, fcntl.LOCK_EX | (0 if facts.is_shared else fcntl.LOCK_NB))
    size = os.fstat(file.fileno()).st_size
    survey = _survey(claim, file, size)
    if survey.end < size:
        os.ftruncate(file.fileno(), survey.end)
    os.fsync(file.fileno())
    file.seek(facts.offset)
    return Contents(
        survey.tally,
        facts.offset,
        survey.end - facts.offset,
        checksum_of(file),
        is_repaired=True,
        cut_bytes=size - survey.end,
    )


def _survey(claim: Claim, file: BinaryIO, size: int) -> Survey:
    facts = claim.facts
    if size <= facts.offset:
        return Survey(size)
    form, codec = FORMATS[facts.format], CODECS[facts.compress]
    with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
        return form.survey(data, codec, facts.offset)


def check_writable(directory: Path) -> None:
    """Makes the directory where it is missing. Raises OSError where no file can be made in it."""
    make_directories(directory)
    probe = side_path(directory, new_token(), ".probe")
    probe.touch(exist_ok=False)
    probe.unlink()
