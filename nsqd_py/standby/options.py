"""The settings of standbys and of backups."""

from __future__ import annotations

from nsqd_py.lease.options import LeaseOptions
from nsqd_py.net.addresses import check_peer_address
from nsqd_py.net.tls_options import file_of_peer, skip_verify_of_peer
from nsqd_py.settings.declaration import Options, not_negative, positive, setting, string, strings, switch
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.kinds import choice
from nsqd_py.settings.types import DURATION, INT


def _check_standby_of(value: str) -> str | None:
    check_peer_address(value)
    return "must be host:port" if value.startswith(":") else None


class _Roles(Options):
    """The settings of who follows whom, and who waits for whom."""

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


class _Membership(Options):
    """The settings of the connections within a group, and of the proof that an nsqd belongs to it."""

    standby_tls: bool = switch("Use TLS to the primary.")
    standby_tls_root_ca_file: str = file_of_peer("--client-tls-root-ca-file", "the primary")
    standby_tls_cert: str = file_of_peer("--client-tls-cert", "the primary")
    standby_tls_key: str = file_of_peer("--client-tls-key", "the primary")
    standby_tls_insecure_skip_verify: bool = skip_verify_of_peer("the primary")
    standby_secret_file: str = string(
        "File with the secret of the group: only nsqds that know it may follow, fence and be followed by this one. The "
        "first line proves membership, all lines are accepted. It may change while nsqd runs."
    )
    standby_tls_allowed_names: tuple[str, ...] = strings(
        "Names in the certificates of the group (subject alternative names, or the common name of a certificate without "
        "them): only nsqds with one of them may follow, fence and be followed by this one. It needs --client-tls-cert "
        "and --tls-client-auth-policy=require-verify (may be given several times)."
    )


class StandbyOptions(_Roles, LeaseOptions, _Membership, title="Standby"):
    """The settings of a group of nsqds, of which one is the primary."""


class BackupOptions(Options, title="Backup"):
    """The settings of --backup-to and --restore-from."""

    backup_to: str = string(
        "Copy all messages of the running nsqd at --standby-of to this new directory or bucket (s3://bucket/name), and exit "
        "with 0 if the backup is complete. That nsqd needs --accept-standbys; the secret file and the TLS flags are those "
        "of a standby.",
        config_key="",
    )
    restore_from: str = string(
        "Write the messages of this backup or store, a directory or a URL, to --data-path, a new or empty directory, and exit. "
        "With the same URL in --store: restore an empty --data-path, and serve.",
        config_key="",
    )
