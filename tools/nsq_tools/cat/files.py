"""The files with messages that paths name. A directory is read as spark-replay reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from nsq_tools.cat.noted import NotedSizes
from nsqd_py.objects.opening import SCHEMES
from nsqd_py.store.layout import HEAD_NAME, NO_HEAD, ROUNDS, has_rounds
from nsqd_py.stores.directories import (
    DELTA_LOG,
    POINTERS,
    LocalFiles,
    is_companion,
    is_go_queue,
    is_passed_over,
    sorted_by_name,
)
from nsqd_py.stores.tables import UnreadableTable, rewritten_files, walk

STANDARD_INPUT = "-"
_HADOOPS_S3 = "s3a://"


class NoMessages(Exception):
    """A path that leads to no messages; str(error) says why."""


def is_store(name: str) -> bool:
    """True for the URL of a store of nsqd, and for a directory that is one."""
    scheme, found, _ = name.partition("://")
    if found:
        return scheme in SCHEMES
    return os.path.isfile(os.path.join(name, HEAD_NAME)) and os.path.isdir(os.path.join(name, ROUNDS))


def _as_store_url(name: str) -> str:
    """Return the name of a store in S3 as nsqd has it, which Spark and Hadoop know by another one."""
    if not name.startswith(_HADOOPS_S3):
        return name
    return f"s3://{name.removeprefix(_HADOOPS_S3)}"


def files_of(names: Sequence[str]) -> Iterator[tuple[str, NoMessages | None]]:
    """Yield the files and stores to read in order, or what is wrong with a name.

    Of a directory, these are the files below it that nsq-to-file has finished, and the logs of nsqd, by name. No file comes
    twice because of a directory. If several names are given, as by `archive/*`, what is passed over in a directory is
    passed over here, too.
    """
    found: set[str] = set()
    in_directories: set[str] = set()
    failures: list[OSError] = []
    files = LocalFiles(failures.append)
    names = list(map(_as_store_url, names))
    try:
        given = names
        if len(names) > 1:
            given = _without_companions(names, files)
    except UnreadableTable as error:
        yield " ".join(names), NoMessages(str(error))
        return
    for name in given:
        if is_store(name):
            found.add(name)
            yield name, None
            continue
        is_directory = name != STANDARD_INPUT and os.path.isdir(name)
        if is_directory and has_rounds(files.names(os.path.join(name, ROUNDS))):
            found.add(os.path.realpath(name))
            yield name, NoMessages(NO_HEAD)
            continue
        try:
            cut = _finished(name, files) if is_directory else {name: ""}
        except UnreadableTable as error:
            found.add(os.path.realpath(name))
            yield name, NoMessages(str(error))
            continue
        seen = found if is_directory else in_directories
        paths = [path for path in cut if os.path.realpath(path) not in seen]
        if is_directory:
            in_directories.update(map(os.path.realpath, paths))
        for path in paths:
            found.add(os.path.realpath(path))
            is_queue = is_go_queue(os.path.basename(path))
            yield (
                path,
                NoMessages("a queue of Go's nsqd: see docs/take-over.md to import it") if is_queue else None,
            )
            if cut[path]:  # what is there is shown
                yield path, NoMessages(cut[path])
        while failures:
            failure = failures.pop(0)
            found.add(str(failure.filename))
            yield str(failure.filename), NoMessages(failure.strerror or str(failure))
    if not found and not any(os.path.isdir(os.path.join(name, DELTA_LOG)) for name in names):
        yield " ".join(names), NoMessages("there are no files with messages here")


def _without_companions(names: Sequence[str], files: LocalFiles) -> list[str]:
    """Return the names without those that are passed over in a directory. Raises UnreadableTable."""
    rewritten = rewritten_files(filter(os.path.isfile, names), files)
    return [name for name in names if name not in rewritten and not _is_companion(name)]


def _is_companion(path: str) -> bool:
    name = os.path.basename(path)
    if os.path.isdir(path):
        return name == POINTERS or is_passed_over(name)
    return is_companion(name)


def _finished(directory: str, files: LocalFiles) -> dict[str, str]:
    """Return the files with messages below a directory, by name, without those that nsq-to-file still writes; and what is wrong
    with the end of each.

    Raises UnreadableTable.
    """
    absolute = os.path.abspath(directory)
    below = os.path.join(absolute, "")
    noted = NotedSizes(files)
    found: dict[str, str] = {}
    for entry in sorted_by_name(walk(absolute, files), files).readable:
        cut = noted.what_is_cut(entry)
        if entry.size_bytes or cut:
            found[os.path.join(directory, entry.path.removeprefix(below))] = cut
    return found
