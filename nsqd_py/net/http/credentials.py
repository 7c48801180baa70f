"""The accounts that may use admin paths (--http-auth-file), and the credentials of a request.

    name:$2y$10$...          a user with a password, as `htpasswd -B` writes it
    token:name:sha256        the SHA-256 of a bearer token in hex; the name is for people

A token is random, so a fast digest is enough. A password is not random, so its digest is slow on purpose.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import os
import re
import secrets
import stat
from base64 import b64decode
from dataclasses import dataclass
from typing import NamedTuple

from nsqd_py.errors import StartError, missing_package

_MOST_FILE_BYTES = 1 << 20
_MOST_LOGIN_BYTES = 1024
# bcrypt takes 2**cost rounds: 4 s of a core at 16.
_HIGHEST_COST = 16

_BCRYPT = re.compile(rb"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_SHA256 = re.compile(rb"[0-9a-fA-F]{64}")
_KEY = secrets.token_bytes(32)
_DIGEST_CHARACTERS = 31  # of a bcrypt hash, behind its salt


class BadAuthFile(StartError):
    """The file cannot be used; str(error) names it and the reason, and never shows secrets of a line."""


class Login(NamedTuple):
    """The user and password of `Authorization: Basic`."""

    user: bytes
    password: bytes


@dataclass(frozen=True, slots=True)
class Credentials:
    """Users with the bcrypt hashes of their passwords, and names of tokens with their SHA-256 digests."""

    hashes: dict[bytes, bytes]
    tokens: dict[bytes, bytes]

    def token_name(self, token: bytes) -> bytes | None:
        """Return the name of a token; None if it is unknown. The time does not depend on the token."""
        digest = hashlib.sha256(token).digest()
        matches = [name for name, known in self.tokens.items() if hmac.compare_digest(known, digest)]
        return matches[0] if matches else None

    def hash_of(self, user: bytes) -> bytes:
        """Return the hash to check a password of this user against.

        For an unknown user, return a hash that no password has, with the cost of a known user; it is always the same
        for a name. So the time of a check does not show which users exist.
        """
        known = self.hashes.get(user)
        if known is not None:
            return known
        number = int.from_bytes(hashlib.blake2b(user, key=_KEY, digest_size=8).digest(), "big")
        model = list(self.hashes.values())[number % len(self.hashes)]
        return model[:-_DIGEST_CHARACTERS] + b"." * _DIGEST_CHARACTERS


# ---- the file


def read_credentials(path: str) -> Credentials:
    """Return the accounts of the file. Raises BadAuthFile."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a pipe could not be read again
                raise BadAuthFile(f"--http-auth-file {path}: not a file")
            text = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise BadAuthFile(f"--http-auth-file {path}: {error.strerror}") from error
    if len(text) > _MOST_FILE_BYTES:
        raise BadAuthFile(f"--http-auth-file {path}: more than {_MOST_FILE_BYTES} bytes")
    return parse_credentials(text, path)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe without a writer does not block."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def parse_credentials(text: bytes, path: str) -> Credentials:
    """Return the accounts in the text of a file. Raises BadAuthFile, also without any: it may be half written."""
    hashes: dict[bytes, bytes] = {}
    tokens: dict[bytes, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line and not line.startswith(b"#"):
            problem = _add_line(line, hashes, tokens)
            if problem:
                raise BadAuthFile(f"--http-auth-file {path}, line {number}: {problem}")
    if hashes and (missing := missing_package("bcrypt", "auth")):
        raise BadAuthFile(f"--http-auth-file {path} has passwords: {missing}")
    if not hashes and not tokens:
        raise BadAuthFile(f"--http-auth-file {path}: no user and no token in it")
    return Credentials(hashes, tokens)


def _add_line(line: bytes, hashes: dict[bytes, bytes], tokens: dict[bytes, bytes]) -> str | None:
    """Add an account of a line; return the problem of the line, or None."""
    name, colon, secret = line.partition(b":")
    if not colon or not name:
        return "expected user:hash or token:name:sha256"
    if name == b"token" and b":" in secret:
        name, _, digest = secret.partition(b":")
        if not name or _SHA256.fullmatch(digest) is None:
            return "expected token:name:sha256, the last in 64 hexadecimal digits"
        return _add(name, bytes.fromhex(digest.decode("ascii")), tokens)
    bcrypt = _BCRYPT.fullmatch(secret)
    if bcrypt is None:
        return "expected a hash by bcrypt ($2y$, $2b$ or $2a$), as htpasswd -B makes it"
    if not 4 <= int(bcrypt[1]) <= _HIGHEST_COST:
        return f"the cost of a hash must be between 4 and {_HIGHEST_COST}"
    return _add(name, secret, hashes)


def _add(name: bytes, secret: bytes, known: dict[bytes, bytes]) -> str | None:
    if name in known:
        return f"{name.decode('utf-8', 'backslashreplace')} appears twice"
    known[name] = secret
    return None


# ---- the request


def split_authorization(header: bytes) -> tuple[bytes, bytes]:
    """Return (scheme in lower case, the rest) of an Authorization header."""
    scheme, _, rest = header.partition(b" ")
    return scheme.lower(), rest.strip()


def parse_login(encoded: bytes) -> Login | None:
    """Return the login of `Authorization: Basic`, given without the scheme; None if it is malformed or too long."""
    if len(encoded) > _MOST_LOGIN_BYTES:
        return None
    try:
        user, colon, password = b64decode(encoded, validate=True).partition(b":")
    except binascii.Error:
        return None
    return Login(user, password) if colon else None
