"""The settings of nsq-stat. Those that Go's nsq_stat has are named and checked as there."""

from __future__ import annotations

from nsq_tools.stat.rows import VALUES, Filter, Order
from nsqd_py.cluster.problems.limits import DEFAULT_MAX_MESSAGE_AGE_NS, check_ages
from nsqd_py.cluster.problems.of_standbys import LAGGING_AFTER_S
from nsqd_py.net.tls_options import HttpClientOptions
from nsqd_py.settings.completion import channel_names, topic_names
from nsqd_py.settings.declaration import Options, at_least, positive, setting, string, strings, switch, urls
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.kinds import ByTopic, by_topic, choice
from nsqd_py.settings.program import ProgramOptions
from nsqd_py.settings.types import DURATION, INT, STRING, Strings

GO = "go"
TABLE = "table"
CSV = "csv"
JSON = "json"
LIVE = "live"
AUTO = ""
_FORMAT = choice({AUTO: AUTO, GO: GO, TABLE: TABLE, CSV: CSV, JSON: JSON}, word="format")


def _check_sort(value: str) -> str | None:
    Order.parse(value)
    return None


def _check_filters(value: Strings) -> str | None:
    Filter(value)
    return None


class _Sources(Options, title="Sources"):
    nsqd_http_address: Strings = urls(
        "HTTP address (host:port) of an nsqd (may be given several times); https://host:port for TLS."
    )
    lookupd_http_address: Strings = urls(
        "HTTP address (host:port) of an nsqlookupd that lists the nsqds (may be given several times); https://host:port for TLS."
    )


class _Http(HttpClientOptions, title="HTTP"):
    """The settings of requests to them."""


class _Selection(Options, title="Selection"):
    topic: str = string("NSQ topic; by default all.", short="t", complete=topic_names)
    channel: str = string("NSQ channel; by default all.", short="c", complete=channel_names)
    filter: Strings = strings(
        "Show only topics and channels that match (may be given several times). A filter is a glob for the topic or "
        "the channel (orders*), a glob for both (*/archive), or /a regular expression/.",
        check=_check_filters,
    )
    sort: str = setting(
        STRING,
        "topic",
        f"Column to sort by, largest first; with a - before it, smallest first: {', '.join(VALUES)}.",
        check=_check_sort,
    )
    per_node: bool = switch("Show a row for each nsqd instead of the sum.")


class _Standbys(Options, title="Standbys"):
    standbys: bool = switch("Report primaries and their standbys instead of topics and channels.")
    max_standby_lag_ns: int = setting(
        DURATION,
        int(LAGGING_AFTER_S * SECOND_NS),
        "Lag from which a standby counts as a failure: --once ends with exit status 1. A standby that "
        "is disconnected or incomplete, and a primary that lacks standbys, always count.",
        check=positive,
    )


class _Reports(Options, title="Reports"):
    interval_ns: int = setting(DURATION, 2 * SECOND_NS, "Time between two reports.", check=positive)
    count: int | None = setting(
        INT,
        None,
        "Number of reports, after which nsq-stat exits.",
        default_text="no limit",
        check=at_least(1),
    )
    once: bool = switch("Report the current state and exit. There are no rates then; --count=1 shows rates.")
    check: bool = switch(
        "Like --once, and report on standard error what nsqadmin lists under Attention: an nsqd that does not answer or "
        "refuses publishes, a full disk, channels that are stuck, old, paused or without a consumer, dead letters, "
        "standbys, stores, certificates. The exit status is that of a Nagios plugin: 0, 1 if there are warnings, 2 if there are "
        "errors. --topic, --channel and --filter choose the topics and channels that are checked."
    )
    max_message_age_ns: ByTopic[int] = setting(
        by_topic(DURATION, DEFAULT_MAX_MESSAGE_AGE_NS),
        ByTopic(DEFAULT_MAX_MESSAGE_AGE_NS),
        "Age from which the oldest waiting message of a channel is a warning of --check and of the live table; 0s means "
        "never. With topic=, for topics with that name or pattern (`reports.*=24h`; may be given several times).",
        check=check_ages,
    )
    format: str = setting(
        _FORMAT,
        AUTO,
        "Format of reports: go (the lines of Go's nsq_stat), table, csv, or json (one object a line).",
        default_text="a live table on a terminal, go in a pipe, table with --once",
    )


class StatOptions(ProgramOptions, _Sources, _Http, _Selection, _Standbys, _Reports):
    """The options of nsq-stat."""


def form_of(options: StatOptions, *, on_terminal: bool) -> str:
    """Return the format of reports: that of --format, or the default for this output."""
    if options.format != AUTO:
        return str(options.format)
    if options.once or options.check or options.standbys:
        return TABLE
    return LIVE if on_terminal else GO
