"""OPTIONS of a backend: each read and checked on its own, so that the system check can name all that is wrong at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from nsqd_py.client.addresses import address_list
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.lookup import addresses_of
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.names import DEAD_LETTERS_SUFFIX, MAX_NAME_LENGTH, is_ephemeral, is_valid_name
from nsqd_py.work import Retry
from nsqd_py.work.timed.later import later_topic
from nsqd_py.work.timed.scheduler import due_topic, schedules_topic

DATABASE = "database"
CACHE = "cache"
DEFAULT_CACHE = "default"
DEFAULT_DATABASE = "default"
_LONGEST_TOPIC = MAX_NAME_LENGTH - len(DEAD_LETTERS_SUFFIX)
_DAY_S = 86400.0
_BAD_ADDRESS = "nsqd_py.E002"
_BAD_VALUE = "nsqd_py.E004"


class Problem(NamedTuple):
    """One thing that is wrong with a backend's settings: an id of the system check, a sentence, and the remedy."""

    id: str
    text: str
    hint: str = ""


class BadOption(ValueError):
    """A value of an option; str() has it, and what is expected. The name of the option is added by the caller."""


class ResultPlace(NamedTuple):
    """Where results are stored: `kind` is DATABASE or CACHE, `alias` that of a cache."""

    kind: str
    alias: str = ""


# ---- kinds of values


def _read_nsqds(value: Any) -> tuple[str, ...]:
    return addresses_of("task backend", _some_addresses(value), ())[0]


def _read_lookupds(value: Any) -> tuple[str, ...]:
    return addresses_of("task backend", (), _some_addresses(value))[1]


def _some_addresses(value: Any) -> Iterable[str]:
    addresses = address_list(value)
    if not addresses:
        raise BadOption("the list is empty: name at least one address, or leave the option out")
    return addresses


def _read_prefix(value: Any) -> str:
    text = _read_str(value)
    if text and not is_valid_name(text.encode("utf-8", "surrogateescape")):
        raise BadOption(f"{text!r} cannot begin a topic: use letters, digits, '.', '_' and '-'")
    return text


def _read_channel(value: Any) -> str:
    text = _read_str(value)
    if not is_valid_name(text.encode("utf-8", "surrogateescape")):
        raise BadOption(
            f"{text!r} cannot be a channel: use up to {MAX_NAME_LENGTH} letters, digits, '.', '_' and '-'"
        )
    return text


def _read_on_commit(value: Any) -> str:
    if value is True:
        return DEFAULT_DATABASE
    if value is False:
        return ""
    if isinstance(value, str):
        return value
    raise BadOption(f"expected True, False or the alias of a database, got {value!r}")


def _read_retry(value: Any) -> Retry:
    if isinstance(value, Retry):
        return value
    if not isinstance(value, Mapping):
        raise BadOption(f"expected the arguments of nsqd_py.work.Retry as a dict, got {value!r}")
    names = [each.name for each in fields(Retry)]
    unknown = sorted(set(map(str, value)) - set(names))
    if unknown:
        raise BadOption(f"nsqd_py.work.Retry has no argument {unknown[0]!r} (there are {', '.join(names)})")
    try:
        return Retry(**value)
    except (TypeError, ValueError) as error:
        raise BadOption(str(error)) from error


def _read_seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BadOption(f"expected a number of seconds above 0, got {value!r}")
    return value


def _read_results(value: Any) -> ResultPlace | None:
    if value is None or value == DATABASE:
        return ResultPlace(DATABASE) if value else None
    kind, separator, alias = value.partition(":") if isinstance(value, str) else ("", "", "")
    if kind != CACHE or (separator and not alias):
        raise BadOption(f"expected 'database', 'cache' or 'cache:<alias>', got {value!r}")
    return ResultPlace(CACHE, alias or DEFAULT_CACHE)


def _read_client(value: Any) -> ClientOptions:
    if not isinstance(value, Mapping):
        raise BadOption(f"expected settings of connections as a dict, got {value!r}")
    return ClientOptions.of(**value)


def _read_str(value: Any) -> str:
    if not isinstance(value, str):
        raise BadOption(f"expected a str, got {value!r}")
    return value


def _option(read: Callable[[Any], Any], default: Any, problem_id: str = _BAD_VALUE) -> Any:
    """Declare an option; `problem_id` is that of the system check for a bad value."""
    return field(default=default, metadata={"read": read, "id": problem_id})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """OPTIONS of one backend.

    nsqd_tcp_addresses, lookupd_http_addresses   without both, NSQD_TCP_ADDRESS or NSQLOOKUPD_HTTP_ADDRESS count
    prefix          of the topics: a queue is the topic `<prefix><queue>`
    channel         of those topics, which all workers share
    on_commit       the alias of the database whose transaction an enqueue waits for; "" enqueues at once
    retry           of failed tasks; without it, they are not tried again
    time_limit_s    of one run of a task; 0 is none
    results         where results are stored, or None
    results_for_s   how long a cache keeps them
    longest_defer_s nsqd's --max-defer-timeout at most; longer delays are chained
    client          settings of connections, by the names of go-nsq
    """

    nsqd_tcp_addresses: tuple[str, ...] = _option(_read_nsqds, (), _BAD_ADDRESS)
    lookupd_http_addresses: tuple[str, ...] = _option(_read_lookupds, (), _BAD_ADDRESS)
    prefix: str = _option(_read_prefix, "django-")
    channel: str = _option(_read_channel, "workers")
    on_commit: str = _option(_read_on_commit, DEFAULT_DATABASE)
    retry: Retry | None = _option(_read_retry, None)
    time_limit_s: float = _option(_read_seconds, 0.0)
    results: ResultPlace | None = _option(_read_results, None)
    results_for_s: float = _option(_read_seconds, _DAY_S)
    longest_defer_s: float = _option(_read_seconds, 3600.0)
    client: ClientOptions = _option(_read_client, ClientOptions())

    @property
    def app_name(self) -> str:
        """Return the name of the application of nsqd_py.work, which names its own topics."""
        return self.prefix.rstrip(".-_") or "django"

    def topic(self, queue: str) -> str:
        """Return the topic of a queue."""
        return f"{self.prefix}{queue}"


def read_options(given: Any) -> tuple[BackendOptions, list[Problem]]:
    """Return the options and what is wrong with them; an option that cannot be used has its default."""
    if not isinstance(given, Mapping):
        return BackendOptions(), [Problem(_BAD_VALUE, f"OPTIONS is a dict, not {type(given).__name__}.")]
    options = {option.name: option.metadata for option in fields(BackendOptions)}
    problems = [_unknown(name, options) for name in given if name not in options]
    values: dict[str, Any] = {}
    for name, option in options.items():
        if name not in given:
            continue
        try:
            values[name] = option["read"](given[name])
        except (BadOption, BadClientOption) as error:
            problems.append(Problem(option["id"], f"OPTIONS[{name!r}]: {error}"))
    read = BackendOptions(**values)
    if read.retry is not None and read.retry.most_s > read.longest_defer_s:
        text = f"OPTIONS['retry']: most_s is {read.retry.most_s:g}, but longest_defer_s {read.longest_defer_s:g}."
        problems.append(
            Problem(_BAD_VALUE, text, "Lower most_s: nsqd defers a message for longest_defer_s at most.")
        )
    addresses = {"nsqd_tcp_addresses", "lookupd_http_addresses"}
    if not addresses & set(given):
        problems.extend(_missing_addresses())
    return read, problems


def queue_problems(options: BackendOptions, queues: Collection[str]) -> list[Problem]:
    """Return what is wrong with the names of these queues."""
    found = (queue_problem(options, queue) for queue in sorted(queues, key=str))
    return [
        Problem("nsqd_py.E005", text, "Rename the queue, or set OPTIONS['prefix'].") for text in found if text
    ]


def queue_problem(options: BackendOptions, queue: object) -> str:
    """Return a sentence if the topic of this queue cannot be one, or "" if it can."""
    if not isinstance(queue, str):
        return f"The name of a queue is a str, not {type(queue).__name__}: {queue!r}."
    topic = options.topic(queue)
    if not is_valid_name(topic.encode("utf-8", "surrogateescape")) or is_ephemeral(topic):
        return (
            f"Queue {queue!r} cannot be a topic of nsqd: {topic!r} may have letters, digits, '.', '_' and '-' only, "
            f"at most {_LONGEST_TOPIC}."
        )
    if len(topic) > _LONGEST_TOPIC:
        return (
            f"Queue {queue!r} cannot be a topic of nsqd: {topic!r} has {len(topic)} characters; "
            f"{_LONGEST_TOPIC} leave room for its dead letters, {DEAD_LETTERS_SUFFIX}."
        )
    if topic in {topic_of(options.app_name) for topic_of in (later_topic, due_topic, schedules_topic)}:
        return f"Queue {queue!r} would have the topic {topic!r}, which nsqd_py.work uses itself."
    return ""


def shared_problems(
    alias: str, other: tuple[BackendOptions, Collection[str]], own: tuple[BackendOptions, Collection[str]]
) -> Iterator[Problem]:
    """Yield a problem if the backend `alias` has a topic of this one; each is given as its options and its queues.

    Backends that differ in nothing but `on_commit` may share their topics: it does not matter whose worker runs a task.
    """
    (its_options, its_queues) = other
    (options, queues) = own
    if _are_apart(its_options, options) or replace(its_options, on_commit=options.on_commit) == options:
        return
    topics = {options.topic(queue) for queue in queues}
    its_topics = {its_options.topic(queue) for queue in its_queues}
    shared = sorted(topics & its_topics)
    has_any_queue = not topics or not its_topics
    if has_any_queue and options.prefix == its_options.prefix:
        shared = shared or [options.topic("…")]
    if shared:
        text = f"TASKS[{alias!r}] has the same topic, {shared[0]!r}: workers of one would run the tasks of the other."
        yield Problem("nsqd_py.E007", text, "Give each backend an OPTIONS['prefix'], or QUEUES, of its own.")


def _are_apart(one: BackendOptions, other: BackendOptions) -> bool:
    """True if both name servers, in the same ways, and have none in common."""
    pairs = [
        (one.nsqd_tcp_addresses, other.nsqd_tcp_addresses),
        (one.lookupd_http_addresses, other.lookupd_http_addresses),
    ]
    named = [(first, second) for first, second in pairs if first or second]
    if not named:
        return False
    return all(first and second and not {*first} & {*second} for first, second in named)


def _unknown(name: object, known: Collection[str]) -> Problem:
    close = get_close_matches(str(name), known, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known)}."
    return Problem("nsqd_py.E003", f"OPTIONS[{name!r}] is no option of nsqd_py.django.", hint)


def _missing_addresses() -> list[Problem]:
    try:
        addresses_of("task backend", (), ())
    except BadClientOption as error:
        hint = "Set OPTIONS['nsqd_tcp_addresses'] to ['127.0.0.1:4150'], or the variable NSQD_TCP_ADDRESS."
        return [Problem("nsqd_py.E001", f"{str(error)[0].upper()}{str(error)[1:]}.", hint)]
    return []
