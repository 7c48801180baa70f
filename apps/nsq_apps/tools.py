"""The commands of the tools: each is a function that runs the tool until it ends, and returns the exit status."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nsqd_py.runtime.command import RELOAD, begin

Run = Callable[[Any, object], int]


def _run(
    package: str, check: str, run: str | Run, argv: Sequence[str] | None = None, held: tuple[signal.Signals, ...] = ()
) -> int:
    """Run a tool. Its package declares its options; `check` and `run` are functions, as `module:name`.

    held  the signals that wait until it has started
    """
    begin(held)  # before the imports, which take most of the start
    program = importlib.import_module(f"{package}.options").PROGRAM
    return int(_lazily("nsq_apps.starting:run_tool")(program, _lazily(check), run if callable(run) else _lazily(run), argv))


def _lazily(place: str) -> Callable[..., Any]:
    """Return a function that imports its module when it is called.

    --version and --help do not wait for gevent, 40 ms.
    """
    module, _, name = place.partition(":")

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call


def _tail(options: Any, log: object) -> int:
    """Run nsq-tail. Only --since and --last read over HTTP, whose client and TLS take 15 ms to import."""
    module = "log_tailing" if options.since_ns or options.last else "tailing"
    return int(_lazily(f"nsq_tools.tail.{module}:run")(options, log))


nsq_cat = partial(_run, "nsq_tools.cat", "nsq_tools.tail.rendering:check_shown", "nsq_tools.cat.reading:run")
nsq_stat = partial(_run, "nsq_tools.stat", "nsq_tools.stat.reports:check", "nsq_tools.stat.reports:run")
nsq_tail = partial(_run, "nsq_tools.tail", "nsq_tools.tail.tailing:check", _tail)
nsq_to_file = partial(_run, "nsq_tools.to_file", "nsq_tools.to_file.service:check", "nsq_tools.to_file.service:run", held=RELOAD)
nsq_to_http = partial(_run, "nsq_tools.to_http", "nsq_tools.to_http.requests:check", "nsq_tools.to_http.run:run")
nsq_to_nsq = partial(_run, "nsq_tools.nsq_to_nsq", "nsq_tools.nsq_to_nsq.forwarder:check", "nsq_tools.nsq_to_nsq.forwarder:run")
to_nsq = partial(_run, "nsq_tools.to_nsq", "nsq_tools.to_nsq.publisher:check", "nsq_tools.to_nsq.publisher:run")


def spark_replay(argv: Sequence[str] | None = None) -> int:
    """Run spark-replay until it ends. Return the exit status."""
    begin()
    words = sys.argv[1:] if argv is None else argv

    def run(options: Any, log: object) -> int:
        shown = _lazily("nsqd_py.settings.flags:shown_words")(words, options.settings.values())
        return int(_lazily("nsq_spark.replay.command:run")(options, shown))

    program = importlib.import_module("nsq_spark.replay.options").PROGRAM
    return int(_lazily("nsq_apps.starting:run_tool")(program, _lazily("nsq_spark.replay.options:check"), run, words))
