"""All topics of an nsq-to-file process, its start and its signals."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gevent

from nsq_tools.cli import DONE, FAILED, ToolError
from nsq_tools.options import client_options, http_client, http_url, user_agent
from nsq_tools.to_file.archive import Archive, Plan, Rotation
from nsq_tools.to_file.claims import Claim, is_open_to_all
from nsq_tools.to_file.compression import CODECS
from nsq_tools.to_file.finishing import check_writable, left_behind, repair
from nsq_tools.to_file.formats import FORMATS
from nsq_tools.to_file.naming import filename_template, host_identifier
from nsq_tools.to_file.options import (
    ToFileOptions,
    codec_level,
    codec_name,
    compiled_pattern,
    filename_format,
    has_revisions,
    is_shared,
    output_dir,
    work_dir,
)
from nsq_tools.to_file.portions import SourceBatch
from nsq_tools.to_file.topic_writer import TopicWriter, describe
from nsqd_py.client.gevent import Consumer
from nsqd_py.net.http.client import HttpClient, HttpClientError, Url
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.command import release_signals
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.process import StopSignals, calm_collector, log_uncaught_errors
from nsqd_py.runtime.threads import in_thread


class TopicWatch:
    """The topics of all nsqlookupds. One that does not answer is logged and skipped."""

    def __init__(self, client: HttpClient, urls: Sequence[Url], log: Log) -> None:
        self._client = client
        self._urls = urls
        self._log = log

    def topics(self) -> list[str]:
        """Return the sorted names. Empty if no nsqlookupd answers."""
        return sorted({topic for url in self._urls for topic in self._ask(url)})

    def _ask(self, url: Url) -> list[str]:
        try:
            return _valid_topics(self._client.ask(url))
        except HttpClientError as error:
            self._log.error("could not retrieve topic list from %s: %s", url.place, error)
            return []


def _valid_topics(answer: Any) -> list[str]:
    topics = answer.get("topics") if isinstance(answer, dict) else None
    if not isinstance(topics, list):
        raise HttpClientError("the answer has no list of topics")
    return [topic for topic in topics if isinstance(topic, str) and is_valid_name(topic.encode(errors="replace"))]


_NS = 1e9
_THREADS = 10


class Service:
    """Archives all topics of a process until a signal."""

    def __init__(self, options: ToFileOptions, log: Log) -> None:
        self._options = options
        self._log = log
        self._output_dir = Path(output_dir(options))
        self._work_dir = Path(work_dir(options))
        self._writers: dict[str, TopicWriter] = {}
        self._refused: set[str] = set()
        self._warned: set[str] = set()
        self._pattern: Any = compiled_pattern(options.topic_pattern)
        self._threadpool = gevent.get_hub().threadpool
        self._threadpool.maxsize = _THREADS

    def run(self) -> int:
        """Archive until a signal. Return the exit status. Raises ToolError."""
        log_uncaught_errors(gevent.get_hub(), self._log)
        with StopSignals() as signals:
            self._check_directories()
            self._repair()
            calm_collector()
            on_hup = gevent.signal_handler(signal.SIGHUP, self._reopen)
            release_signals()
            try:
                self._update(list(self._options.topic))
                if self._options.topic and not self._writers:
                    raise ToolError(f"no --topic matches --topic-pattern {self._options.topic_pattern!r}")
                self._watch(signals)
                self._stop()
            finally:
                on_hup.cancel()
        return FAILED if any(writer.has_failed for writer in self._writers.values()) else DONE

    # --- start

    def _check_directories(self) -> None:
        if not self._options.output_dir:
            self._log.info("writing to %s, since there is no --output-dir", self._output_dir)
        for directory in dict.fromkeys((self._output_dir, self._work_dir)):
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

    def _repair(self) -> None:
        """Finish the files that earlier runs left unfinished. Those that fail are left for the next start."""
        for claim in left_behind(self._work_dir, self._output_dir, report=self._log.warning):
            try:
                in_thread(self._threadpool, self._repair_one, claim)
            except OSError as error:
                self._log.error("cannot repair %s: %s; it stays as it is", claim.details.work_name, describe(error))
                claim.drop()

    def _repair_one(self, claim: Claim) -> None:
        file = repair(claim)
        if file is not None:
            entry = file.finish()
            self._log.warning(
                "finished %s, which an earlier run left behind: %d messages, %d torn bytes cut off",
                entry.path,
                entry.messages,
                entry.cut_bytes,
            )

    # --- topics

    def _watch(self, signals: StopSignals) -> None:
        """Add new topics until a stop signal."""
        if self._options.topic:
            signals.wait()
            return
        urls = [http_url(address, "/topics") for address in self._options.lookupd_http_address]
        watch = TopicWatch(http_client(self._options), urls, self._log)
        self._update(watch.topics())
        while not signals.wait(self._options.topic_refresh_ns / _NS):
            self._update(watch.topics())

    def _update(self, topics: list[str]) -> None:
        for topic in topics:
            if topic in self._writers or topic in self._refused:
                continue
            if self._pattern.search(topic):
                self._writers[topic] = self._writer(topic)
                self._writers[topic].start()
            else:
                self._refused.add(topic)
                # For a topic of --topic this is likely a mistake; topics of nsqlookupds are meant to be filtered.
                say = self._log.warning if self._options.topic else self._log.debug
                say("skipping topic %s (doesn't match pattern %s)", topic, self._options.topic_pattern)

    def _writer(self, topic: str) -> TopicWriter:
        options, plan = self._options, self._plan(topic)
        return TopicWriter(
            f"{topic}/{options.channel}",
            lambda on_batch: self._consumer(topic, on_batch),
            Archive(plan, self._log, self._warn_once, time.time_ns),
            gathers=plan.form.gathers or not plan.codec.is_plain,
            max_in_flight=options.max_in_flight,
            sync_interval_s=options.sync_interval_ns / _NS,
            threadpool=self._threadpool,
            clock_s=time.monotonic,
            log=self._log,
        )

    def _plan(self, topic: str) -> Plan:
        options = self._options
        host = host_identifier(options.host_identifier, socket.gethostname())
        return Plan(
            topic=topic,
            channel=options.channel,
            template=filename_template(filename_format(options), topic, host, os.getpid(), has_revisions=has_revisions(options)),
            datetime_format=options.datetime_format,
            work_dir=self._work_dir,
            output_dir=self._output_dir,
            form=FORMATS[options.format],
            codec=CODECS[codec_name(options)],
            level=codec_level(options),
            rotation=Rotation(max(0, options.rotate_size), max(0, options.rotate_interval_ns)),
            is_shared=is_shared(options),
            skips_empty=options.skip_empty_files,
        )

    def _consumer(self, topic: str, on_batch: Callable[[SourceBatch], None]) -> Consumer:
        options = self._options
        settings = client_options(
            options.consumer_opt,
            "consumer-opt",
            user_agent=user_agent("nsq_to_file"),
            lookupd_poll_timeout=f"{options.http_client_request_timeout_ns}ns",
        ).with_settings(max_in_flight=options.max_in_flight, max_attempts=0)
        return Consumer(
            topic,
            options.channel,
            batch_handler=on_batch,
            nsqd_tcp_addresses=options.nsqd_tcp_address,
            lookupd_http_addresses=options.lookupd_http_address,
            options=settings,
            log=self._log,
        )

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._log.warning("%s", text)

    # --- signals

    def _reopen(self) -> None:
        for writer in self._writers.values():
            writer.reopen()

    def _stop(self) -> None:
        for writer in self._writers.values():
            writer.stop()
        for writer in self._writers.values():
            writer.join()
