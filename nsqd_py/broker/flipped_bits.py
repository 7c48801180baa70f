"""Corrects small files of which one bit has flipped, by their checksums."""

from __future__ import annotations

from pathlib import Path

from google_crc32c import extend

from nsqd_py.broker.metadata import AFTER_CHECKSUM, BEGIN_BYTES, begin_of, without_checksum
from nsqd_py.broker.state_files import METADATA_FILE, damaged_files
from nsqd_py.diskqueue.files.log_file import replace_file
from nsqd_py.runtime.one_bit import corrected, differs_by_a_bit
from nsqd_py.runtime.private_files import read_bytes

_FIRST_LINE_BYTES = 9  # of a file with a checksum


def mend_files(directory: Path) -> list[str]:
    """Correct the files of which one bit has flipped; return a sentence about each damaged one. Raises OSError."""
    sentences = []
    for name in [*damaged_files(directory), METADATA_FILE]:
        path = directory / name
        try:
            data = read_bytes(path)
        except FileNotFoundError:
            continue
        if name == METADATA_FILE:
            content = _metadata_without_flip(data)
        else:
            content = _checked_without_flip(data)
        if content is not None:
            replace_file(path, content)
            sentences.append(f"{name} was damaged: one bit had flipped, which its checksum has corrected")
        elif name != METADATA_FILE:
            sentences.append(f"{name} is damaged: its checksum is wrong; nsqd starts without it")
    return sentences


def _checked_without_flip(data: bytes) -> bytes | None:
    """Return the content of a damaged file with a checksum in its first line; None if more than a bit is wrong."""
    first, content = data[:_FIRST_LINE_BYTES], data[_FIRST_LINE_BYTES:]
    right = b"%08x\n" % extend(0, content)
    return _without_flip(first, content, right, first)


def _metadata_without_flip(data: bytes) -> bytes | None:
    """Return the content of a damaged `nsqd.dat`; None if it is not damaged, or if more than a bit is wrong."""
    begin, content = data[:BEGIN_BYTES], data[BEGIN_BYTES:]
    right = begin_of(content)
    if begin == right:
        return None
    checksum = begin.removeprefix(without_checksum(right)).removesuffix(AFTER_CHECKSUM.encode())
    return _without_flip(begin, content, right, checksum)


def _without_flip(begin: bytes, content: bytes, right: bytes, checksum: bytes) -> bytes | None:
    """Return `begin` and `content` with one bit corrected; None if more is wrong. `right` is how this content begins."""
    if differs_by_a_bit(begin, right):
        return right + content
    try:
        found = corrected(content, int(checksum, 16))
    except ValueError:
        return None
    if found is not None:
        return begin + found
    return None
