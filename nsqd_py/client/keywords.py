"""The types of the settings of go-nsq as keywords, for type checkers. `options` reads the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    from datetime import timedelta

Duration: TypeAlias = "float | str | timedelta"
"""A number of seconds, a text such as "250ms", or a timedelta."""
Count: TypeAlias = "int | str"
Flag: TypeAlias = "bool | str"


class ConnectionSettings(TypedDict, total=False):
    """The settings of go-nsq, but for max_in_flight, which a Consumer has in its own list of arguments."""

    dial_timeout: Duration
    read_timeout: Duration
    write_timeout: Duration
    local_addr: str
    lookupd_poll_interval: Duration
    lookupd_poll_jitter: float | str
    lookupd_poll_timeout: Duration
    skip_lookupd_authorization: Flag
    max_requeue_delay: Duration
    default_requeue_delay: Duration
    backoff_strategy: str
    max_backoff_duration: Duration
    backoff_multiplier: Duration
    max_attempts: Count
    low_rdy_idle_timeout: Duration
    low_rdy_timeout: Duration
    rdy_redistribute_interval: Duration
    client_id: str
    hostname: str
    user_agent: str
    topology_region: str
    topology_zone: str
    heartbeat_interval: Duration
    sample_rate: Count
    output_buffer_size: Count
    output_buffer_timeout: Duration
    msg_timeout: Duration
    max_msg_size: Count
    auth_secret: str
    tls_v1: Flag
    tls_config: Any
    tls_root_ca_file: str
    tls_insecure_skip_verify: Flag
    tls_cert: str
    tls_key: str
    tls_min_version: str
    tls_security_level: Count
    deflate: Flag
    deflate_level: Count
    snappy: Flag


class ClientSettings(ConnectionSettings, total=False):
    """All settings of go-nsq."""

    max_in_flight: Count
