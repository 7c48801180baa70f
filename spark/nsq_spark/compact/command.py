"""The command spark-compact, from its options to its exit status: list, plan, write files with Spark, add them to the table."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from nsq_spark.archive.listing import split_stores
from nsq_spark.archive.splits import ArchiveError, Requested, Span, first_line
from nsq_spark.archive.storage import Storage
from nsq_spark.compact.alone import Mark, alone_in
from nsq_spark.compact.options import CompactOptions
from nsq_spark.compact.plan import Done, Group, Log, SealedLog, plan_groups
from nsq_spark.compact.tables import Table, Written, open_table
from nsq_spark.compact.task import RESULT, Compactor, Result
from nsq_spark.replay.job import parse_conf
from nsq_spark.session import SessionFailed, quiet_session
from nsq_spark.source.archive_table import partition_numbers
from nsqd_py.runtime.command import complain
from nsqd_py.settings.program import DONE, FAILED, ToolError
from nsqd_py.settings.values import size_text

_HADOOP = "spark.hadoop."
# The files of this number of tasks for each core are added to the table together: a commit for every file would be slow, and
# without commits in between, a kill would lose a day's work.
_WAVES = 4
_SETTINGS = {"spark.app.name": "spark-compact", "spark.sql.adaptive.enabled": "false"}


def run(options: CompactOptions) -> int:
    """Run the command, and return its exit status. Raises ToolError."""
    # PySpark and py4j log errors that are raised as well.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    written: list[Written] = []
    try:
        work = Compaction.of(options)
        for log, count in work.lost.items():
            complain(
                f"{count:,} messages of topic {log.topic} are missing: the store dropped them before they were compacted"
            )
        if work.groups:
            with quiet_session(options.master, {**_SETTINGS, **parse_conf(options.conf)}) as spark:
                written = work.run(spark)
    except (ArchiveError, OSError, SessionFailed) as error:
        raise ToolError(str(error)) from error
    print(_summary(written))
    return FAILED if work.lost else DONE


def _summary(written: Sequence[Written]) -> str:
    if not written:
        return "there is nothing new to compact"
    messages = sum(one.messages for one in written)
    size_bytes = sum(one.size_bytes for one in written)
    topics = len({one.log.topic for one in written})
    return f"compacted {messages:,} messages of {topics} topics into {len(written)} files, {size_text(size_bytes)}"


# ---- what there is


@dataclass
class _Found:
    """The sealed log files of some stores, and the epochs of each log: a table may know it by an earlier one."""

    sealed: list[SealedLog]
    names: dict[Log, list[Log]]


def _listed(options: CompactOptions, settings: Mapping[str, str]) -> _Found:
    """Raises ArchiveError."""
    storage = Storage(settings)
    others, stores = split_stores(options.store, storage, skips_damaged=options.skip_damaged)
    if others:
        raise ArchiveError(f"{others[0]} is no store of nsqd: it has no head.json")
    requested = Requested(frozenset(options.topic) or None)
    found = _Found([], {})
    topics = set()
    for store in stores:
        store.refresh()
        for info, part, store_id, epochs in store.logs():
            topics.add(info.topic)
            if not part.is_sealed or not requested.has_topic(info.topic):
                continue
            names = [Log(store_id, info.topic, epoch.number) for epoch in epochs]
            if names:
                log = names[-1]
            else:
                log = Log(store_id, info.topic, 0)
            found.names[log] = names or [log]
            found.sealed.append(SealedLog(log, part.first_seq, part.end_seq, info))
    missing = set(options.topic) - topics
    if missing:
        raise ArchiveError(f"there is no topic {min(missing)} in {' '.join(options.store)}")
    return found


def _done(table: Table, found: _Found) -> dict[Log, list[Span]]:
    """Return what the table has of each log, under whatever epoch. Raises OSError."""
    known = table.done(name for names in found.names.values() for name in names)
    done = {}
    for log, names in found.names.items():
        done[log] = [span for name in names for span in known.get(name, ())]
    return done


# ---- the work


@dataclass
class Compaction:
    """The work of one run. Methods raise ArchiveError and OSError.

    lost  messages that neither the stores nor the table have, by log
    """

    _options: CompactOptions
    _settings: Mapping[str, str]
    _table: Table
    _found: _Found
    _planned_on: Done
    groups: Sequence[Group]
    lost: Mapping[Log, int]

    @classmethod
    def of(cls, options: CompactOptions) -> Compaction:
        """Open the stores and the table, and plan what to do."""
        settings = {}
        for name, value in parse_conf(options.conf).items():
            if name.startswith(_HADOOP):
                settings[name.removeprefix(_HADOOP)] = value
        found = _listed(options, settings)
        table = open_table(options.table, options.output_dir, settings)
        done = _done(table, found)
        plan = plan_groups(found.sealed, done, options.file_size)
        return cls(options, settings, table, found, done, plan.groups, plan.lost)

    def run(self, spark: SparkSession) -> list[Written]:
        """Write all groups, and add the files to the table, some at a time, unless another run does so."""
        with alone_in(self._table.directory, self._settings) as mark:
            if _done(self._table, self._found) != self._planned_on:
                raise ArchiveError(
                    f"{self._table.directory}: another spark-compact has added to it since this one began: start it again"
                )
            self._table.clean()
            return self._run(spark, mark)

    def _run(self, spark: SparkSession, mark: Mark) -> list[Written]:
        written: list[Written] = []
        count = _WAVES * spark.sparkContext.defaultParallelism
        for low in range(0, len(self.groups), count):
            results = self._results(spark, self.groups[low : low + count])
            whole = list(_in_order(results))
            if whole:
                mark.check_alone()
                self._table.add(whole)
                written += whole
            _report(results)
            failed = [result for result in results if result.error]
            if failed:
                raise ArchiveError(
                    f"{failed[0].error} ({len(written)} files were added; the next run goes on)"
                )
        return written

    def _results(self, spark: SparkSession, groups: Sequence[Group]) -> list[Result]:
        """Return the outcomes of groups in their order."""
        storage = Storage(self._settings)
        compactor = Compactor(groups, storage, self._table.root, self._settings, self._options.skip_damaged)
        try:
            rows = partition_numbers(spark, groups).mapInArrow(compactor, RESULT).collect()
        except (PySparkException, Py4JError) as error:
            raise ArchiveError(f"Spark gave the job up: {first_line(error)}") from error
        results: list[Result] = [pickle.loads(row.result) for row in rows]
        return sorted(results, key=lambda result: result.number)


def _in_order(results: Iterable[Result]) -> Iterator[Written]:
    """Yield the files of each log up to the first that failed: a table has all messages before a number."""
    failed = set()
    for result in results:
        if result.written is None:
            failed.add(result.log)
        elif result.log not in failed:
            yield result.written


def _report(results: Iterable[Result]) -> None:
    for result in results:
        for path, skipped in result.skipped.items():
            complain(f"{path}: {skipped.records} damaged records left out, {skipped.size_bytes} bytes")
