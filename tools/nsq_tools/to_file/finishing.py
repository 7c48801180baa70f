"""Finishing closed files, and files that an earlier run left unfinished.

A file is moved to its final name, gets a line in the manifest, is uploaded and committed to a table if that was asked for, and
its claim is deleted. Every step can be repeated, so that after a kill between two steps the next start takes over the claim
and continues.

In a file of an earlier run, an incomplete end is removed first. It was never synced completely, so its messages were
not finished, and nsqd delivers them again. Nothing else is removed: damaged parts stay in the file and are reported. If
the file that is placed does not have all of the original, as after the conversion of a damaged file, the original stays.
"""

from __future__ import annotations

import errno
import fcntl
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
from nsq_tools.to_file.log_parts import POSITIONS, LogParts
from nsq_tools.to_file.options import HOST, HOSTNAME, PID, REV, SHORT_HOST, TOPIC
from nsq_tools.to_file.output import MANIFEST, Claim, ClaimDetails, ManifestEntry, add_to_manifest, side_path
from nsqd_py.diskqueue.files.log_file import sync_directory
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.runtime.private_files import open_file
from nsqd_py.stores.compression import CODECS
from nsqd_py.stores.directories import POINTERS
from nsqd_py.stores.files import FileWindow, LocalFile

# (source, target) makes the target from the source, and syncs it.
Make = Callable[[Path, Path], None]

_MOVING = ".moving"
_DIRECTORY_MODE = 0o770
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
_READ_BYTES = 1024 * 1024
_SHOWN_RANGES = 10
# The name begins with an underscore, so that readers of directories skip it, and has no suffix of an archive.
_ORIGINAL_PREFIX = "_nsq_damaged."


def host_identifier(given: str, hostname: str) -> str:
    """Return the value of <HOST>: `given` with its words replaced, or the host name up to its first dot."""
    short = hostname.partition(".")[0]
    if given:
        return given.replace(SHORT_HOST, short).replace(HOSTNAME, hostname)
    return short


def filename_template(filename_format: str, topic: str, host: str, *, has_revisions: bool) -> str:
    """Replace all words but <DATETIME> and, if files have revisions, <REV>."""
    # Such as `..`, or a claim's name: anybody may publish to these topics.
    if topic.startswith((".", MANIFEST, POINTERS)):
        topic = f"%{ord(topic[0]):02X}{topic[1:]}"
    template = filename_format if has_revisions else filename_format.replace(REV, "")
    return template.replace(TOPIC, topic).replace(HOST, host).replace(PID, str(os.getpid()))


def with_revision(name: str, revision: int) -> str:
    """Replace <REV>: `a<REV>.log` with revision 12 becomes `a-000012.log`."""
    return name.replace(REV, f"-{revision:06d}")


# --- moving


def make_directories(directory: Path, base: Path | None = None) -> None:
    """Make the directory and its parents, with the mode that Go's nsq_to_file uses, and sync their names. Raises OSError.

    base  a directory that contains it: below that, only symbolic links are followed that this user, root, or the
          owner of their directory has made
    """
    if base and base.exists():  # not after it was moved away
        _check_links(directory, base)
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    for path in missing:
        sync_directory(path.parent)


def _check_links(directory: Path, base: Path) -> None:
    """Raise OSError if a stranger could lead us elsewhere: many users may write to a directory of archives."""
    path = base
    for part in directory.relative_to(base).parts:
        owners = {0, os.geteuid(), path.stat().st_uid}
        path /= part
        status = _status(path)
        if not status:
            return
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in owners:
            raise OSError(errno.ELOOP, "is a symbolic link of another user, which is not followed", str(path))


def link_into(
    source: Path, output_dir: Path, name: str, revision: int, token: str, make: Make | None = None
) -> str:
    """Link `source` to the first free name in the output-dir from `revision` on. Return the name. Raises OSError.

    If the output-dir is on another file system, or with `make`, a new file is written first; it gets its name only when
    it is complete and synced. After an interruption at any point, another call has the same result, until
    `remove_other_names` was called.
    """
    if not make:
        try:
            return _link(source, output_dir, name, revision)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    adjacent = side_path(output_dir, token, _MOVING)
    status = _status(adjacent)  # an adjacent file gets its second name only when it is complete
    if not status or status.st_nlink == 1:
        source.lstat()  # without the source, an incomplete copy is all there is
        adjacent.unlink(missing_ok=True)
        (make or copy)(source, adjacent)
    return _link(adjacent, output_dir, name, revision)


def remove_other_names(
    source: Path, output_dir: Path, placed: str, token: str, is_copy: Callable[[Path], bool]
) -> bool:
    """Remove the other names of a file that was placed. Raises OSError.

    Before a name is removed, the inodes must show that the placed file exists and is the same file or a complete copy;
    if they cannot, `is_copy(path)` reads the file. Return False if the placed file is missing or is another file: then
    the source may be the last copy, and stays.
    """
    target = output_dir / placed
    adjacent = side_path(output_dir, token, _MOVING)
    remaining = _status(target)
    original = _status(source)
    copied = _status(adjacent)
    if original and not (source.name == target.name and source.parent.samefile(target.parent)):
        is_there = remaining and (
            _is_one_file(original, remaining) or _is_one_file(copied, remaining) or is_copy(target)
        )
        if not is_there:
            return False
        _remove_name(source, original, remaining)
        sync_directory(source.parent)
    if copied:
        if not _is_one_file(copied, remaining):
            return False
        _remove_name(adjacent, copied, remaining)
    return True


def _remove_name(path: Path, status: os.stat_result, remaining: os.stat_result | None) -> None:
    """Remove one name of a file, but not the last. Raises OSError.

    remaining  status of the remaining file: another name of the same file, or a copy
    """
    # On a file system that ignores case, one entry has two names.
    if not _is_one_file(status, remaining) or status.st_nlink > 1:
        path.unlink()


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a name, or None if it does not exist. Symbolic links are not followed."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _is_one_file(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    return bool(one and other and os.path.samestat(one, other))


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
    if _status(source):
        os.rename(source, source.with_name(name))
        sync_directory(source.parent)


# --- finishing


@dataclass(slots=True)
class FinishedFile:
    """A synced and closed file that still needs its final name, and its line for the manifest.

    entry  its line, which has no path before the file is placed
    """

    claim: Claim
    entry: ManifestEntry

    @property
    def name(self) -> str:
        return self.claim.details.work_name

    @property
    def _original(self) -> Path:
        """The name of the file in the work-dir if it stays."""
        return self.claim.work_path.with_name(f"{_ORIGINAL_PREFIX}{self.claim.token}")

    @property
    def _source(self) -> Path:
        """The file that was written, by its present name."""
        if self._original.exists():
            return self._original
        return self.claim.work_path

    def damage_text(self, entry: ManifestEntry) -> str:
        """Return a sentence about the damage of the finished file; "" if there is none."""
        if not entry.damaged_bytes:
            return ""
        path = os.path.join(self.claim.details.store or self.claim.details.output_dir, entry.path)
        reason = "they stay in it"
        if entry.original:
            path = str(self._original)
            reason = f"it is kept, since {entry.path} does not have them"
        offsets = ", ".join(f"{start}..{end}" for start, end in entry.damaged_ranges[:_SHOWN_RANGES])
        if len(entry.damaged_ranges) > _SHOWN_RANGES:
            offsets += ", ..."
        return f"{entry.damaged_bytes} bytes of {path} cannot be read, at {offsets}: {reason}"

    def finish(self) -> ManifestEntry:
        """Finish the file; return its line in the manifest. May block. May be called again after an OSError."""
        details = self.claim.details
        if self.claim.is_moved:
            text = "its directory was moved, replaced or mounted over; bring it back, or start nsq-to-file with it"
            raise FileNotFoundError(errno.ENOENT, text, str(self.claim.work_dir))
        is_repeated = bool(self.entry.path)
        if not is_repeated:
            self._move()
        if not self._remove_other_names():  # the file that an earlier run placed was deleted or replaced
            self._move()
            if not self._remove_other_names():
                placed = Path(details.output_dir) / self.entry.path
                raise OSError(
                    errno.EBUSY,
                    "another program has replaced the file that was just placed there",
                    str(placed),
                )
        if not details.store:
            add_to_manifest(Path(details.output_dir), self.entry, is_repeated)
        entry = self._hand_over(is_repeated)
        self.claim.release()
        return entry

    def _hand_over(self, is_repeated: bool) -> ManifestEntry:
        """Upload the placed file and commit it to the table, if the claim says so. Return the entry with its last path."""
        details = self.claim.details
        token = self.claim.token
        entry = self.entry
        root = details.output_dir
        local = Path(root) / entry.path
        if details.store:
            root = details.store
            if local.exists():
                entry = self._compared(entry, local)
            # No other file has this name, since an object store cannot reserve one; `#` would end a URL.
            entry = replace(entry, path=details.name.replace(REV, f"-{token}").replace("#", "_"))
            upload(local, root, entry.path)
        if details.table and entry.messages:
            commit(details.table, root, entry, token, is_repeated=is_repeated)
        if details.store and entry.original and not self._original.exists():
            keep_original(local, entry.original)
        elif details.store:
            local.unlink(missing_ok=True)
        return entry

    def _move(self) -> None:
        """Move it to its name in the output-dir. Note the entry in the claim, so that the name is known after a kill."""
        claim = self.claim
        details = self.claim.details
        output_dir = Path(details.output_dir)
        source = self._source
        make = None
        if FORMATS[details.format].convert:
            make = self._convert
        name = details.work_name
        if make or claim.work_dir != output_dir:  # else it was written there
            name = link_into(source, output_dir, details.name, details.revision, claim.token, make)
        placed = output_dir / name
        entry = self.entry
        if make:
            entry = _with_contents(entry, placed)
            if entry.damaged_bytes:
                entry = replace(entry, original=self._original.name)
        elif source != placed and not _is_one_file(_status(source), _status(placed)):
            entry = self._compared(entry, placed)
        entry = replace(entry, path=name)
        claim.update(replace(details, entry=asdict(entry)))
        self.entry = entry  # now, since other names of the file are removed only when this one is noted

    def _convert(self, source: Path, target: Path) -> None:
        """Make the target from the source, in the final format. Raises OSError."""
        details = self.claim.details
        entry = self.entry
        convert = FORMATS[details.format].convert
        assert convert is not None
        scan = convert(source, target, details.compress, ("topic",) if details.omits_topic else ())
        if not entry.path:
            # The source is shorter than what was written to it.
            scan.add_damage(scan.end, max(scan.end, entry.bytes))
        if scan.damaged:
            self.entry = replace(entry.with_damage(scan.damaged), **_counted(scan.tally, entry.nsqds))

    def _compared(self, entry: ManifestEntry, path: Path) -> ManifestEntry:
        """Return the entry of a file, with its damage if it has other bytes than those that were written. Raises OSError."""
        present = _with_contents(entry, path)
        if entry.original or present == entry:
            return entry
        return present.with_damage(_damaged_parts(self.claim.details, path), self._original.name)

    def _remove_other_names(self) -> bool:
        """Remove the other names. Return False if the placed file is not proved to have the written contents."""
        entry = self.entry
        claim = self.claim
        output_dir = Path(claim.details.output_dir)
        if entry.original:
            keep_original(claim.work_path, entry.original)
            if not claim.details.store and not _status(output_dir / entry.path):
                return False
        return remove_other_names(
            claim.work_path, output_dir, entry.path, claim.token, partial(_holds, entry)
        )


def _with_contents(entry: ManifestEntry, path: Path) -> ManifestEntry:
    """Return the entry with the size and the checksum of this file. Raises OSError."""
    with path.open("rb") as file:
        return replace(entry, bytes=os.fstat(file.fileno()).st_size, crc32c=f"{checksum_of(file):08x}")


def _holds(entry: ManifestEntry, path: Path) -> bool:
    """True if the file has exactly the bytes of the entry, by its size and checksum. Raises OSError."""
    return not entry.offset and _with_contents(entry, path) == entry


def _damaged_parts(details: ClaimDetails, path: Path) -> list[Range]:
    """Return the damaged parts of a file whose checksum is wrong: all of it where its format does not tell. Raises OSError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        scan = _scan(details, file, size)
    scan.add_damage(scan.end, size)
    return scan.damaged or [(0, size)]


def _scan(details: ClaimDetails, file: BinaryIO, size: int) -> FileScan:
    if size <= details.offset:
        return FileScan(size)
    return FORMATS[details.format].scan(
        FileWindow(LocalFile(file.fileno())), CODECS[details.compress], details.offset
    )


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
        offset=details.offset,
        bytes=size_bytes,
        crc32c=None if checksum is None else f"{checksum:08x}",
        repaired=cut_bytes is not None,
        cut_bytes=cut_bytes or 0,
        closed=time.time_ns(),
        **_counted(tally, details.nsqds),
    )


def _counted(tally: Tally, known: LogParts) -> dict[str, Any]:
    """Return the fields of an entry about its messages. Those of each nsqd have the position of the first one, where it is known.

    There are none of an nsqd if the topic was created again while the file was written: what was read of it does not tell
    them apart.
    """
    positions = {}
    for of_log in known:
        position = {name: of_log.get(name) for name in POSITIONS}
        positions[of_log["nsqd"], of_log["first_id"]] = position
    nsqds = tally.nsqds()
    for part in nsqds:
        if part["epoch"] is None:  # of a file that was read
            part |= positions.get((part["nsqd"], part["first_id"]), {})
    of_nsqds = []
    if len(known) <= len(nsqds):
        of_nsqds = nsqds
    return {
        "messages": tally.messages,
        "first_timestamp": tally.first_timestamp_ns,
        "last_timestamp": tally.last_timestamp_ns,
        "nsqds": of_nsqds,
    }


def checksum_of(file: BinaryIO) -> int:
    """Return the crc32c from the current position to the end. Raises OSError."""
    checksum = 0
    while data := file.read(_READ_BYTES):
        checksum = extend(checksum, data)
    return checksum


def repair(claim: Claim) -> FinishedFile | None:
    """Remove an incomplete end of the claim's file. Return the file, or None if it is empty, missing or in use.

    May block for long. Raises OSError; the claim then stays for the next start.
    """
    if claim.details.entry:
        return FinishedFile(claim, ManifestEntry(**claim.details.entry))
    path = claim.work_path
    try:
        with open(path, "r+b", opener=open_file) as file:
            entry = _repaired(claim, file)
            if entry.messages or entry.damaged_bytes or claim.details.is_shared:
                return FinishedFile(claim, entry)
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                path.unlink()  # still locked, so no other process writes to it
    # If another process writes to it, this claim never owned the name.
    except (FileNotFoundError, BlockingIOError):
        pass
    claim.release()
    return None


def _repaired(claim: Claim, file: BinaryIO) -> ManifestEntry:
    """Raises OSError, and BlockingIOError if another process writes to the file."""
    details = claim.details
    fcntl.flock(file, fcntl.LOCK_EX | (0 if details.is_shared else fcntl.LOCK_NB))
    size = os.fstat(file.fileno()).st_size
    scan = _scan(details, file, size)
    if scan.end < size:
        os.ftruncate(file.fileno(), scan.end)
    os.fsync(file.fileno())
    file.seek(details.offset)
    entry = entry_of(
        details, scan.tally, scan.end - details.offset, checksum_of(file), cut_bytes=size - scan.end
    )
    return entry.with_damage(scan.damaged)


def check_writable(directory: Path) -> None:
    """Make the directory if it is missing. Raises OSError if no file can be created in it."""
    make_directories(directory)
    with TemporaryFile(dir=directory):  # without a name where the file system can: a kill leaves nothing
        pass
