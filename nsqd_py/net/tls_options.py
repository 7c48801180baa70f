"""The TLS settings of servers, of HTTP clients and of nsqd's own connections, and their checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nsqd_py.net.http.browsers import check_hosts
from nsqd_py.net.tls_context import client_context, server_context
from nsqd_py.settings.declaration import (
    BadOptions,
    Options,
    bad_options,
    check_package,
    setting,
    string,
    strings,
    switch,
)
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.kinds import Kind, choice
from nsqd_py.settings.types import DURATION, OPENSSL_DEFAULT, TLS_LEVEL

# The values of --tls-required, as /config/tls_required shows them.
TLS_NOT_REQUIRED = 0
TLS_REQUIRED_EXCEPT_HTTP = 1
TLS_REQUIRED = 2

# The values of --tls-min-version: the version numbers of the TLS protocol.
TLS_VERSIONS = {"tls1.0": 0x0301, "tls1.1": 0x0302, "tls1.2": 0x0303, "tls1.3": 0x0304}
DEFAULT_TLS_VERSION = TLS_VERSIONS["tls1.0"]

# The words of Go's strconv.ParseBool too.
_TLS_REQUIRED_WORDS = {"true": TLS_REQUIRED, "false": TLS_NOT_REQUIRED, "tcp-https": TLS_REQUIRED_EXCEPT_HTTP}
_TLS_REQUIRED_CHOICE: Kind[int] = choice(
    _TLS_REQUIRED_WORDS
    | {"1": TLS_REQUIRED, "t": TLS_REQUIRED, "0": TLS_NOT_REQUIRED, "f": TLS_NOT_REQUIRED},
    word="[=bool|tcp-https]",
    from_native=lambda value: _TLS_REQUIRED_CHOICE.parse(str(value)),
)
TLS_REQUIRED_KIND = _TLS_REQUIRED_CHOICE._replace(bare_value="true", choices=tuple(_TLS_REQUIRED_WORDS))


TLS_VERSION_KIND = choice({**TLS_VERSIONS, "": DEFAULT_TLS_VERSION}, word="version")

KEY_FILE = string("Private key of the certificate (PEM file).")
SECURITY_LEVEL = setting(
    TLS_LEVEL,
    OPENSSL_DEFAULT,
    "OpenSSL security level of server and client connections: 0 to 5, or default. "
    "Level 0 accepts keys below 2048 bits, SHA-1 signatures, and TLS 1.0 and 1.1.",
)
HTTP_AUTH_FILE = string(
    "File with the accounts that may use administrative HTTP paths: lines of htpasswd -B or token:name:sha256. "
    "If empty, everyone may."
)
HTTP_ALLOWED_HOSTS = strings(
    "Host name by which browsers may reach the HTTP port, or a domain with all names in it, such as .example.com (may "
    "be given several times). IP addresses, localhost, the host name and the names in other addresses of this server "
    "are always allowed. Other programs may use any name.",
    check=check_hosts,
)


def check_auth_policy(*policies: str) -> Callable[[str], str | None]:
    """Return the check of a --tls-client-auth-policy: a misspelt policy would admit every client."""
    return lambda value: None if value in ("", *policies) else f"must be {' or '.join(policies)}"


# ---- the settings of nsqd's own connections: --client-tls-..., and --<peer>-tls-... for one peer only


class ClientTlsOptions(Options):
    """The settings of nsqd for TLS to other servers."""

    client_tls_root_ca_file: str = string(
        "Certificate authorities that sign the certificates of the servers that nsqd connects to: nsqlookupds, auth "
        "servers, the primary, the lease's store (PEM file); by default those of the system, for auth servers those of "
        "--tls-root-ca-file. With lookupd, standby or lease in place of client, the flag is for one of them only."
    )
    client_tls_cert: str = string("Client certificate for these servers (PEM file).")
    client_tls_key: str = string(
        "Private key of --client-tls-cert (PEM file); not needed if that file contains the key."
    )
    client_tls_insecure_skip_verify: bool = switch(
        "Accept any certificate from these servers. Connections are encrypted, but the servers are not verified."
    )


def file_of_peer(flag: str, peer: str) -> str:
    """Declare the flag of one peer that it has instead of one of --client-tls-...."""
    return string(f"{flag} for {peer} only.", hidden=True)


def skip_verify_of_peer(peer: str) -> bool:
    """Declare --<peer>-tls-insecure-skip-verify."""
    return switch(f"--client-tls-insecure-skip-verify for {peer} only.", hidden=True)


class ServerTlsOptions(Options):
    """The settings of nsqd and nsqlookupd for TLS, and for the accounts of administrators."""

    tls_cert: str = string("Server certificate (PEM file). Enables TLS.")
    tls_key: str = KEY_FILE
    tls_client_auth_policy: str = string(
        "Client certificates: require (any certificate) or require-verify (signed by --tls-root-ca-file).",
        check=check_auth_policy("require", "require-verify"),
    )
    tls_root_ca_file: str = string("Trusted certificate authorities (PEM file).")
    tls_required: int = setting(
        TLS_REQUIRED_KIND,
        TLS_NOT_REQUIRED,
        "Refuse clients without TLS: true, false, or tcp-https (but accept plain HTTP).",
    )
    tls_min_version: int = setting(
        TLS_VERSION_KIND, DEFAULT_TLS_VERSION, "Minimum TLS version: tls1.0, tls1.1, tls1.2 or tls1.3."
    )
    tls_security_level: int = SECURITY_LEVEL
    http_auth_file: str = HTTP_AUTH_FILE
    http_allowed_hosts: tuple[str, ...] = HTTP_ALLOWED_HOSTS


class HttpClientOptions(Options):
    """The settings of nsqadmin and the tools for HTTP requests. A program may declare other defaults."""

    http_client_connect_timeout_ns: int = setting(
        DURATION, 2 * SECOND_NS, "Timeout for connecting to an HTTP server."
    )
    http_client_request_timeout_ns: int = setting(DURATION, 5 * SECOND_NS, "Timeout for an HTTP response.")
    http_client_tls_root_ca_file: str = string(
        "Trusted certificate authorities for https:// addresses (PEM file); by default those of the system."
    )
    http_client_tls_cert: str = string("Client certificate for https:// addresses (PEM file).")
    http_client_tls_key: str = string("Private key of the client certificate (PEM file).")
    tls_security_level: int = SECURITY_LEVEL


class ClientTls(NamedTuple):
    """The TLS files of connections to a peer, and whether its certificate is accepted without a check."""

    root_ca_file: str = ""
    cert: str = ""
    key: str = ""
    insecure_skip_verify: bool = False


def client_tls_of(options: Any, peer: str) -> ClientTls:
    """Return the settings of connections to a peer: those of --<peer>-tls-..., and else of --client-tls-...."""
    own = client_tls_family(options, peer)
    common = client_tls_family(options, "client")
    certified = own if own.cert else common
    return ClientTls(
        own.root_ca_file or common.root_ca_file,
        certified.cert,
        certified.key,
        own.insecure_skip_verify or common.insecure_skip_verify,
    )


def client_tls_family(options: Any, prefix: str) -> ClientTls:
    """Return the values of --<prefix>-tls-..., empty ones where a program does not have such flags."""
    values: dict[str, Any] = {
        field: getattr(options, f"{prefix}_tls_{field}", default)
        for field, default in ClientTls._field_defaults.items()
    }
    return ClientTls(**values)


def peer_context(options: Any, peer: str, context_class: Any) -> Any:
    """Return the TLS context of connections to a peer: lookupd, standby, lease, auth or http_client. Raises OSError."""
    tls = client_tls_of(options, peer)
    return client_context(
        context_class,
        root_ca_file=_authorities_of(options, peer, tls),
        cert_file=tls.cert,
        key_file=tls.key,
        level=options.tls_security_level,
        lowest_version=getattr(options, "tls_min_version", DEFAULT_TLS_VERSION),
        verifies=not tls.insecure_skip_verify,
    )


def peer_files(options: Any, peer: str) -> list[str]:
    """Return the paths of the files that `peer_context` reads."""
    tls = client_tls_of(options, peer)
    return [path for path in (_authorities_of(options, peer, tls), tls.cert, tls.key) if path]


def _authorities_of(options: Any, peer: str, tls: ClientTls) -> str:
    if peer == "auth" and not tls.root_ca_file:
        return str(options.tls_root_ca_file)  # as Go's nsqd
    return tls.root_ca_file


def implied_tls_required(options: ServerTlsOptions) -> int:
    """Return the value of --tls-required, or TLS_REQUIRED if --tls-client-auth-policy implies it."""
    if options.tls_client_auth_policy and options.tls_required == TLS_NOT_REQUIRED:
        return TLS_REQUIRED
    return options.tls_required


def check_tls(options: ServerTlsOptions) -> None:
    """Read the files that the options name; raise BadOptions if one cannot be used, or if options contradict."""
    if options.tls_client_auth_policy == "require":
        check_package("OpenSSL", "tls", "--tls-client-auth-policy=require")
    has_certificate = bool(options.tls_cert or options.tls_key)
    if options.tls_required != TLS_NOT_REQUIRED and not has_certificate:
        raise BadOptions("--tls-required (or --tls-client-auth-policy) needs --tls-cert and --tls-key")
    if has_certificate:
        check_certificate(options.tls_cert, options.tls_key, level=options.tls_security_level)
    if options.tls_root_ca_file:
        check_authorities(options.tls_root_ca_file, "--tls-root-ca-file")
    check_auth_file(options.http_auth_file)


def check_certificate(cert_path: str, key_path: str, flags: str = "tls", *, level: int) -> None:
    """Raise BadOptions if OpenSSL refuses a certificate and its key at this security level.

    `flags` is the beginning of the two flags' names: "tls" for --tls-cert and --tls-key.
    """
    if not cert_path or not key_path:
        raise BadOptions(f"--{flags}-cert and --{flags}-key must be given together; only one of them is")
    with bad_options("", OSError):
        server_context(cert_path, key_path, level, flags)


def check_authorities(path: str, flag: str) -> None:
    """Raise BadOptions if the file has no certificates."""
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=path)
    except OSError as error:
        raise BadOptions(f"cannot use {flag} {path}: {error.strerror}") from error


def check_auth_file(path: str) -> None:
    """Raise BadAuthFile if the file of --http-auth-file cannot be used; "" means that there is none."""
    if path:
        from nsqd_py.net.http.guard import read_credentials  # slow: it imports OpenSSL's hashes

        read_credentials(path)
