"""Files that an earlier run left behind: what is torn at their end is cut off, and they are finished like others.

What is torn was never synced as a whole, so it was never finished, and nsqd hands its messages out again. Nothing
that can be read is cut.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nsq_tools.to_file.claims import Claim, abandoned, new_token, side_path
from nsq_tools.to_file.compression import CODECS
from nsq_tools.to_file.finishing import Contents, FinishedFile, checksum_of
from nsq_tools.to_file.formats.format import Survey
from nsq_tools.to_file.formats.table import FORMATS
from nsq_tools.to_file.placing import make_directories


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
