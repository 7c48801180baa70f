"""TLS contexts, and the security level of OpenSSL.

The level sets the shortest key, the weakest signature and the oldest protocol that TLS accepts
(SSL_CTX_set_security_level(3)). OpenSSL refuses certificates below 2048 bits at level 2, its usual default, and TLS 1.0
and 1.1 at every level above 0, whatever the lowest version of the context is.

Callers pass a context, or its class: the one of `ssl`, or of `gevent.ssl` in a program with greenlets.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from nsqd_py.settings.types import OPENSSL_DEFAULT

# Phrases in OpenSSL's errors that a lower level would prevent.
_TOO_WEAK = (
    "key too small",
    "key too weak",
    "md too weak",
    "digest algorithm too weak",
    "unsupported protocol",
    "version too low",
    "no protocols available",
    "no shared cipher",
    "no suitable signature algorithm",
)
_ADVICE = (
    "--tls-security-level=0 (the client option tls_security_level,0) accepts keys below 2048 bits and, with a lowest "
    "version of tls1.0, TLS 1.0"
)

# Of a certificate: the lines around it in a PEM file, and tags of DER.
_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"
_SEQUENCE = 0x30
_CONTEXT_0 = 0xA0
_UTC_TIME = 0x17


def client_context(
    context_class: Any,
    *,
    root_ca_file: str = "",
    cert_file: str = "",
    key_file: str = "",
    level: int = OPENSSL_DEFAULT,
    lowest_version: int | None = None,
    verifies: bool = True,
) -> Any:
    """Return the TLS context of a client. Raises OSError, whose text names the file that cannot be used.

    root_ca_file         certificates of the authorities that may sign for servers; "" means those of the system
    cert_file, key_file  the client's own certificate; the key may be in the certificate's file
    verifies             False accepts every certificate
    """
    import ssl  # slow to import; only TLS needs it

    context = context_class(ssl.PROTOCOL_TLS_CLIENT)
    set_level(context, level)
    if lowest_version is not None:
        set_lowest_version(context, level, lowest_version)
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif root_ca_file:
        _load(root_ca_file, lambda: context.load_verify_locations(cafile=root_ca_file))
    else:
        context.load_default_certs()
    if cert_file:
        files = f"{cert_file} with {key_file}" if key_file else cert_file
        # With an empty password, an encrypted key fails instead of asking on the terminal.
        _load(files, lambda: context.load_cert_chain(cert_file, key_file or None, password=""))
    return context


def server_context(
    cert_file: str, key_file: str, level: int, flags: str = "tls", context_class: Any = None
) -> Any:
    """Return the TLS context of a server with the files of --<flags>-cert and --<flags>-key. Raises OSError, which names them."""
    import ssl

    context = (context_class or ssl.SSLContext)(ssl.PROTOCOL_TLS_SERVER)
    set_level(context, level)
    files = f"--{flags}-cert {cert_file} with --{flags}-key {key_file}"
    _load(files, lambda: context.load_cert_chain(cert_file, key_file, password=""))
    return context


def _load(files: str, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as error:  # SSLError is an OSError
        raise OSError(f"cannot use {files}: {advised(error.strerror or error)}") from error


def set_level(context: Any, level: int) -> None:
    """Set the level of an `ssl.SSLContext`. Call this before certificates are loaded, because loading checks them."""
    if level != OPENSSL_DEFAULT:
        context.set_ciphers(cipher_list(level))


def cipher_list(level: int) -> str:
    """Return OpenSSL's list of ciphers at a level; Python's own has none for TLS 1.0."""
    return f"DEFAULT:!aNULL:!eNULL:@SECLEVEL={level}"


def set_lowest_version(context: Any, level: int, version: int) -> None:
    """Set the lowest protocol version of a client's `ssl.SSLContext`, as a number of `ssl.TLSVersion`.

    At levels above 0 it stays at least Python's default.
    """
    if level == 0:
        context.minimum_version = version
    else:
        context.minimum_version = max(context.minimum_version, version)


def advised(reason: object) -> str:
    """Return an error text of OpenSSL, followed by advice if a lower security level would prevent the error.

    "PEM lib", which names no cause, becomes what the files must be.
    """
    text = str(reason)
    if "PEM lib" in text:
        return "expected PEM: a certificate, and its private key without a password"
    words = text.lower().replace("_", " ")
    if any(weakness in words for weakness in _TOO_WEAK):
        return f"{text}; {_ADVICE}"
    return text


# ---- the dates of a certificate


def certificate_end_s(cert_file: str) -> int:
    """Return the end of the validity of the first certificate in a PEM file, in s since the epoch; 0 if it cannot be read."""
    import ssl

    try:
        with open(cert_file, encoding="ascii", errors="replace") as file:
            _, begin, rest = file.read().partition(_BEGIN)
        return end_of_validity_s(ssl.PEM_cert_to_DER_cert(begin + rest[: rest.index(_END)] + _END))
    except (OSError, ValueError, IndexError):
        return 0


def end_of_validity_s(certificate: bytes) -> int:
    """Return the notAfter of a certificate in DER (RFC 5280, 4.1), in s since the epoch. Raises ValueError and IndexError."""
    _, content = _element(certificate)
    _, fields = _element(content)
    tag, _ = _element(fields)
    for _ in range(4 if tag == _CONTEXT_0 else 3):  # version, serial number, signature algorithm, issuer
        fields = _after(fields)
    tag, validity = _element(fields)
    if tag != _SEQUENCE:
        raise ValueError("the certificate has no validity")
    tag, text = _element(_after(validity))
    digits = text.decode("ascii").removesuffix("Z")
    if tag == _UTC_TIME:  # its years are 1950 to 2049
        digits = ("19" if digits >= "5" else "20") + digits
    return int(datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp())


def _element(data: bytes) -> tuple[int, bytes]:
    """Return the tag and the content of the first element of DER (X.690, 8.1)."""
    begin, end = _content(data)
    return data[0], data[begin:end]


def _after(data: bytes) -> bytes:
    """Return what follows the first element."""
    return data[_content(data)[1] :]


def _content(data: bytes) -> tuple[int, int]:
    size = data[1]
    begin = 2
    if size & 0x80:
        begin += size & 0x7F
        size = int.from_bytes(data[2:begin], "big")
    return begin, begin + size
