"""The security level of OpenSSL: how short a key, how weak a signature and how old a protocol TLS accepts.

OpenSSL refuses certificates below 2048 bits at level 2, its usual default, and TLS 1.0 and 1.1 at every level above 0,
whatever the lowest version of the context is (SSL_CTX_set_security_level(3)).
"""

from __future__ import annotations

from typing import Any

OPENSSL_DEFAULT = -1
LEVELS = {"default": OPENSSL_DEFAULT, **{str(level): level for level in range(6)}}

# Words of OpenSSL's reasons for what a lower level allows.
_TOO_WEAK = (
    "key too small", "key too weak", "md too weak", "digest algorithm too weak", "unsupported protocol",
    "version too low", "no protocols available", "no shared cipher", "no suitable signature algorithm",
)  # fmt: skip
_ADVICE = (
    "--tls-security-level=0 (the client option tls_security_level,0) accepts keys below 2048 bits and, with a lowest "
    "version of tls1.0, TLS 1.0"
)


def cipher_list(level: int) -> str:
    """Return OpenSSL's cipher list that sets a level. Python's own list has no cipher for TLS 1.0."""
    return f"DEFAULT:!aNULL:!eNULL:@SECLEVEL={level}"


def set_level(context: Any, level: int) -> None:
    """Set the level of an `ssl.SSLContext`. Do so before it loads a certificate, which it checks against the level."""
    if level != OPENSSL_DEFAULT:
        context.set_ciphers(cipher_list(level))


def set_lowest_version(context: Any, level: int, version: int) -> None:
    """Let a client's `ssl.SSLContext` speak `version` (of the protocol, as a number) and later ones.

    Versions older than those of Python's default are allowed at level 0 only.
    """
    context.minimum_version = version if level == 0 else max(context.minimum_version, version)


def advised(reason: object) -> str:
    """Return the reason for a refusal of TLS, followed by the setting that lifts it, if there is one."""
    text = str(reason)
    words = text.lower().replace("_", " ")
    return f"{text}; {_ADVICE}" if any(weakness in words for weakness in _TOO_WEAK) else text
