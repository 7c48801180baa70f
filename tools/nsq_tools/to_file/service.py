"""All topics of an nsq-to-file process, its start and its signals."""

from __future__ import annotations

import os
import pwd
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent

from nsq_tools.to_file.archive import Plan, Rotation
from nsq_tools.to_file.destinations import check_store, check_table
from nsq_tools.to_file.finishing import (
    FinishedFile,
    check_writable,
    filename_template,
    host_identifier,
    repair,
)
from nsq_tools.to_file.formats import FORMATS, FileFormat
from nsq_tools.to_file.options import (
    DATETIME,
    DEFAULT_DATETIME_FORMAT,
    DEFAULT_FILENAME_FORMAT,
    DEFAULT_SUFFIX,
    REV,
    ToFileOptions,
)
from nsq_tools.to_file.output import is_open_to_all, left_behind
from nsq_tools.to_file.topic_writer import Finisher, TopicWriter, describe
from nsqd_py.client.tool_checks import check_name, check_sources, client_options
from nsqd_py.errors import missing_package
from nsqd_py.net.http import HttpClientError
from nsqd_py.net.http.client import HttpClient, http_client, http_url
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.command import unblock_signals
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.process import StopSignals, log_uncaught_errors, tune_gc
from nsqd_py.runtime.threads import in_thread
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.program import DONE, FAILED, ToolError
from nsqd_py.settings.regex import compiled
from nsqd_py.stores.commits import package_of
from nsqd_py.stores.compression import CODECS, GZIP, NONE, Codec

_THREADS = 10
_PYARROW = ("pyarrow", "parquet")  # and its extra


def check(options: ToFileOptions) -> None:
    """Raise BadOptions if the options contradict each other."""
    check_sources(options)
    _check_topics(options)
    check_name(options.channel, "channel")
    plan = common_plan(options)
    _check_format(options, plan)
    text = options.filename_format.replace(DATETIME, plan.datetime_format)
    name = Path(text)
    is_file = bool(name.name) and not text.endswith("/")
    if name.is_absolute() or ".." in name.parts or not is_file:
        raise BadOptions(f"--filename-format must name a file in the output-dir, got '{text}'")
    if plan.has_revisions and REV not in options.filename_format:
        raise BadOptions(
            "missing <REV> in --filename-format when compression, rotation, a work-dir, an object store, or another format "
            "than lines and jsonl is in use"
        )


def _check_topics(options: ToFileOptions) -> None:
    if not (options.topic or options.topic_pattern):
        raise BadOptions("--topic or --topic-pattern required")
    if not (options.topic or options.lookupd_http_address):
        raise BadOptions("--lookupd-http-address must be specified when no --topic specified")
    for topic in options.topic:
        check_name(topic, "topic")


def _check_format(options: ToFileOptions, plan: Plan) -> None:
    if options.gzip and options.compress not in (NONE, GZIP):
        raise BadOptions(f"--gzip and --compress={options.compress} contradict each other")
    form = plan.form
    if plan.codec.name not in form.codecs:
        raise BadOptions(f"--format={form.name} takes --compress={' or '.join(form.codecs)}")
    if options.table and not form.convert:
        raise BadOptions("--table needs --format=parquet")
    if options.table:
        _check_package(f"--table={options.table}", *package_of(options.table))
    if form.convert:
        _check_package("--format=parquet", *_PYARROW)
    if plan.store:
        _check_package("an --output-dir in an object store", *_PYARROW)


def _check_package(flag: str, package: str, extra: str) -> None:
    missing = missing_package(package, extra)
    if missing:
        raise BadOptions(f"{flag} {missing.removeprefix('it ')}")


def common_plan(options: ToFileOptions) -> Plan:
    """Return the plan of all topics: `topic` is empty, and the template has all its words. Raises BadOptions."""
    form = FORMATS[options.format]
    codec = CODECS[GZIP if options.gzip else options.compress]
    store = ""
    if "://" in options.output_dir:
        store = options.output_dir.rstrip("/")
    if store:
        flag, given = "work-dir", options.work_dir
    else:
        flag, given = "output-dir", options.output_dir
    output_dir = given or _default_directory(flag)
    work_dir = options.work_dir or output_dir
    is_plain = form.is_appendable and codec.is_plain
    is_shared = is_plain and work_dir == output_dir and not store and options.rotate_interval_ns <= 0
    if codec.name == GZIP:
        level = options.gzip_level
    else:
        level = options.zstd_level
    return Plan(
        topic="",
        channel=options.channel,
        template=_filename_format(options, form, codec),
        datetime_format=_datetime_format(options),
        work_dir=Path(work_dir),
        output_dir=Path(output_dir),
        form=form,
        codec=codec,
        level=level,
        rotation=Rotation(max(0, options.rotate_size), max(0, options.rotate_interval_ns)),
        is_shared=is_shared,
        has_revisions=not is_shared or options.rotate_size > 0,
        skips_empty=options.skip_empty_files or bool(options.table),
        store=store,
        table=options.table,
        is_utc=options.datetime_utc,
        client=client_options(options.consumer_opt, "consumer-opt"),
    )


def _filename_format(options: ToFileOptions, form: FileFormat, codec: Codec) -> str:
    """Return the --filename-format, with the ending of the format and the codec."""
    name = options.filename_format
    if name == DEFAULT_FILENAME_FORMAT:
        name = name.removesuffix(DEFAULT_SUFFIX) + form.suffix
    if not form.is_appendable or name.endswith(codec.suffix):
        return name
    return name + codec.suffix


def _datetime_format(options: ToFileOptions) -> str:
    """Return the --datetime-format. The default says that it is in UTC if it is."""
    is_utc_by_default = options.datetime_utc and options.datetime_format == DEFAULT_DATETIME_FORMAT
    return options.datetime_format + ("Z" if is_utc_by_default else "")


def _default_directory(flag: str) -> str:
    """Return a directory that belongs to the user. Raises BadOptions if the user has no home directory.

    In /tmp, the default of Go's nsq_to_file, everyone can write, and it is emptied.
    """
    data = os.environ.get("XDG_DATA_HOME", "")
    home = os.environ.get("HOME") or _home_in_passwd()
    if not os.path.isabs(data):
        if not os.path.isabs(home):
            raise BadOptions(
                f"--{flag} required: its default is in the home directory of the user, and this one has none"
            )
        data = os.path.join(home, ".local/share")
    return os.path.join(data, "nsq-to-file")


def _home_in_passwd() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container may run as any user
        return ""


def run(options: ToFileOptions, log: Log) -> int:
    return Service(options, log).run()


class Service:
    """Archives all topics of a process until a signal."""

    def __init__(self, options: ToFileOptions, log: Log) -> None:
        self._options = options
        self._log = log
        self._common = common_plan(options)
        self._writers: list[TopicWriter] = []
        self._seen: set[str] = set()  # the topics that have a writer, or do not match the pattern
        self._warned: set[str] = set()
        if options.topic_pattern:
            self._pattern: Any = compiled(options.topic_pattern)
        else:
            self._pattern = None
        self._signals = StopSignals()
        self._threadpool = gevent.get_hub().threadpool
        self._threadpool.maxsize = _THREADS
        self._finisher = Finisher("repair", self._threadpool, log)  # of files that earlier runs left behind

    def run(self) -> int:
        """Archive until a signal. Return the exit status. Raises ToolError."""
        log_uncaught_errors(gevent.get_hub(), self._log)
        with self._signals as signals:
            self._check_directories()
            repaired: list[FinishedFile] = []
            in_thread(self._threadpool, self._repair, repaired)
            for file in repaired:
                self._finisher.add(file)
            if repaired:
                self._finisher.has_tried.wait()
            tune_gc()
            on_hup = gevent.signal_handler(signal.SIGHUP, self._reopen)
            unblock_signals()
            try:
                self._update(list(self._options.topic))
                if self._options.topic and not self._writers:
                    raise ToolError(f"no --topic matches --topic-pattern {self._options.topic_pattern!r}")
                self._watch(signals)
                self._stop()
            finally:
                on_hup.cancel()
        has_failed = self._finisher.has_failed or any(writer.has_failed for writer in self._writers)
        return FAILED if has_failed else DONE

    # --- start

    def _check_directories(self) -> None:
        if not self._options.output_dir:
            self._log.info("writing to %s, since there is no --output-dir", self._common.output_dir)
        for directory in dict.fromkeys((self._common.output_dir, self._common.work_dir)):
            try:
                check_writable(directory)
            except OSError as error:
                raise ToolError(f"cannot write to {directory}: {error.strerror}") from error
            if is_open_to_all(directory):
                self._log.warning(
                    "everyone can write to %s, and so can replace or remove what is archived there; give a directory "
                    "that only this user and its group can write to",
                    directory,
                )
        try:
            in_thread(self._threadpool, self._check_destinations)
        except OSError as error:
            raise ToolError(f"cannot use {describe(error)}") from error

    def _check_destinations(self) -> None:
        plan = self._common
        if plan.store:
            check_store(plan.store)
        if plan.table:
            check_table(plan.table, plan.store or str(plan.output_dir.resolve()))

    def _repair(self, repaired: list[FinishedFile]) -> None:
        """Repair the files that earlier runs left unfinished. Those that cannot be repaired are left for the next start."""
        for claim in left_behind(self._common.work_dir, self._common.output_dir, report=self._log.warning):
            try:
                file = repair(claim)
            except Exception as error:  # noqa: BLE001 - no file of an earlier run may keep this one from its messages
                self._finisher.has_failed |= not isinstance(error, OSError)
                self._log.error(
                    "cannot repair %s: %s; it stays as it is", claim.details.work_name, describe(error)
                )
                claim.drop()
            else:
                if file:
                    repaired.append(file)

    # --- topics

    def _watch(self, signals: StopSignals) -> None:
        """Add new topics until a stop signal."""
        if self._options.topic:
            signals.wait()
            return
        client = http_client(self._options, self._log.error)
        while not signals.is_asked:
            topics: set[str] = set()
            with signals.cutting():
                for address in self._options.lookupd_http_address:
                    topics.update(self._listed(client, address))
            if not signals.is_asked:
                self._update(sorted(topics))
            signals.wait(self._options.topic_refresh_ns / SECOND_NS)

    def _listed(self, client: HttpClient, address: str) -> list[str]:
        """Return the topics of an nsqlookupd; none, and a log line, if it does not answer."""
        url = http_url(address, "/topics")
        try:
            topics = client.ask(url)["topics"]
            return [
                topic
                for topic in topics
                if isinstance(topic, str) and is_valid_name(topic.encode(errors="replace"))
            ]
        except (HttpClientError, TypeError, KeyError) as error:
            self._log.error("could not retrieve topic list from %s: %s", url.origin, error)
            return []

    def _update(self, topics: list[str]) -> None:
        for topic in topics:
            if topic in self._seen:
                continue
            self._seen.add(topic)
            if self._pattern is None or self._pattern.search(topic):
                plan = self._plan(topic)
                writer = TopicWriter(
                    plan, self._options, self._threadpool, self._warn_once, self._log, self._signals.stop
                )
                self._writers.append(writer)
                writer.start()
            else:
                # For a topic of --topic this is likely a mistake; topics of nsqlookupds are meant to be filtered.
                if self._options.topic:
                    say = self._log.warning
                else:
                    say = self._log.debug
                say("skipping topic %s (doesn't match pattern %s)", topic, self._options.topic_pattern)

    def _plan(self, topic: str) -> Plan:
        plan = self._common
        host = host_identifier(self._options.host_identifier, socket.gethostname())
        template = filename_template(plan.template, topic, host, has_revisions=plan.has_revisions)
        return replace(plan, topic=topic, template=template)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._log.warning("%s", text)

    # --- signals

    def _reopen(self) -> None:
        for writer in self._writers:
            writer.reopen()

    def _stop(self) -> None:
        for writer in self._writers:
            writer.stop()
        for writer in self._writers:
            writer.join()
        self._finisher.stop()
