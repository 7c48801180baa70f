"""The common part of all producers: their settings, and every way to publish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from nsqd_py.client.addresses import address_list
from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.lookup import addresses_of
from nsqd_py.client.options import ClientOptions, Delay, read_argument, read_flag, read_limit, read_time_limit
from nsqd_py.client.process import log_for
from nsqd_py.client.publishing.publish import Body, Done, finished, several, single
from nsqd_py.protocol import outgoing

if TYPE_CHECKING:
    from typing import Unpack

    from nsqd_py.client.keywords import ClientSettings
    from nsqd_py.runtime.logs.lines import LineWriter

    class ProducerKeywords(ClientSettings, total=False):
        """The keywords of a Producer; `BaseProducer` describes them."""

        nsqd_tcp_addresses: str | Iterable[str]
        lookupd_http_addresses: str | Iterable[str]
        options: ClientOptions | None
        log: LineWriter | None
        window: int
        window_bytes: int
        publish_timeout_s: Delay
        answer_timeout_s: Delay
        retry_unknown: bool


# How long an nsqd is avoided after its first failure, and at most.
FIRST_PAUSE_S = 0.1
MOST_PAUSE_S = 15.0

# The result of a publish that waits, and of one that does not.
R = TypeVar("R", covariant=True)
P = TypeVar("P", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The settings of a producer; see `BaseProducer`."""

    nsqds: tuple[str, ...]
    lookupds: tuple[str, ...]
    options: ClientOptions
    log: Any
    window: int = field(default=1000, metadata={"read": read_limit})
    window_bytes: int = field(default=16 << 20, metadata={"read": read_limit})
    publish_timeout_s: float = field(default=30.0, metadata={"read": read_time_limit})
    answer_timeout_s: float = field(default=10.0, metadata={"read": read_time_limit})
    retry_unknown: bool = field(default=True, metadata={"read": read_flag})

    @classmethod
    def of(
        cls,
        addresses: Sequence[str],
        *,
        nsqd_tcp_addresses: str | Iterable[str] = (),
        lookupd_http_addresses: str | Iterable[str] = (),
        options: ClientOptions | None = None,
        log: Any = None,
        **settings: Any,
    ) -> ProducerSettings:
        """Return the settings of these arguments; see `BaseProducer`. Raises BadClientOption."""
        nsqds, lookupds = addresses_of(
            "producer", [*addresses, *address_list(nsqd_tcp_addresses)], lookupd_http_addresses
        )
        readers = {
            one.name: one.metadata["read"] for one in fields(cls) if one.metadata and one.name in settings
        }
        own = {name: read_argument(name, settings.pop(name), read) for name, read in readers.items()}
        return cls(
            nsqds=nsqds,
            lookupds=lookupds,
            options=ClientOptions.extending(options, settings),
            log=log_for(log),
            **own,
        )

    @property
    def sweep_interval_s(self) -> float:
        """Return how often to check for publishes whose time is over."""
        return min(0.25, self.publish_timeout_s / 4, self.answer_timeout_s / 4)


class BaseProducer(Generic[R, P]):
    """Publishes to one nsqd or several.

    Several nsqds are used in turn. One that fails is avoided for a while and retried; a message that it certainly
    did not store is sent to another. A publish whose connection was lost before its answer is resent too, so it may
    be stored twice, unless `retry_unknown=False`: then it fails with ConnectionLost.

    Errors of every way to publish:
        PublishFailed          nsqd refused it (`code`, `text`); if the nsqd could not store it, others were tried
        NoNsqd                 no nsqd could be connected; it is stored nowhere. Raised at once if none ever could be;
                               if one was connected before, after `publish_timeout_s`
        TimedOut               no answer in `publish_timeout_s`; it may be stored or not
        ConnectionLost         `retry_unknown=False`, or the connection was lost each time; it may be stored or not
        BadName, BadBody       a topic or body that no nsqd accepts; TypeError if a topic is not a str, or a body
                               is not bytes
    """

    def __init__(self, *addresses: str, **settings: Unpack[ProducerKeywords]) -> None:
        """Connects at the first use. Addresses are host:port, [::1]:port, unix:/path or nsq://host:port.

        Without any, NSQD_TCP_ADDRESS or NSQLOOKUPD_HTTP_ADDRESS of the environment lists them, separated by commas.

        nsqd_tcp_addresses       more addresses of nsqds
        lookupd_http_addresses   publish to all nsqds that these nsqlookupds know; asked every lookupd_poll_interval
        options, and others      of the connections, by the names of go-nsq: `snappy=True`, `auth_secret="..."`
        window, window_bytes     how many publishes, of how many bytes together, may be unanswered on one connection;
                                 1000 and 16 MiB by default
        publish_timeout_s        how long a publish may take in all, with every retry: 30 s
        answer_timeout_s         an nsqd that owes an answer for this long is disconnected: 10 s
        retry_unknown            see above
        log                      has `info`, `warning`, ... as a logging.Logger, which is the default

        Raises BadClientOption.
        """
        self.settings = ProducerSettings.of(addresses, **settings)
        self._set_up()

    # ---- and wait for OK

    def publish(self, topic: str, body: Body, *, defer_s: Delay = 0) -> R:
        """Publish one message, and return when it is stored. With `defer_s`, its delivery is delayed.

        Delays are numbers of seconds, or timedeltas.
        """
        return self._publish(single(topic, body, defer_s))

    def multi_publish(self, topic: str, bodies: Sequence[Body]) -> R:
        """Publish all messages or none: they are one command."""
        return self._publish(*several(topic, bodies))

    # ---- and go on

    def publish_soon(self, topic: str, body: Body, on_done: Done | None = None, *, defer_s: Delay = 0) -> P:
        """Send one message. Waits only while the window has no room.

        `on_done` is called with None or the error; it must not wait. Without it, `flush` raises errors. The returned
        future has the result too.
        """
        return self._publish_soon(single(topic, body, defer_s), b"", on_done)

    def multi_publish_soon(self, topic: str, bodies: Sequence[Body], on_done: Done | None = None) -> P:
        """Send messages as `publish_soon`, in one command: much faster, and nsqd stores all or none."""
        return self._publish_soon(*several(topic, bodies), on_done)

    def send_mpub_body(self, topic: str, body: bytes, count: int, on_done: Done | None = None) -> P:
        """Send a finished body as `multi_publish_soon`.

        `body` is the number of messages in 4 bytes, big-endian, then each message behind its size. It is not copied.
        """
        return self._publish_soon(*finished(topic, body, count), on_done)

    def send_mpub_pieces(self, topic: str, pieces: Sequence[Body], on_done: Done | None = None) -> P:
        """Send a body as `send_mpub_body` does that is made of several pieces.

        The command leaves in one piece: to copy it takes less time than a second call of the kernel, which would wake
        nsqd for the first few bytes.
        """
        size_bytes = sum(map(len, pieces))
        return self._publish_soon(b"".join((outgoing.mpub_head(topic, size_bytes), *pieces)), b"", on_done)

    # ---- what each producer does in its own way

    def _set_up(self) -> None:
        raise NotImplementedError

    def _publish(self, head: bytes, body: bytes = b"") -> R:
        raise NotImplementedError

    def _publish_soon(self, head: bytes, body: bytes, on_done: Done | None) -> P:
        raise NotImplementedError

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is answered.

        Raises FlushFailed if publishes without `on_done` have failed since the last call, and TimedOut after
        `timeout_s`.
        """
        raise NotImplementedError

    def ping(self) -> None:
        """Connect to an nsqd, if none is connected. Raises NoNsqd."""
        raise NotImplementedError

    def close(self, timeout_s: float | None = None) -> None:
        """`flush`, then close the connections, even if that raises."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except NsqClientError:
            if error is None:  # the first error says more
                raise


AnyProducer = TypeVar("AnyProducer", bound="BaseProducer[Any, Any]")


def pinged(producer: AnyProducer) -> AnyProducer:
    """Return the producer once an nsqd is connected. Otherwise close it, and raise NoNsqd."""
    try:
        producer.ping()
    except BaseException:  # Ctrl-C too
        producer.close(0.0)
        raise
    return producer
