"""Finishing closed files, and files that an earlier run left unfinished.

A file is moved to its place, gets a line in the manifest, is uploaded and committed to a table if that was asked for, and
its claim is deleted. Every step can be repeated, so that after a kill between two steps the next start takes over the claim
and continues.

In a file of an earlier run, an incomplete end is removed first. It was never synced completely, so its messages were
not finished, and nsqd delivers them again. Nothing else is removed: damaged parts stay in the file and are reported. If
the file that is placed does not have all of the original, as after the conversion of a damaged file, the original is kept.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from google_crc32c import extend

from nsq_tools.to_file.destinations import commit, upload
from nsq_tools.to_file.formats import FORMATS, FileScan, Tally
from nsq_tools.to_file.options import HOST, HOSTNAME, PID, REV, SHORT_HOST, TOPIC
from nsq_tools.to_file.output import MANIFEST, Claim, ClaimDetails, Manifest, ManifestEntry, original_name, side_path
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.diskqueue.ranges import Range
from nsqd_py.runtime.private_files import open_file
from nsqd_py.stores.compression import CODECS
from nsqd_py.stores.directories import POINTERS


def host_identifier(given: str, hostname: str) -> str:
    """Return the value of <HOST>: `given` with its words replaced, or the host name up to its first dot."""
    short = hostname.partition(".")[0]
    return given.replace(SHORT_HOST, short).replace(HOSTNAME, hostname) if given else short


def filename_template(filename_format: str, topic: str, host: str, pid: int, *, has_revisions: bool) -> str:
    """Replace all words but <DATETIME> and, if files have revisions, <REV>."""
    if topic.startswith((".", MANIFEST, POINTERS)):  # such as `..`, or a claim's name: anybody may publish to these topics
        topic = f"%{ord(topic[0]):02X}{topic[1:]}"
    template = filename_format if has_revisions else filename_format.replace(REV, "")
    return template.replace(TOPIC, topic).replace(HOST, host).replace(PID, str(pid))


def with_revision(name: str, revision: int) -> str:
    """Replace <REV>: `a<REV>.log` with revision 12 becomes `a-000012.log`."""
    return name.replace(REV, f"-{revision:06d}")


# --- moving

DIRECTORY_MODE = 0o770
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


# (source, target) makes the target from the source, and syncs it.
Make = Callable[[Path, Path], None]


def make_directories(directory: Path, base: Path | None = None) -> None:
    """Make the directory and its parents, with the mode that Go's nsq_to_file uses. Raises OSError.

    base  a directory that contains it: below that, only symbolic links are followed that this user, root, or the
          owner of their directory has made
    """
    if base is not None:
        _check_links(directory, base)
    directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)


def _check_links(directory: Path, base: Path) -> None:
    """Raise OSError if a stranger could lead us elsewhere: many users may write to a directory of archives."""
    path = base
    for part in directory.relative_to(base).parts:
        owners = {0, os.geteuid(), path.stat().st_uid}
        path /= part
        status = _status(path)
        if status is None:
            return
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in owners:
            raise OSError(errno.ELOOP, "is a symbolic link of another user, which is not followed", str(path))


def place(source: Path, output_dir: Path, name: str, revision: int, token: str, make: Make | None = None) -> str:
    """Link `source` to the first free name in the output-dir from `revision` on. Return the name. Raises OSError.

    If the output-dir is on another file system, or with `make`, a new file is written first; it gets its name only when
    it is complete and synced. After an interruption at any point, another call has the same result, until
    `remove_other_names` was called.
    """
    if make is None:
        try:
            return _link(source, output_dir, name, revision)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    adjacent = _beside(output_dir, token)
    status = _status(adjacent)  # an adjacent file gets its second name only when it is complete
    if status is None or status.st_nlink == 1:
        source.lstat()  # without the source, an incomplete copy is all there is
        adjacent.unlink(missing_ok=True)
        (make or copy)(source, adjacent)
    return _link(adjacent, output_dir, name, revision)


def remove_other_names(source: Path, output_dir: Path, placed: str, token: str, is_copy: Callable[[Path], bool]) -> bool:
    """Remove the other names of a file that was placed. Raises OSError.

    Before a name is removed, the inodes must show that the placed file exists and is the same file or a complete copy;
    if they cannot, `is_copy(path)` reads the file. Return False if the placed file is missing or is another file: then
    the source may be the last copy, and is kept.
    """
    target, adjacent = output_dir / placed, _beside(output_dir, token)
    kept, original, copied = _status(target), _status(source), _status(adjacent)
    if original is not None and not (source.name == target.name and source.parent.samefile(target.parent)):
        if kept is None or not (_is_one_file(original, kept) or _is_one_file(copied, kept) or is_copy(target)):
            return False
        remove_name(source, kept)
        sync_directory(source.parent)
    if copied is not None:
        if kept is None or not _is_one_file(copied, kept):
            return False
        remove_name(adjacent, kept)
    return True


def remove_name(path: Path, kept: os.stat_result) -> None:
    """Remove one name of a file, but not the last. Raises OSError.

    kept  status of the remaining file: another name of the same file, or a copy
    """
    status = path.lstat()
    # On a file system that ignores case, one entry has two names.
    if not os.path.samestat(status, kept) or status.st_nlink > 1:
        path.unlink()


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a name, or None if it does not exist. Symbolic links are not followed."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _is_one_file(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    return one is not None and other is not None and os.path.samestat(one, other)


def _beside(output_dir: Path, token: str) -> Path:
    return side_path(output_dir, token, ".moving")


def copy(source: Path, target: Path) -> None:
    """Make a synced copy with the mode and times of the source. Raises OSError."""
    with source.open("rb") as original, target.open("xb") as out:
        shutil.copyfileobj(original, out, 1024 * 1024)
        out.flush()
        shutil.copystat(source, target)
        os.fsync(out.fileno())


def _link(source: Path, output_dir: Path, name: str, revision: int) -> str:
    """Link the file to the first name that is free or belongs to it. Return the name."""
    while True:
        candidate = with_revision(name, revision)
        target = output_dir / candidate
        make_directories(target.parent, output_dir)
        try:
            _link_exclusively(source, target)
        except FileExistsError:
            # A symbolic link to the source does not count: it is broken once the source is deleted.
            if not _is_one_file(_status(target), _status(source)):
                if REV not in name:
                    raise
                revision += 1
                continue
        sync_directory(target.parent)
        return candidate


def _link_exclusively(source: Path, target: Path) -> None:
    """Link the file, or rename it on a file system without links. Raises FileExistsError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Reserve the name, so that no other process takes it; a kill here leaves an empty file.
        target.touch(exist_ok=False)
        os.rename(source, target)


def keep_original(source: Path, name: str) -> None:
    """Rename a file that was not copied whole, so that nothing removes it. Raises OSError."""
    if _status(source) is not None:
        os.rename(source, source.with_name(name))
        sync_directory(source.parent)


# --- finishing

_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """A synced and closed file that still needs its place, and its line for the manifest, at first without a path."""

    claim: Claim
    entry: ManifestEntry

    @property
    def name(self) -> str:
        return self.claim.details.work_name

    @property
    def _original(self) -> Path:
        """The name of the file in the work-dir if it is kept."""
        return self.claim.work_path.with_name(original_name(self.claim.token))

    @property
    def _source(self) -> Path:
        """The file that was written, by its present name."""
        return self._original if self._original.exists() else self.claim.work_path

    def damage_text(self, entry: ManifestEntry) -> str:
        """Return a sentence about the damage of the finished file; "" if there is none."""
        details = self.claim.details
        return entry.damage_text(details.store or details.output_dir, str(self.claim.work_path.parent))

    def finish(self) -> ManifestEntry:
        """Finish the file; return its line in the manifest. May block. May be called again after an OSError."""
        details = self.claim.details
        may_be_listed = details.entry is not None or self.entry.repaired
        if details.entry is not None:
            entry = ManifestEntry(**details.entry)
        elif FORMATS[details.format].convert is None and self.claim.work_dir.samefile(details.output_dir):
            entry = replace(self.entry, path=details.work_name)  # it was written there
        else:
            entry = self._place()
        if not self._remove_other_names(entry):  # the file that an earlier run placed was deleted or replaced
            entry = self._place()
            if not self._remove_other_names(entry):
                place = Path(details.output_dir) / entry.path
                raise OSError(errno.EBUSY, "another program has replaced the file that was just placed there", str(place))
        manifest = Manifest(Path(details.output_dir))
        if not (details.store or (may_be_listed and manifest.has(entry))):
            manifest.add(entry)
        entry = self._hand_over(entry, is_repeated=may_be_listed)
        self.claim.release()
        return entry

    def _hand_over(self, entry: ManifestEntry, *, is_repeated: bool) -> ManifestEntry:
        """Upload the placed file and commit it to the table, if the claim says so. Return the entry with its last path."""
        details, token = self.claim.details, self.claim.token
        root, local = details.output_dir, Path(details.output_dir) / entry.path
        if details.store:
            root = details.store
            # No other file has this name, since an object store cannot reserve one; `#` would end a URL.
            entry = replace(entry, path=details.name.replace(REV, f"-{token}").replace("#", "_"))
            if not entry.original and _differs(entry, local):
                entry = entry.with_damage(_damaged_parts(details, local), self._original.name)
            upload(local, root, entry.path)
        if details.table and entry.messages:
            commit(details.table, root, entry, token, is_repeated=is_repeated)
        if details.store and entry.original and not self._original.exists():
            keep_original(local, entry.original)
        elif details.store:
            local.unlink(missing_ok=True)
        return entry

    def _place(self) -> ManifestEntry:
        """Move it to its place in the output-dir. Note the entry in the claim, so that the place is known after a kill."""
        claim, details = self.claim, self.claim.details
        output_dir, source = Path(details.output_dir), self._source
        conversion = _Conversion(details)
        make = conversion.make if conversion.is_needed else None
        name = place(source, output_dir, details.name, details.revision, claim.token, make)
        entry = replace(self.entry, path=name)
        if conversion.is_needed:
            entry = self._converted(entry, conversion.scan_of(source))
        elif not _is_one_file(_status(source), _status(output_dir / name)) and _differs(entry, output_dir / name):
            damaged = _damaged_parts(details, output_dir / name)
            entry = _with_contents(entry, output_dir / name).with_damage(damaged, self._original.name)
        claim.update(replace(details, entry=asdict(entry)))
        return entry

    def _converted(self, entry: ManifestEntry, scan: FileScan) -> ManifestEntry:
        """Return the entry of the file that was made by a conversion; `scan` is what was read of the source."""
        scan.add_damage(scan.end, max(scan.end, entry.bytes))  # the source is shorter than what was written to it
        placed = _with_contents(entry, Path(self.claim.details.output_dir) / entry.path)
        if not scan.damaged:
            return placed
        converted = replace(
            placed,
            messages=scan.tally.messages,
            first_timestamp=scan.tally.first_timestamp_ns,
            last_timestamp=scan.tally.last_timestamp_ns,
            nsqds=_placed(scan.tally.nsqds(), placed.nsqds),
        )
        return converted.with_damage(scan.damaged, self._original.name)

    def _remove_other_names(self, entry: ManifestEntry) -> bool:
        """Remove the other names. Return False if the placed file is not proved to have the written contents."""
        output_dir = Path(self.claim.details.output_dir)
        claim, is_copy = self.claim, partial(_holds, entry)
        if entry.original:
            keep_original(claim.work_path, entry.original)
            if not self.claim.details.store and _status(output_dir / entry.path) is None:
                return False
        return remove_other_names(claim.work_path, output_dir, entry.path, claim.token, is_copy)


class _Conversion:
    """The conversion of a file to another format, if its format needs one."""

    def __init__(self, details: ClaimDetails) -> None:
        self._form = FORMATS[details.format]
        self._codec_name = details.compress
        self._without = ("topic",) if details.omits_topic else ()
        self._scan: FileScan | None = None

    @property
    def is_needed(self) -> bool:
        return self._form.convert is not None

    def make(self, source: Path, target: Path) -> None:
        """Make the target. Raises OSError."""
        assert self._form.convert is not None
        self._scan = self._form.convert(source, target, self._codec_name, self._without)

    def scan_of(self, source: Path) -> FileScan:
        """Return what was read of the source; an earlier run may have made the target. Raises OSError."""
        assert self._form.scan_source is not None
        return self._scan or self._form.scan_source(source)


def _with_contents(entry: ManifestEntry, path: Path) -> ManifestEntry:
    """Return the entry with the size and the checksum of this file. Raises OSError."""
    with path.open("rb") as file:
        return replace(entry, bytes=os.fstat(file.fileno()).st_size, crc32c=f"{checksum_of(file):08x}")


def _differs(entry: ManifestEntry, path: Path) -> bool:
    """True if the file has other bytes than those that were written. Raises OSError."""
    return entry.crc32c is not None and path.exists() and not _holds(entry, path)


def _damaged_parts(details: ClaimDetails, path: Path) -> list[Range]:
    """Return the damaged parts of a file whose checksum is wrong: all of it where its format does not tell. Raises OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size and FORMATS[details.format].convert is None:
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                scan = FORMATS[details.format].scan(data, CODECS[details.compress], 0)
            scan.add_damage(scan.end, size)
            if scan.damaged:
                return scan.damaged
    return [(0, size)]


def entry_of(
    details: ClaimDetails, tally: Tally, size_bytes: int, checksum: int | None, cut_bytes: int | None = None
) -> ManifestEntry:
    """Return the entry of a file that is complete, or with `cut_bytes` repaired. It has no path yet."""
    return ManifestEntry(
        path="",
        topic=details.topic,
        channel=details.channel,
        format=details.format,
        compress=details.compress,
        messages=tally.messages,
        first_timestamp=tally.first_timestamp_ns,
        last_timestamp=tally.last_timestamp_ns,
        offset=details.offset,
        bytes=size_bytes,
        crc32c=None if checksum is None else f"{checksum:08x}",
        repaired=cut_bytes is not None,
        cut_bytes=cut_bytes or 0,
        closed=time.time_ns(),
        nsqds=_placed(tally.nsqds(), details.nsqds),
    )


def _placed(nsqds: list[dict[str, Any]], known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of each nsqd with the places of their first ones, where these are known.

    Nothing if the topic was created again while the file was written: what was read of it does not tell them apart.
    """
    if len(known) > len(nsqds):
        return []
    by_first = {(part["nsqd"], part["first_id"]): part for part in known}
    places = [by_first.get((part["nsqd"], part["first_id"]), part) for part in nsqds]
    return [{**part, "epoch": place["epoch"], "first_seq": place["first_seq"]} for part, place in zip(nsqds, places, strict=True)]


def checksum_of(file: BinaryIO) -> int:
    """Return the crc32c from the current position to the end. Raises OSError."""
    checksum = 0
    while data := file.read(_READ_BYTES):
        checksum = extend(checksum, data)
    return checksum


def _holds(entry: ManifestEntry, path: Path) -> bool:
    """True if the file has exactly the bytes of the entry, by its size and checksum. Raises OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return (entry.offset, entry.bytes, entry.crc32c) == (0, size, f"{checksum_of(file):08x}")


def repair(claim: Claim) -> FinishedFile | None:
    """Remove an incomplete end of the claim's file. Return the file, or None if it is empty, missing or in use.

    May block for long. Raises OSError; the claim then stays for the next start.
    """
    if claim.details.entry is not None:
        return FinishedFile(claim, ManifestEntry(**claim.details.entry))
    path = claim.work_path
    try:
        with open(path, "r+b", opener=open_file) as file:
            entry = _repaired(claim, file)
            if entry.messages or entry.damaged_bytes or claim.details.is_shared:
                return FinishedFile(claim, entry)
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                path.unlink()  # still locked, so no other process writes to it
    except (FileNotFoundError, BlockingIOError):  # if another process writes to it, this claim never owned the name
        pass
    claim.release()
    return None


def _repaired(claim: Claim, file: BinaryIO) -> ManifestEntry:
    """Raises OSError, and BlockingIOError if another process writes to the file."""
    details = claim.details
    fcntl.flock(file, fcntl.LOCK_EX | (0 if details.is_shared else fcntl.LOCK_NB))
    size = os.fstat(file.fileno()).st_size
    scan = _scan(claim, file, size)
    if scan.end < size:
        os.ftruncate(file.fileno(), scan.end)
    os.fsync(file.fileno())
    file.seek(details.offset)
    entry = entry_of(details, scan.tally, scan.end - details.offset, checksum_of(file), cut_bytes=size - scan.end)
    return entry.with_damage(scan.damaged)


def _scan(claim: Claim, file: BinaryIO, size: int) -> FileScan:
    details = claim.details
    if size <= details.offset:
        return FileScan(size)
    form, codec = FORMATS[details.format], CODECS[details.compress]
    with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
        return form.scan(data, codec, details.offset)


def check_writable(directory: Path) -> None:
    """Make the directory if it is missing. Raises OSError if no file can be created in it."""
    make_directories(directory)
    with TemporaryFile(dir=directory):  # without a name where the file system can: a kill leaves nothing
        pass
