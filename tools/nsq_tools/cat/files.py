"""The files with messages that paths name. A directory is read as spark-replay reads it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from nsq_tools.to_file.compression import CODECS
from nsq_tools.to_file.formats import FORMATS
from nsqd_py.stores.tables import DELTA_LOG, POINTERS, LocalFiles, UnreadableTable, current_files, rewritten_files

STANDARD_INPUT = "-"
# The lists of finished files that nsq-to-file keeps, now and in former versions.
_MANIFESTS = ("_nsq_manifest", "_manifest.jsonl")
_MESSAGE_SUFFIXES = (".nsqf", *(form.suffix for form in FORMATS.values()))
_GO_QUEUE = re.compile(r"\.diskqueue\.\d+\.dat$")
# What both nsqds and nsq-to-file keep next to the files with messages.
_COMPANIONS = (".bad", ".crc", ".cursor", ".damaged", ".dat", ".gone", ".moving", ".pid", ".spare", ".tmp", ".clock", ".stop")
_NSQD_FILES = tuple(f"nsqd.{name}" for name in ("backup", "epochs", "member", "standby", "standbys"))
_CLAIM = re.compile(r"\.nsq_to_file\.[0-9a-f]+\.json")
# The directories in which Spark and table formats keep their own files.
_OF_ENGINES = re.compile(r"_(?:temporary|spark_metadata|delta_\w+|change_data|symlink_format_manifest|checkpoints?)")


class NoMessages(Exception):
    """A path that leads to no messages; str(error) says why."""


def files_of(names: Sequence[str]) -> Iterator[tuple[str, NoMessages | None]]:
    """Yield the files to read in order, or what is wrong with a name.

    Of a directory, these are the files below it that nsq-to-file has finished, and the logs of nsqd, by name. No file comes
    twice because of a directory. If several names are given, as by `archive/*`, what is passed over in a directory is
    passed over here, too.
    """
    found: set[str] = set()
    in_directories: set[str] = set()
    try:
        given = _without_kept_beside(names) if len(names) > 1 else names
    except UnreadableTable as error:
        yield " ".join(names), NoMessages(str(error))
        return
    for name in given:
        if name != STANDARD_INPUT and os.path.isdir(name):
            try:
                finished = _finished(name)
            except UnreadableTable as error:
                found.add(os.path.realpath(name))
                yield name, NoMessages(str(error))
                continue
            files = [path for path in finished if os.path.realpath(path) not in found]
            in_directories.update(map(os.path.realpath, files))
        else:
            files = [name] if os.path.realpath(name) not in in_directories else []
        for path in files:
            found.add(os.path.realpath(path))
            is_go_queue = _GO_QUEUE.search(_without_compression(path)) is not None
            yield path, NoMessages("a queue of Go's nsqd: see docs/take-over.md to import it") if is_go_queue else None
    if not found:
        yield " ".join(names), NoMessages("there are no files with messages here")


def _without_kept_beside(names: Sequence[str]) -> list[str]:
    """Return the names without those that are passed over in a directory. Raises UnreadableTable."""
    rewritten = rewritten_files(filter(os.path.isfile, names), LocalFiles())
    return [
        name
        for name in names
        if name not in rewritten and not _is_kept_beside(os.path.basename(name), is_directory=os.path.isdir(name))
    ]


def _is_kept_beside(name: str, *, is_directory: bool) -> bool:
    if is_directory:
        return name == POINTERS or _is_passed_over(name)
    if name in _MANIFESTS or name in _NSQD_FILES or _CLAIM.fullmatch(name):
        return True
    return name.endswith(_COMPANIONS) and not _GO_QUEUE.search(name)


def _finished(directory: str) -> list[str]:
    """Return the files with messages below a directory, by name, without those that nsq-to-file still writes.

    Raises UnreadableTable.
    """
    absolute = {os.path.abspath(path): path for path in _below(directory)}
    current = current_files(os.path.abspath(directory), list(absolute), LocalFiles())
    paths = sorted(absolute.get(path, path) for path in current)
    for path in paths:
        if not os.path.exists(path):
            raise UnreadableTable(f"the table in {directory} lists {path}, which is not there")
    claimed = {_claimed(path) for path in paths if _CLAIM.fullmatch(os.path.basename(path))}
    return [path for path in paths if path not in claimed and _has_messages(os.path.basename(path)) and os.path.getsize(path)]


def _below(directory: str) -> Iterator[str]:
    """Yield the files of each directory once, however many links lead to it; and the directories of logs of Delta tables."""
    seen = set()
    for parent, directories, names in os.walk(directory, followlinks=True):
        status = os.stat(parent)
        if (status.st_dev, status.st_ino) in seen:
            directories.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        if DELTA_LOG in directories:
            yield os.path.join(parent, DELTA_LOG)
        directories[:] = [name for name in _links_last(parent, directories) if not _is_passed_over(name)]
        yield from (path for path in (os.path.join(parent, name) for name in names) if os.path.isfile(path))


def _links_last(parent: str, directories: Iterable[str]) -> list[str]:
    return sorted(directories, key=lambda name: (os.path.islink(os.path.join(parent, name)), name))


def _is_passed_over(directory: str) -> bool:
    return directory.startswith(".") or _OF_ENGINES.fullmatch(directory) is not None


def _has_messages(name: str) -> bool:
    if name.startswith(".") or name in _MANIFESTS:
        return False
    plain = _without_compression(name)
    return plain.endswith(_MESSAGE_SUFFIXES) or _GO_QUEUE.search(plain) is not None


def _without_compression(name: str) -> str:
    for codec in CODECS.values():
        name = name.removesuffix(codec.suffix)
    return name


def _claimed(path: str) -> str:
    """Return the file that a claim of nsq-to-file is about; "" if the claim is gone by now."""
    try:
        with open(path, "rb") as file:
            return os.path.join(os.path.dirname(path), json.load(file)["work_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
