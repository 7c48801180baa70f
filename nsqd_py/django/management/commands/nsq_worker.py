"""`manage.py nsq_worker`: runs the tasks of a backend, in this process or in several."""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.conf import ENVIRONMENT_VARIABLE
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from nsqd_py.client.errors import NsqClientError
from nsqd_py.django import framework
from nsqd_py.django.queues import BACKEND_VARIABLE, QUEUES_VARIABLE, THREADS_VARIABLE, worker_app

_NSQ_WORKER = (sys.executable, "-m", "nsq_apps.nsq_worker", "nsqd_py.django.worker:app")
_STOP_TIMEOUT_S = 25.0
_LEVELS = (logging.CRITICAL, logging.INFO, logging.DEBUG, logging.DEBUG)  # by --verbosity
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Command(BaseCommand):
    help = (
        "Runs the tasks of a backend whose BACKEND is nsqd_py.django.NsqBackend. SIGTERM or Ctrl-C once lets running tasks "
        "finish; twice returns them to nsqd, and they run again. With several processes, a process that ends is replaced."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--backend",
            default=framework.DEFAULT_TASK_BACKEND_ALIAS,
            help="Alias of the backend in TASKS (default: %(default)s)",
        )
        parser.add_argument(
            "--queues",
            type=_names,
            default=(),
            metavar="NAME,...",
            help="Queues to work on, separated by commas (default: all of the backend)",
        )
        parser.add_argument(
            "--processes",
            type=_count,
            default=1,
            metavar="N",
            help="Number of processes; more than one are started by nsq-worker (default: %(default)s, this one)",
        )
        parser.add_argument(
            "--threads",
            type=_count,
            default=1,
            metavar="N",
            help="Number of tasks of a queue that run at a time in a process (default: %(default)s)",
        )
        parser.add_argument(
            "--stop-timeout",
            type=_seconds,
            default=_STOP_TIMEOUT_S,
            metavar="SECONDS",
            help="Time that running tasks have to finish after SIGTERM or Ctrl-C (default: %(default)g)",
        )
        parser.add_argument(
            "--health-address",
            default="",
            metavar="HOST:PORT",
            help="Address to serve /healthz and /metrics of all processes on; nsq-worker does so",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until a signal. Raises CommandError for bad settings, and if the consumer of a queue has ended for good."""
        try:
            app = worker_app(options["backend"], options["queues"], options["threads"])
        except (ImproperlyConfigured, NsqClientError) as error:
            raise CommandError(str(error)) from error
        if options["processes"] > 1 or options["health_address"]:
            self._become_nsq_worker(options)
        # Without effect where the project's LOGGING has handlers for all. nsq-worker does so too.
        logging.basicConfig(level=_LEVELS[options["verbosity"]], format=_LOG_FORMAT)
        try:
            app.run(options["stop_timeout"])
        except NsqClientError as error:
            raise CommandError(str(error)) from error

    def _become_nsq_worker(self, options: dict[str, Any]) -> None:
        """Replace this program by nsq-worker, so that signals and the exit status are its own."""
        if not os.environ.get(ENVIRONMENT_VARIABLE):
            raise CommandError(
                f"several processes, and --health-address, need the settings in a module: set {ENVIRONMENT_VARIABLE}"
            )
        words = [
            *_NSQ_WORKER,
            f"--processes={options['processes']}",
            f"--stop-timeout={options['stop_timeout']}s",
        ]
        if options["health_address"]:
            words.append(f"--health-address={options['health_address']}")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            BACKEND_VARIABLE: options["backend"],
            QUEUES_VARIABLE: ",".join(options["queues"]),
            THREADS_VARIABLE: str(options["threads"]),
        }
        self.stdout.flush()
        os.execve(sys.executable, words, environment)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ArgumentTypeError(f"expected names of queues, separated by commas, got {text!r}")
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ArgumentTypeError(f"expected a number of seconds, got {text!r}")
    return seconds
