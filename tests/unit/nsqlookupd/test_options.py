"""The settings of nsqlookupd, and how its command begins."""

from __future__ import annotations

import pytest

from nsqd_py.net.tls_options import TLS_REQUIRED, TLS_REQUIRED_EXCEPT_HTTP
from nsqd_py.settings.declaration import BadOptions
from nsqlookupd_py.options import NSQLOOKUPD, check_options, read_options

SECOND_NS = 1_000_000_000

# Every key and default of Go's nsqlookupd, but for the broadcast address.
DEFAULTS = {
    "http_address": "0.0.0.0:4161",
    "inactive_producer_timeout": 300 * SECOND_NS,
    "log_level": 2,
    "log_prefix": "[nsqlookupd] ",
    "tcp_address": "0.0.0.0:4160",
    "tombstone_lifetime": 45 * SECOND_NS,
}


def test_defaults() -> None:
    options = NSQLOOKUPD.defaults()
    assert {key: options.by_config_key(key) for key in DEFAULTS} == DEFAULTS
    check_options(options)


@pytest.mark.parametrize(
    ("flag", "required"),
    [
        ("--tls-required", TLS_REQUIRED),
        ("--tls-required=tcp-https", TLS_REQUIRED_EXCEPT_HTTP),
        ("--tls-client-auth-policy=require-verify", TLS_REQUIRED),
    ],
)
def test_tls_required(flag: str, required: int) -> None:
    assert read_options([flag]).tls_required == required


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tls_required": TLS_REQUIRED}, "--tls-required .* needs --tls-cert"),
        ({"tls_cert": "/nowhere.pem"}, "must be given together"),
        ({"tls_cert": "/nowhere.pem", "tls_key": "/nowhere.key"}, "cannot use --tls-cert /nowhere.pem"),
        ({"tls_client_auth_policy": "require"}, "must be require-verify"),
        ({"tls_client_auth_policy": "require-verify"}, "needs --tls-root-ca-file"),
        ({"inactive_producer_timeout_ns": 0}, "--inactive-producer-timeout must be positive"),
        ({"tombstone_lifetime_ns": -1}, "--tombstone-lifetime must not be negative"),
        ({"broadcast_address": "http://a"}, "--broadcast-address must be a host"),
        ({"tcp_address": "10.0.0.300:4160"}, '"10.0.0.300" is not an IPv4 address'),
        ({"tls_root_ca_file": "/nowhere.pem"}, "cannot use --tls-root-ca-file /nowhere.pem: No such file"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(BadOptions, match=words):
        check_options(NSQLOOKUPD.defaults(**changes))
