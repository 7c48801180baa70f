"""The settings of standbys, and of the lease that decides which nsqd of a group is the primary."""

from __future__ import annotations

from typing import Any

from nsqd_py.lease.store import parse_lease_url
from nsqd_py.net.addresses import check_peer_address
from nsqd_py.net.tls_options import client_authorities, client_certificate, client_key
from nsqd_py.settings.declaration import (
    BadOptions,
    Options,
    not_negative,
    positive,
    setting,
    string,
    strings,
    switch,
)
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.types import DURATION, INT, URL, choice


def _check_standby_of(value: str) -> str | None:
    check_peer_address(value)
    return "must be host:port" if value.startswith(":") else None


def _check_ttl(value: int) -> str | None:
    # It must be renewed before it ends, also when one request fails. etcd counts in seconds.
    return (
        None if value >= 2 * SECOND_NS and value % SECOND_NS == 0 else "must be 2s, 3s or more whole seconds"
    )


class StandbyOptions(Options, title="Standby"):
    """The settings of a group of nsqds, of which one is the primary."""

    standby_of: str = string(
        "TCP address (host:port) of a primary nsqd. This nsqd then keeps a copy of its messages, and serves no clients "
        "until it is promoted.",
        check=_check_standby_of,
    )
    promote: bool = switch(
        "Promote the standby that --data-path belongs to: start as a primary with its messages.",
        config_key="",
    )
    accept_standbys: bool = switch(
        "Let the other nsqds of the group (--standby-secret-file) follow this one. They get all messages."
    )
    standby_acks: int = setting(
        INT,
        0,
        "Number of standbys that must have a message before its publisher gets OK; 0 means that none must. Above 0, "
        "standbys are accepted.",
        check=not_negative,
    )
    standby_timeout_ns: int = setting(
        DURATION,
        5 * SECOND_NS,
        "Maximum time that a publisher waits for --standby-acks standbys.",
        check=positive,
    )
    standby_on_timeout: str = setting(
        choice({"refuse": "refuse", "alone": "alone"}, word="word"),
        "refuse",
        "After --standby-timeout: `refuse` the publish, or go on `alone`, without standbys, until they are back.",
    )
    lease: str = setting(
        URL,
        "",
        "Lease of etcd that decides which nsqd is the primary, such as etcd://127.0.0.1:2379/orders; its holder "
        "serves, all others are its standbys.",
    )
    lease_password_file: str = string("File with the password of the user in --lease (etcd://user@...).")
    lease_ttl_ns: int = setting(
        DURATION,
        5 * SECOND_NS,
        "Time to live of --lease, at least 2s: after the primary is gone, a standby takes its place within about this time.",
        check=_check_ttl,
    )
    lease_tls_root_ca_file: str = client_authorities("the lease's store")
    lease_tls_cert: str = client_certificate("the lease's store")
    lease_tls_key: str = client_key("lease")
    standby_tls: bool = switch("Use TLS to the primary.")
    standby_tls_root_ca_file: str = client_authorities("the primary")
    standby_tls_cert: str = client_certificate("the primary")
    standby_tls_key: str = client_key("standby")
    standby_tls_insecure_skip_verify: bool = switch(
        "Accept any certificate from the primary. The connection is encrypted, but the server is not verified."
    )
    standby_secret_file: str = string(
        "File with the secret of the group: only nsqds that know it may follow, fence and be followed by this one. The "
        "first line proves membership, all lines are accepted. It may change while nsqd runs."
    )
    standby_tls_allowed_names: tuple[str, ...] = strings(
        "Names in the certificates of the group (subject alternative names, or the common name of a certificate without "
        "them): only nsqds with one of them may follow, fence and be followed by this one. It needs --standby-tls-cert "
        "and --tls-client-auth-policy=require-verify (may be given several times)."
    )


def check_lease(options: Any) -> None:
    """Raise BadOptions if nsqd's --lease cannot be used, or contradicts other options."""
    if not options.lease:
        if options.lease_password_file:
            raise BadOptions("--lease-password-file needs --lease=etcd://user@...")
        return
    try:
        parse_lease_url(options.lease, options.lease_password_file)
    except ValueError as error:
        raise BadOptions(f"--lease={options.lease}: {error}") from error
    if (options.lease_tls_root_ca_file or options.lease_tls_cert) and not options.lease.startswith(
        "etcds://"
    ):
        raise BadOptions("--lease-tls-... needs a lease of etcds://")
    if options.standby_of or options.promote:
        raise BadOptions("--lease decides who is the primary: leave out --standby-of and --promote")
    if options.tcp_address.endswith(":0") and not options.broadcast_tcp_port:
        raise BadOptions("--lease needs a fixed port in --tcp-address, at which standbys reach this nsqd")
