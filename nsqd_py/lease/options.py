"""The settings of the lease that decides which nsqd of a group is the primary, and their check."""

from __future__ import annotations

from typing import Any

from nsqd_py.net.tls_options import file_of_peer
from nsqd_py.settings.declaration import BadOptions, Options, check_package, setting, string
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.types import DURATION, URL


def _check_ttl(value: int) -> str | None:
    # It must be renewed before it ends, also when one request fails. etcd counts in seconds.
    if value >= 2 * SECOND_NS and value % SECOND_NS == 0:
        return None
    return "must be 2s, 3s or more whole seconds"


class LeaseOptions(Options):
    """The settings of the lease. They stand in the group of the standbys, whose roles the lease gives."""

    lease: str = setting(
        URL,
        "",
        "Lease in etcd or in a bucket that decides which nsqd is the primary, such as etcd://127.0.0.1:2379/orders or "
        "s3://bucket/prefix/orders (or gs://, az://, file://); its holder serves, all others are its standbys.",
    )
    lease_password_file: str = string("File with the password of the user in --lease (etcd://user@...).")
    lease_ttl_ns: int = setting(
        DURATION,
        5 * SECOND_NS,
        "Time to live of --lease, at least 2s: after the primary is gone, a standby takes its place within about this time.",
        check=_check_ttl,
    )
    lease_tls_root_ca_file: str = file_of_peer("--client-tls-root-ca-file", "the lease's store")
    lease_tls_cert: str = file_of_peer("--client-tls-cert", "the lease's store")
    lease_tls_key: str = file_of_peer("--client-tls-key", "the lease's store")


def check_lease(options: Any) -> None:
    """Raise BadOptions if nsqd's --lease cannot be used, or contradicts other options."""
    if not options.lease:
        if options.lease_password_file:
            raise BadOptions("--lease-password-file needs --lease=etcd://user@...")
        return
    from nsqd_py.lease.store import parse_lease_url  # only a lease needs it

    try:
        parse_lease_url(options.lease, options.lease_password_file)
    except ValueError as error:
        raise BadOptions(f"--lease={options.lease}: {error}") from error
    if (options.lease_tls_root_ca_file or options.lease_tls_cert) and not options.lease.startswith(
        "etcds://"
    ):
        raise BadOptions("--lease-tls-... needs a lease of etcds://")
    if options.lease.startswith(("s3://", "gs://", "az://")):
        check_package("obstore", "store", "--lease")
    if options.standby_of or options.promote:
        raise BadOptions("--lease decides who is the primary: leave out --standby-of and --promote")
    if options.tcp_address.endswith(":0") and not options.broadcast_tcp_port:
        raise BadOptions("--lease needs a fixed port in --tcp-address, at which standbys reach this nsqd")
