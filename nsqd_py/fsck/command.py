"""The commands `--check-data` and `--export-to-go`, which run instead of serving."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nsqd_py.broker.clock_file import read_clock_file, read_clocks
from nsqd_py.broker.state_files import STORE_FILE
from nsqd_py.errors import StartError
from nsqd_py.fsck.go_export import export
from nsqd_py.fsck.reading import load_directory
from nsqd_py.fsck.reports import DamageKind, DataRefused, DirectoryReport, as_json, as_text
from nsqd_py.runtime.command import complain
from nsqd_py.runtime.logs.daemon_log import JSON, one_line
from nsqd_py.runtime.private_files import locked
from nsqd_py.server.options import NsqdOptions

if TYPE_CHECKING:
    from nsqd_py.store.checking import StoreReport

WELL, DAMAGED, BAD_USAGE = range(3)
INTERRUPTED = 130  # as a shell says of a process that SIGINT ended


def check_data(options: NsqdOptions) -> int:
    """Check the directory, and the store if there is one; print the report, and return the exit status."""
    directory = Path(options.check_data)
    try:
        with _refusing(directory), locked(directory, is_exclusive=False):
            store = _check_store(options, directory)
            ranges = store.ranges if store is not None else {}
            report, _ = load_directory(directory, _now_ns(directory), ranges)
            hint = _hint(report, directory, has_store=store is not None)
    except DataRefused as error:
        _complain(f"nsqd-py: {error}")
        return BAD_USAGE
    if options.log_format == JSON:
        of_store = None
        if store is not None:
            of_store = store.as_json()
        _say(as_json(report, of_store))
    else:
        lines = list(as_text(report))
        if store is not None:
            lines += store.as_text()
        _say("\n".join(map(one_line, lines)))
    if hint:
        _complain(f"nsqd-py: {hint}")
    if report.is_well and (store is None or store.is_well):
        return WELL
    return DAMAGED


def _hint(report: DirectoryReport, directory: Path, *, has_store: bool) -> str:
    """Return a sentence about the store that may have what is gone here; "" if there is none."""
    is_gone = any(finding.trouble is DamageKind.GONE for finding in report.findings)
    if has_store or not is_gone or not (directory / STORE_FILE).exists():
        return ""
    from nsqd_py.store.leaving import left_store  # only a store needs it

    store = left_store(directory)
    if not store:
        return ""
    return f"{directory} was in {store}, which may have what is gone: check it with that --store too"


def _check_store(options: NsqdOptions, directory: Path) -> StoreReport | None:
    """Check the objects that the store needs; None without --store."""
    if not options.store:
        return None
    from nsqd_py.store.checking import check_store  # only a store needs it

    return check_store(options.store, options.store_endpoint, directory)


def export_to_go(options: NsqdOptions) -> int:
    """Write the data path as files of Go's nsqd, print the counts, and return the exit status."""
    directory = Path(options.data_path or ".").resolve()
    target = Path(options.export_to_go).resolve()
    try:
        if os.path.islink(options.export_to_go.rstrip("/")):
            raise DataRefused(
                f"{options.export_to_go} is a symbolic link, which is not followed; name a new directory"
            )
        with _refusing(directory), locked(directory, is_exclusive=True):
            text, damage = export(
                directory, target, _now_ns(directory), options.max_bytes_per_file, options.max_msg_size
            )
    except DataRefused as error:
        _complain(f"nsqd-py: {error}")
        return DAMAGED
    except KeyboardInterrupt:
        _complain(f"nsqd-py: interrupted; {target} was not written")
        return INTERRUPTED
    _say(_printable(text))
    if damage:
        _complain(f"nsqd-py: {damage}")
    return DAMAGED if damage else WELL


def _printable(text: str) -> str:
    """Return lines with escapes for characters that do not print: names of files may have any."""
    return "\n".join(map(one_line, text.split("\n")))


def _complain(text: str) -> None:
    complain(_printable(text))


def _say(text: str) -> None:
    """Print a text; the reader may have closed the pipe (`| head`)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _refusing(directory: Path) -> Iterator[None]:
    """Raise DataRefused for errors of starts and of the disk, and if an nsqd works there."""
    try:
        yield
    except StartError as error:
        raise DataRefused(str(error)) from error
    except BlockingIOError as error:
        raise DataRefused(f"{directory} is in use; stop the nsqd that works with it first") from error
    except OSError as error:
        raise DataRefused(f"{error.filename or directory}: {error.strerror or error}") from error


def _now_ns(directory: Path) -> int:
    """Return the current time on the steady clock of this directory. Raises OSError."""
    before = read_clock_file(directory)
    now = read_clocks(0)
    if before is not None:
        return before.steady_at(now)
    return now.wall_ns
