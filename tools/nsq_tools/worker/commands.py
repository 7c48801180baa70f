"""What each verb of the command line does."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from nsq_tools.worker.options import WorkerOptions
from nsq_tools.worker.words import CHECK, RUN, RUN_ONCE, Task, parse_words
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.lookup import nodes_url
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.settings.declaration import bad_options, check_package
from nsqd_py.settings.durations import SECOND_NS

if TYPE_CHECKING:
    from nsq_tools.worker.supervisor import Supervisor


def check(options: WorkerOptions) -> None:
    """Raise BadOptions if the options cannot be used."""
    parse_words(options.app, takes_all=options.all)
    for address in options.nsqd_http_address:
        with bad_options("--nsqd-http-address: ", BadClientOption):
            nodes_url(address)
    if options.health_address:
        check_package("prometheus_client", "work", "--health-address")
    if options.reload:
        check_package("watchfiles", "work", "--reload")


def run(options: WorkerOptions, log: Log) -> int:
    """Do what the words ask for. Return the exit status. Raises ToolError."""
    task = parse_words(options.app, takes_all=options.all)
    if task.verb == RUN:
        return _supervise(task, options, log)
    if task.verb == CHECK:
        from nsq_tools.worker.checking import check_app

        return check_app(task.app)
    if task.verb == RUN_ONCE:
        from nsq_tools.worker.run_once import run_once

        return run_once(task.app, task.rest[0])
    from nsq_tools.worker.dead import settle_dead_letters

    return settle_dead_letters(task, options, log)


def _supervise(task: Task, options: WorkerOptions, log: Log) -> int:
    """Run the app in child processes. Raises ToolError."""
    from nsq_tools.worker.children import ChildSettings
    from nsq_tools.worker.supervisor import Supervisor

    settings = ChildSettings(
        options.stop_timeout_ns / SECOND_NS, options.log_level, options.log_format, options.log_prefix
    )
    supervisor = Supervisor(task.app, options.processes, settings, log, reloads=options.reload)
    if options.health_address:
        from nsq_tools.worker.health import HealthServer  # with http.server and prometheus-client

        server = HealthServer(options.health_address, lambda: supervisor.board, log)
        server.start()
        log.info("HTTP: listening on %s", server.address)
    if options.reload:
        from nsq_tools.worker.apps import directory_of

        directory = directory_of(task.app)
        Thread(target=_watch, args=(directory, supervisor), name="reload", daemon=True).start()
        log.info("watching %s", directory)
    return supervisor.run()


def _watch(directory: Path, supervisor: Supervisor) -> None:
    """Notify the supervisor of changed files, until the process ends."""
    from watchfiles import PythonFilter, watch

    for changes in watch(directory, watch_filter=PythonFilter(), raise_interrupt=False):
        supervisor.file_changed(min(path for _, path in changes))
