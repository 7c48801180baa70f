"""Repairing a data directory: damaged bytes are copied aside, and files are rewritten without them.

Everything is copied durably into the folder `damaged` before anything is changed. A file is replaced by a new one that
was written and synced under another name. So an interrupted repair can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from nsqd_py.broker.state_files import encode_entries, forget_clean_stop, replace_file
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.diskqueue.journal import JOURNAL_SUFFIX, encode_position, journal_name, read_journal
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader
from nsqd_py.fsck.reading import ASIDE_DIRECTORY, read_directory
from nsqd_py.fsck.reports import DirectoryReport, Finding, Problem
from nsqd_py.runtime import private_files


def repair(directory: Path, report: DirectoryReport) -> list[str]:
    """Repair what `report` found; return what was done, in sentences. Raises OSError."""
    done = []
    by_file = groupby(sorted(report.findings, key=lambda finding: finding.file), key=lambda finding: finding.file)
    for name, findings in by_file:
        done += _Repair(directory, name, list(findings), report).run()
    done += _accept_losses(directory, read_directory(directory, 0))
    forget_clean_stop(directory)  # the recorded ends of the logs are no longer right
    sync_directory(directory)
    return done


def _accept_losses(directory: Path, report: DirectoryReport) -> list[str]:
    """Mark messages that are in no file as finished in the positions of channels."""
    done = []
    for finding in report.findings:
        if finding.trouble is not Problem.GONE:
            continue
        if not finding.topic:
            (directory / finding.file).touch()
            done.append(f"{finding.file}: created again; {finding.detail}")
            continue
        done.append(f"{finding.file}: {finding.detail}; they are counted as lost")
        paths = [*directory.glob(f"{finding.topic}:*{JOURNAL_SUFFIX}"), directory / journal_name(finding.topic)]
        for path in paths:
            saved = read_journal(path.read_bytes() if path.exists() else b"").saved
            if saved.is_deleted or (not path.exists() and finding.start == finding.end):
                continue
            saved.finished.add_missing(finding.start, finding.end)
            replace_file(path, encode_position(saved))
    return done


class _Repair:
    """The repair of one file."""

    def __init__(self, directory: Path, name: str, findings: list[Finding], report: DirectoryReport) -> None:
        self._path = directory / name
        self._aside_directory = directory / ASIDE_DIRECTORY
        self._findings = findings
        self._report = report
        self._done: list[str] = []

    def run(self) -> list[str]:
        for problems, mend in _REPAIRS:
            findings = [finding for finding in self._findings if finding.trouble in problems]
            if findings:
                mend(self, findings)
        return self._done

    def move_aside(self, findings: list[Finding]) -> None:
        self._aside_directory.mkdir(private_files.DIRECTORY_MODE, exist_ok=True)
        aside = self._free_name(self._path.name)
        os.rename(self._path, aside)
        sync_directory(self._aside_directory)
        self._say(f"moved to {self._shown(aside)}")

    def cut_out(self, findings: list[Finding]) -> None:
        """Rewrite the file without damaged records. It becomes sparse, since numbers are missing."""
        data = self._path.read_bytes()
        self._keep(data, findings)
        header = replace(FileHeader.decode(data), is_sparse=True)
        starts = [FILE_HEADER_BYTES, *(finding.end for finding in findings)]
        ends = [*(finding.start for finding in findings), len(data)]
        good = [data[start:end] for start, end in zip(starts, ends, strict=True)]
        replace_file(self._path, b"".join([header.encode(), *good]))
        self._say(f"{_places(findings)} cut out")

    def cut_off(self, findings: list[Finding]) -> None:
        """Cut off the torn end."""
        data = self._path.read_bytes()
        self._keep(data, findings)
        replace_file(self._path, data[: findings[0].start])
        self._say("torn end cut off")

    def rewrite_journal(self, findings: list[Finding]) -> None:
        data = self._path.read_bytes()
        self._keep(data, [Finding(self._path.name, Problem.JOURNAL, 0, len(data))])
        replace_file(self._path, encode_position(read_journal(data).saved))
        self._say("rewritten from the readable entries; messages may be delivered again")

    def forget_position(self, findings: list[Finding]) -> None:
        """Empty the journal. The empty file keeps the channel in existence."""
        self._keep(self._path.read_bytes(), findings)
        replace_file(self._path, b"")
        self._say("emptied; everything in the log is delivered again")

    def rebuild_metadata(self, findings: list[Finding]) -> None:
        """Rewrite `nsqd.dat` from the names of the files. Which topics and channels were paused is lost."""
        data = self._path.read_bytes()
        self._keep(data, findings)
        topics = [
            {
                "name": topic.name,
                "paused": False,
                "channels": [{"name": channel.name, "paused": False} for channel in topic.channels],
            }
            for topic in self._report.topics
        ]
        replace_file(self._path, encode_entries(topics))
        self._say("rewritten from the names of the files; nothing is paused any more")

    # ---- setting aside

    def _keep(self, data: bytes, findings: Iterable[Finding]) -> None:
        """Copy the damaged bytes into the folder."""
        self._aside_directory.mkdir(private_files.DIRECTORY_MODE, exist_ok=True)
        for finding in findings:
            aside = self._free_name(f"{finding.file}.{finding.start}")
            replace_file(aside, data[finding.start : finding.end])
            self._say(f"{finding.end - finding.start:,} bytes at {finding.start:,} copied to {self._shown(aside)}")
        sync_directory(self._aside_directory.parent)

    def _free_name(self, name: str) -> Path:
        path = self._aside_directory / name
        while path.exists():
            path = path.with_name(path.name + "~")
        return path

    def _shown(self, aside: Path) -> str:
        return f"{ASIDE_DIRECTORY}/{aside.name}"

    def _say(self, text: str) -> None:
        self._done.append(f"{self._path.name}: {text}")


def _places(findings: list[Finding]) -> str:
    return "1 damaged place" if len(findings) == 1 else f"{len(findings)} damaged places"


# In this order: the end before what is in front of it.
_REPAIRS: tuple[tuple[tuple[Problem, ...], Callable[[_Repair, list[Finding]], None]], ...] = (
    ((Problem.METADATA,), _Repair.rebuild_metadata),
    ((Problem.UNREADABLE, Problem.WRONG_NAME), _Repair.move_aside),
    ((Problem.TORN_RECORD,), _Repair.cut_off),
    ((Problem.RECORDS,), _Repair.cut_out),
    ((Problem.POSITION,), _Repair.forget_position),
    ((Problem.JOURNAL, Problem.TORN_ENTRY), _Repair.rewrite_journal),
)
