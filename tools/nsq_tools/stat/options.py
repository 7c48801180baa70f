"""The settings of nsq-stat. Those that Go's nsq_stat has are named and checked as there."""

from __future__ import annotations

from nsq_tools.cli import BadUsage
from nsq_tools.options import HTTP_TIMEOUTS, HTTP_TLS, http_client, http_url
from nsq_tools.stat.selection import SORT_KEYS, BadPattern, Filter, Order
from nsqd_py.settings.declaration import Options, Program, Setting
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.types import BOOL, DURATION, INT, STRING, STRINGS, choice

GO, TABLE, CSV, JSON, LIVE = "go", "table", "csv", "json", "live"
AUTO = ""
_FORMAT = choice({AUTO: AUTO, GO: GO, TABLE: TABLE, CSV: CSV, JSON: JSON}, word="format")


def _check_sort(value: str) -> str | None:
    try:
        Order.parse(value)
    except BadPattern as error:
        return f"--sort: {error}"
    return None


def _check_filters(value: tuple[str, ...]) -> str | None:
    try:
        Filter(value)
    except BadPattern as error:
        return f"--filter: {error}"
    return None


# fmt: off
_SOURCES = (
    Setting("nsqd-http-address", STRINGS, (),
        "HTTP address (host:port) of an nsqd (may be given several times); https://host:port for TLS."),
    Setting("lookupd-http-address", STRINGS, (),
        "HTTP address (host:port) of an nsqlookupd that knows the nsqd (may be given several times); "
        "https://host:port for TLS."),
    *HTTP_TIMEOUTS,
    *HTTP_TLS,
)
_SELECTION = (
    Setting("topic", STRING, "", "NSQ topic; all by default."),
    Setting("channel", STRING, "", "NSQ channel; all by default."),
    Setting("filter", STRINGS, (),
        "Show only topics and channels that match (may be given several times): a glob such as orders* or "
        "*/archive, for the topic, the channel, or both with a slash between; or /a regular expression/.",
        check=_check_filters),
    Setting("sort", STRING, "topic",
        f"Column to sort by, the largest first; with a - before it, the smallest first: {', '.join(SORT_KEYS)}.",
        check=_check_sort),
    Setting("per-node", BOOL, False, "A row for each nsqd, not the sum over all."),
)
_REPORTS = (
    Setting("interval", DURATION, 2 * SECOND_NS, "Time between two reports."),
    Setting("count", INT, None, "Number of reports, after which it ends.", default_text="no limit"),
    Setting("once", BOOL, False, "Report what is now, and end; rates are not known then (--count=1 knows them)."),
    Setting("format", _FORMAT, AUTO,
        "Form of reports: go (the lines of Go's nsq_stat), table, csv, or json (an object a line).",
        default_text="a live table on a terminal, go in a pipe, table with --once"),
)
# fmt: on

PROGRAM = Program(
    "nsq_stat",
    "nsq-stat",
    "Show what topics and channels are doing, over many nsqd. On a terminal it is a live table with rates and the "
    "course of each depth. Its keys: q quits; s sorts by the next column, r turns the order round; the arrow keys, "
    "Page Up, Page Down, Home and End scroll; / begins a filter, which is a part of a name, a glob or /a regular "
    "expression/, Enter keeps it, Esc drops it. Where the terminal is narrow, columns are left out, and no figure is "
    "cut. In a pipe it writes the lines of Go's nsq_stat, or tables, CSV or JSON.",
    {"Sources": _SOURCES, "Selection": _SELECTION, "Reports": _REPORTS},
    examples=(
        ("Watch everything that a cluster does, the deepest first",
         "nsq-stat --lookupd-http-address=127.0.0.1:4161 --sort=depth", 'run: until="orders" then="q"'),
        ("One channel, in the lines of Go's nsq_stat",
         "nsq-stat --nsqd-http-address=127.0.0.1:4151 --topic=orders --channel=archive | tee stat.log",
         'run: until="\\d"'),
        ("All depths at this moment, for a script",
         "nsq-stat --lookupd-http-address=127.0.0.1:4161 --once --format=json"),
        ("Rates over two seconds, nsqd by nsqd, of some topics",
         "nsq-stat --lookupd-http-address=127.0.0.1:4161 --filter='orders*' --per-node --interval=2s --count=1 "
         "--format=csv"),
    ),
)  # fmt: skip

_POSITIVE = (
    ("interval", "interval_ns"),
    ("http-client-connect-timeout", "http_client_connect_timeout_ns"),
    ("http-client-request-timeout", "http_client_request_timeout_ns"),
    ("count", "count"),
)


def check_options(options: Options) -> None:
    """Raises BadUsage where the options do not fit together."""
    for flag, attribute in _POSITIVE:
        value = getattr(options, attribute)
        if value is not None and value <= 0:
            raise BadUsage(f"--{flag} should be positive")
    _check_addresses(options)
    if options.once and options.count is not None:
        raise BadUsage("use --once or --count not both")
    http_client(options)  # its files have to be there


def _check_addresses(options: Options) -> None:
    nsqd, lookupd = options.nsqd_http_address, options.lookupd_http_address
    if not nsqd and not lookupd:
        raise BadUsage("--nsqd-http-address or --lookupd-http-address required")
    if nsqd and lookupd:
        raise BadUsage("use --nsqd-http-address or --lookupd-http-address not both")
    for flag, addresses in (("nsqd-http-address", nsqd), ("lookupd-http-address", lookupd)):
        if any(address.startswith("http://") for address in addresses):
            raise BadUsage(f"--{flag} error - address should not contain scheme")
        for address in addresses:
            http_url(address)


def form_of(options: Options, *, on_terminal: bool) -> str:
    """How reports are written: what was asked for, or what fits the place where they go."""
    if options.format != AUTO:
        return str(options.format)
    if options.once:
        return TABLE
    return LIVE if on_terminal else GO
