"""The options of a client as typed keywords: a misspelt one fails a type checker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    import ssl
    from datetime import timedelta

    from nsqd_py.client.message import Message
    from nsqd_py.client.options import ClientLog, ClientOptions

Seconds: TypeAlias = "float | str | timedelta"
"""A number of seconds, a text with a unit such as "250ms" or "2m", or a timedelta."""

Delay: TypeAlias = "float | timedelta"
"""A number of seconds, or a timedelta."""


def seconds_of(delay: Delay) -> float:
    """Return a delay as a number of seconds."""
    total_seconds: Any = getattr(delay, "total_seconds", None)  # importing datetime for `isinstance` takes long
    seconds: float = delay if total_seconds is None else total_seconds()  # type: ignore[assignment]
    return seconds


class ClientKeywords(TypedDict, total=False):
    """The options of `ClientOptions`, by the names of go-nsq."""

    dial_timeout: Seconds
    read_timeout: Seconds
    write_timeout: Seconds
    local_addr: str
    lookupd_poll_interval: Seconds
    lookupd_poll_jitter: float
    lookupd_poll_timeout: Seconds
    skip_lookupd_authorization: bool
    max_requeue_delay: Seconds
    default_requeue_delay: Seconds
    backoff_strategy: str
    max_backoff_duration: Seconds
    backoff_multiplier: Seconds
    max_attempts: int
    low_rdy_idle_timeout: Seconds
    low_rdy_timeout: Seconds
    rdy_redistribute_interval: Seconds
    client_id: str
    hostname: str
    user_agent: str
    topology_region: str
    topology_zone: str
    heartbeat_interval: Seconds
    sample_rate: int
    output_buffer_size: int
    output_buffer_timeout: Seconds
    msg_timeout: Seconds
    max_msg_size: int
    auth_secret: str
    tls_v1: bool
    tls_config: ssl.SSLContext
    tls_root_ca_file: str
    tls_insecure_skip_verify: bool
    tls_cert: str
    tls_key: str
    tls_min_version: str
    tls_security_level: int | str
    deflate: bool
    deflate_level: int
    snappy: bool


class ProducerKeywords(ClientKeywords, total=False):
    """The keywords of a producer; see `BaseProducer`."""

    nsqd_tcp_addresses: str | Iterable[str]
    lookupd_http_addresses: str | Iterable[str]
    options: ClientOptions | None
    window: int
    window_bytes: int
    publish_timeout_s: float
    answer_timeout_s: float
    retry_unknown: bool
    log: Any


class ConsumerKeywords(ClientKeywords, total=False):
    """The keywords of a consumer, apart from its handlers; see `BaseConsumer`."""

    nsqd_tcp_addresses: str | Iterable[str]
    lookupd_http_addresses: str | Iterable[str]
    max_in_flight: int | None
    options: ClientOptions | None
    log: ClientLog | None
    on_give_up: Callable[[Message], Any] | None
    auto_touch: bool
    chance: Callable[[], float]
