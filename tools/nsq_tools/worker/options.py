"""The settings of nsq-worker: the app, its processes, and those of dead letters."""

from __future__ import annotations

from nsqd_py.net.addresses import parse_host_port
from nsqd_py.settings.declaration import Options, at_least, not_negative, setting, strings, switch
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.program import LogOptions, ProgramOptions, log_prefix_setting
from nsqd_py.settings.tools import channel_setting
from nsqd_py.settings.types import DURATION, INT, STRING, STRINGS, URLS, Strings


def _check_health_address(address: str) -> None:
    """The check of --health-address; port 0 lets the system choose."""
    if address:
        parse_host_port(address, lowest_port=0)


class _App(Options, title="App"):
    app: Strings = setting(
        STRINGS,
        (),
        "App to run, as module:name, such as shop.work:app; the module is found from the current directory. Words before it "
        "ask for something else: check; run-once, with a handler after the app; dead list, dead show, dead replay or dead "
        "discard, with ids of dead letters after the app.",
    )
    processes: int = setting(INT, 1, "Number of processes that run the handlers.", check=at_least(1))
    stop_timeout_ns: int = setting(
        DURATION,
        25 * SECOND_NS,
        "Time that running handlers have to finish after SIGTERM or Ctrl-C; a second signal ends it. Messages that are not "
        "finished then come again.",
        check=not_negative,
    )
    reload: bool = switch("Restart the processes when a .py file in the directory of the app changes.")
    health_address: str = setting(
        STRING,
        "",
        "Address (host:port) to serve /healthz, /readyz and /metrics of all processes on.",
        check=_check_health_address,
    )


class _DeadLetters(Options, title="Dead letters"):
    topic: Strings = strings(
        "Dead-letter topic to use, such as orders.dead (may be given several times); by default those of all handlers.",
        short="t",
    )
    channel: str = channel_setting(
        "",
        "Channel of the dead-letter topics to take messages from; by default their only one, or nsqadmin where there is none.",
    )
    n: int = setting(
        INT, 100, "Maximum number of dead letters of a topic that dead list shows.", check=at_least(1)
    )
    all: bool = switch("Replay or discard all dead letters that wait at that time.", config_key="")
    nsqd_http_address: Strings = setting(
        URLS,
        (),
        "HTTP address of an nsqd to list dead letters of (may be given several times); by default those of the app's nsqds.",
    )


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[nsq_worker] ")


class WorkerOptions(ProgramOptions, _App, _DeadLetters, _Log):
    """The options of nsq-worker."""
