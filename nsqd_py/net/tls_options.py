"""The settings that every server of NSQ has for TLS, and what has to hold of them."""

from __future__ import annotations

from typing import Any

from nsqd_py.net.tls_level import LEVELS, OPENSSL_DEFAULT, advised, set_level
from nsqd_py.settings.declaration import BadOptions, Options, Setting
from nsqd_py.settings.literals import FALSE_WORDS, TRUE_WORDS
from nsqd_py.settings.types import STRING, Kind, choice

# --tls-required, with the numbers that /config/tls_required answers.
TLS_NOT_REQUIRED = 0
TLS_REQUIRED_EXCEPT_HTTP = 1
TLS_REQUIRED = 2

# --tls-min-version, with the version numbers of the TLS protocol.
TLS_VERSIONS = {"tls1.0": 0x0301, "tls1.1": 0x0302, "tls1.2": 0x0303, "tls1.3": 0x0304}
DEFAULT_TLS_VERSION = TLS_VERSIONS["tls1.0"]

_TLS_REQUIRED_WORDS = {"true": TLS_REQUIRED, "false": TLS_NOT_REQUIRED, "tcp-https": TLS_REQUIRED_EXCEPT_HTTP}


def _parse_tls_required(text: str) -> int:
    word = text.lower()
    if word in TRUE_WORDS:
        return TLS_REQUIRED
    if word in FALSE_WORDS:
        return TLS_NOT_REQUIRED
    if word == "tcp-https":
        return TLS_REQUIRED_EXCEPT_HTTP
    raise ValueError("expected true, false or tcp-https")


def _show_tls_required(value: int) -> str:
    return next(word for word, number in _TLS_REQUIRED_WORDS.items() if number == value)


def _tls_required_from_native(value: Any) -> int:
    return _parse_tls_required(str(value))


TLS_REQUIRED_KIND = Kind(
    "[=bool|tcp-https]", _parse_tls_required, _tls_required_from_native, _show_tls_required, bare_value="true"
)


def _level_from_native(value: Any) -> int:
    level: int = _parse_level(str(value))  # as texts: true is no 1
    return level


_LEVEL_CHOICE = choice(LEVELS, word="level", from_native=_level_from_native)
_parse_level = _LEVEL_CHOICE.parse
TLS_VERSION_KIND = choice({**TLS_VERSIONS, "": DEFAULT_TLS_VERSION}, word="version")


# Those that mean the same everywhere, in the order in which they are shown.
# fmt: off
KEY_SETTING = Setting("tls-key", STRING, "", "Key file of the certificate (PEM).")
ROOT_CA_SETTING = Setting("tls-root-ca-file", STRING, "", "File with the certificate authorities to trust (PEM).")
LEVEL_SETTING = Setting("tls-security-level", _LEVEL_CHOICE, OPENSSL_DEFAULT,
    "Security level of OpenSSL for TLS as server and as client: 0 to 5, or default. "
    "Level 0 accepts keys below 2048 bits, SHA-1 signatures, and TLS 1.0 and 1.1.")
REQUIREMENT_SETTINGS = (
    Setting("tls-required", TLS_REQUIRED_KIND, TLS_NOT_REQUIRED,
        "Refuse clients without TLS: true, false, or tcp-https (plain HTTP stays open)."),
    Setting("tls-min-version", TLS_VERSION_KIND, DEFAULT_TLS_VERSION,
        "Lowest TLS version that clients may speak: tls1.0, tls1.1, tls1.2, tls1.3."),
    LEVEL_SETTING,
)
HTTP_AUTH_SETTING = Setting("http-auth-file", STRING, "",
    "File with who may administer over HTTP: lines of htpasswd -B, and token:name:sha256; empty lets all.")
# fmt: on


def check_auth_policy(value: str) -> str | None:
    # A misspelt policy would let every client in.
    if value in ("", "require", "require-verify"):
        return None
    return "--tls-client-auth-policy must be require or require-verify"


def implied_tls_required(options: Options) -> int:
    """--tls-required, which a policy for the certificates of clients implies."""
    if options.tls_client_auth_policy and options.tls_required == TLS_NOT_REQUIRED:
        return TLS_REQUIRED
    required: int = options.tls_required
    return required


def check_tls(options: Options) -> None:
    """Raises BadOptions where TLS cannot be served with these options. Reads the files; changes nothing."""
    has_certificate = bool(options.tls_cert or options.tls_key)
    if options.tls_required != TLS_NOT_REQUIRED and not has_certificate:
        raise BadOptions("--tls-required (or --tls-client-auth-policy) needs --tls-cert and --tls-key")
    if has_certificate:
        check_certificate(options.tls_cert, options.tls_key, level=options.tls_security_level)
    if options.tls_root_ca_file:
        check_authorities(options.tls_root_ca_file, "--tls-root-ca-file")


def check_certificate(cert_path: str, key_path: str, flags: str = "tls", *, level: int) -> None:
    """Raises BadOptions for files that are no certificate and its key at this security level.

    The `flags` are -cert and -key.
    """
    if not cert_path or not key_path:
        raise BadOptions(f"--{flags}-cert and --{flags}-key belong together; only one of them is given")
    import ssl  # only where TLS is asked for: it is slow to import

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    set_level(context, level)
    try:
        # With an empty password, a key that needs one fails instead of asking on the terminal.
        context.load_cert_chain(cert_path, key_path, password="")
    except OSError as error:  # SSLError is one
        files = f"--{flags}-cert {cert_path} with --{flags}-key {key_path}"
        raise BadOptions(f"cannot use {files}: {advised(error.strerror)}") from error


def check_authorities(path: str, flag: str) -> None:
    """Raises BadOptions for a file that holds no certificates."""
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=path)
    except OSError as error:
        raise BadOptions(f"cannot use {flag} {path}: {error.strerror}") from error


def check_auth_file(options: Options) -> None:
    """Raises BadAuthFile where the options name a file that cannot be used."""
    if options.http_auth_file:
        from nsqd_py.net.http.credentials import (
            read_credentials,  # only where it is asked for: it imports OpenSSL's hashes
        )

        read_credentials(options.http_auth_file)
