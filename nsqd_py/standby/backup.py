"""`nsqd-py --backup-to` and `--restore-from`: copies of a running nsqd in a directory.

A backup is what a standby gets in its first two rounds. Its `nsqd.backup` lists the files with sizes and checksums;
nsqd serves no data path that has this file. It is made under another name, and renamed when it is complete and synced.

What is restored has the messages of its origin, but no epochs: it is another nsqd, which can neither fence its origin
nor take the lease of its group.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from google_crc32c import extend

from nsqd_py.broker.state_files import BACKUP_FILE, read_checked, write_checked
from nsqd_py.diskqueue.checking import damage_in
from nsqd_py.diskqueue.files.log_file import parse_log_file_name, replace_file, sync_directory
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX, read_journal
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.errors import NsqdError, StartError
from nsqd_py.runtime.command import complain
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqd_py.runtime.private_files import DIRECTORY_MODE, create, making, open_file, read_bytes
from nsqd_py.server.options import NsqdOptions
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.standby.copies.data_path import check_name
from nsqd_py.standby.copies.syncing import sync_paths
from nsqd_py.standby.follower import Follower, sentence
from nsqd_py.standby.group import check_group
from nsqd_py.standby.messages import Offer, Round

_FORMAT = 1
# The directory that is renamed when it is complete.
_FILES = "files"
_PIECE_BYTES = 256 * 1024
# A journal in the first round may say that a message has moved to a topic whose log was sent before; the second round
# has that log up to a later moment.
_ROUNDS = 2
# Damaged ranges that are named one by one.
_MOST_NAMED = 10


class BadBackup(NsqdError):
    """The backup cannot be made or restored; the text says why."""


def run(options: NsqdOptions) -> int:
    """Make or restore the backup, print a line, and return the exit status."""
    try:
        options.check_values()
        _check_usage(options)
        text, damage = _back_up(options) if options.backup_to else _restore(options)
    except BadOptions as error:
        complain(f"nsqd-py: {error}")
        return 2
    except BlockingIOError:
        complain(f"nsqd-py: {options.backup_to or options.data_path} is in use by another nsqd-py")
        return 1
    except OSError as error:
        complain(f"nsqd-py: {error if error.filename else error.strerror or error}")
        return 1
    except NsqdError as error:
        complain(f"nsqd-py: {error}")
        return 1
    except KeyboardInterrupt:
        complain("nsqd-py: interrupted; nothing was kept")
        return 130
    print(text)
    if not damage:
        return 0
    complain(f"nsqd-py: {damage}")
    return 1


def _check_usage(options: NsqdOptions) -> None:
    if options.backup_to and options.restore_from:
        raise BadOptions("--backup-to and --restore-from exclude each other")
    if options.restore_from and not options.data_path:
        raise BadOptions("--restore-from needs --data-path, the new directory to restore into")
    if options.backup_to and not options.standby_of:
        raise BadOptions("--backup-to needs --standby-of, the TCP address of the nsqd to copy")
    if (options.backup_to or options.restore_from).endswith(".tar.zst"):
        raise BadOptions("a backup is a directory: name one, and pack or unpack it with tar")


def refuse(directory: Path) -> None:
    """Raise StartError for a data path that has the list of a backup."""
    raise StartError(
        f"{os.path.abspath(directory)} is a backup, or was not restored completely: restore it into a new directory, "
        "with --restore-from and --data-path"
    )


# ---- making one


class _Complete(Exception):
    """All rounds of a backup have ended."""


class _FirstRounds(Follower):
    """A follower that ends after _ROUNDS. It acknowledges nothing, so that no publisher relies on it."""

    def take(self) -> None:
        """Write what the primary has, and sync it."""
        try:
            self._follow()
        except _Complete:
            sync_paths(*self._unsynced())
        finally:
            self._close_connection()

    def _offer(self) -> Offer:
        return replace(super()._offer(), is_backup=True)

    def _acknowledge(self) -> None:
        """A backup is synced at its end."""

    def _end_round(self, message: Round) -> None:
        if message.number >= _ROUNDS:
            raise _Complete


def _back_up(options: NsqdOptions) -> tuple[str, str]:
    """Make the backup. Return what was made, and a sentence about the damage in it, empty if there is none."""
    # It listens nowhere, and competes for no lease.
    options = options.replace(tcp_address="", http_address="", https_address="", lease="")
    check_group(options)
    target = Path(options.backup_to)
    work = Path(f"{options.backup_to.rstrip('/')}.incomplete")
    files = work / _FILES
    with making(work, is_own=True) as descriptor:
        try:
            if os.path.lexists(target):
                raise BadBackup(f"{target} exists already: choose another --backup-to")
            shutil.rmtree(_FILES, ignore_errors=True, dir_fd=descriptor)
            os.mkdir(_FILES, DIRECTORY_MODE, dir_fd=descriptor)
            count, size_bytes = _copy_from(options, files)
            damage = _damage_in(files)
            os.rename(_FILES, target, src_dir_fd=descriptor)
            sync_directory(target.parent)
        finally:
            shutil.rmtree(_FILES, ignore_errors=True, dir_fd=descriptor)
            with suppress(OSError):  # it has files of another user
                work.rmdir()
    text = f"{target} is a backup of {options.standby_of}: {count} files, {size_bytes} bytes"
    if not damage:
        return text, ""
    return text, f"the files of {options.standby_of} are damaged, and so is their backup: {damage}"


def _copy_from(options: NsqdOptions, directory: Path) -> tuple[int, int]:
    """Write a backup into an empty directory; return the number and the bytes of its files."""
    try:
        _FirstRounds(options, directory, None, Log(level=FATAL), lambda: "").take()
    except Exception as error:
        raise BadBackup(f"the backup of {options.standby_of} is not complete: {sentence(error)}") from error
    (directory / EPOCHS_FILE).unlink(missing_ok=True)
    listed = {}
    for path in sorted(directory.iterdir()):
        if path.is_dir():  # the copy has set aside what was deleted in the meantime
            shutil.rmtree(path)
        else:
            with path.open("rb") as file:
                listed[path.name] = _transfer(file)
    write_checked(directory / BACKUP_FILE, {"format": _FORMAT, "files": listed})
    return len(listed), sum(size_bytes for size_bytes, _ in listed.values())


def _transfer(file: IO[bytes], out: IO[bytes] | None = None) -> list[int]:
    """Return the size and the checksum of a file, and write it to `out`."""
    size_bytes = checksum = 0
    while piece := file.read(_PIECE_BYTES):
        size_bytes += len(piece)
        checksum = extend(checksum, piece)
        if out is not None:
            out.write(piece)
    return [size_bytes, checksum]


# ---- the records in it


def _damage_in(directory: Path) -> str:
    """Return the ranges of logs and journals that have no valid record, as text; empty if all is valid. Raises OSError."""
    ranges = []
    for path in sorted(directory.iterdir()):
        for start, end in _damaged_ranges(path):
            ranges.append(f"{path.name}: {end - start} bytes at {start}")
    named = ranges[:_MOST_NAMED]
    left = len(ranges) - len(named)
    if left:
        named.append(f"and {left} other places")
    return "; ".join(named)


def _damaged_ranges(path: Path) -> Iterable[Range]:
    if parse_log_file_name(path.name) is not None:
        return damage_in(path)
    if path.name.endswith(JOURNAL_SUFFIX):
        return read_journal(read_bytes(path), with_waiting=False).damaged
    return ()


# ---- restoring it


def _restore(options: NsqdOptions) -> tuple[str, str]:
    """Restore the backup. Return what was made, and a sentence about the damage in it, empty if there is none."""
    source = Path(options.restore_from)
    target = Path(options.data_path)
    is_new = not os.path.lexists(target)
    with making(target) as descriptor:
        if not set(os.listdir(descriptor)) <= {"lost+found"}:  # a new file system has that
            raise BadBackup(f"{target} is not empty: restore into a new directory")
        try:
            count = _write_files(source, target)
            damage = _damage_in(target)
        except BaseException as error:
            for name in set(os.listdir(descriptor)) - {"lost+found"}:
                os.unlink(name, dir_fd=descriptor)
            if is_new:
                target.rmdir()
            if not isinstance(error, Exception):
                raise
            raise BadBackup(f"{source} cannot be restored: {error}") from error
    text = f"{target} has the {count} files of {source}: start nsqd with --data-path={target}"
    if not damage:
        return text, ""
    return text, f"they were damaged when {source} was made, and what cannot be read is missing: {damage}"


def _write_files(source: Path, target: Path) -> int:
    """Write the files of a backup, and return their number. Until the end, `nsqd.backup` keeps nsqd from starting there."""
    if not source.is_dir():
        raise BadBackup("it is no directory: unpack an archive with tar first")
    listed = read_checked(source / BACKUP_FILE, _decode_list)
    if not listed:
        raise BadBackup(f"{BACKUP_FILE} is missing or damaged")
    replace_file(target / BACKUP_FILE, read_bytes(source / BACKUP_FILE))
    for name, expected in listed.items():
        with open(source / name, "rb", opener=open_file) as file, create(target / name) as out:
            if _transfer(file, out) != expected:
                raise BadBackup(f"{name} is damaged")
    sync_paths([target / name for name in listed], target)
    (target / BACKUP_FILE).unlink()
    sync_directory(target)
    return len(listed)


def _decode_list(fields: dict[str, Any]) -> dict[str, list[int]]:
    if fields["format"] != _FORMAT:
        raise StartError(f"format {fields['format']}, of a later version of nsqd-py")
    for name in fields["files"]:
        check_name(name)
    return dict(fields["files"])
