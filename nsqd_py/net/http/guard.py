"""The accounts that may use admin paths (--http-auth-file), and checks of the passwords and tokens of requests.

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
import sys
import threading
import time
from base64 import b64decode
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_network
from typing import Any, NamedTuple

import gevent
from gevent.lock import Semaphore
from gevent.threadpool import ThreadPool

from nsqd_py.errors import StartError, missing_package
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.failures import TOO_MANY_LOGINS, UNAUTHORIZED
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.private_files import read_regular, stamp_of

REMEMBERED_S = 60.0
_MOST_REMEMBERED = 1024
# The least time between two checks of the file.
_POLL_S = 1.0
_BCRYPT_BYTES = 72  # bcrypt ignores the rest of a password, as htpasswd does
# A tenth of the processor's time when all cores are busy. 19 would be a hundredth, and a login would take seconds.
_LOW_PRIORITY = 10

MOST_WAITING_PER_ADDRESS = 4
MOST_WAITING = 256

# Wrong passwords and tokens of an address that delay nothing; each further one doubles the delay of the next check.
FREE_FAILURES = 5
LONGEST_DELAY_S = 2.0
_FIRST_DELAY_S = 0.1
# The time without a wrong one after which they are forgotten.
FORGOTTEN_S = 60.0
MOST_FAILED_ADDRESSES = 4096
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
        text, _ = read_regular(path, _MOST_FILE_BYTES)
    except OSError as error:
        raise BadAuthFile(f"--http-auth-file {path}: {error.strerror}") from error
    return parse_credentials(text, path)


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


# ---- the guard


class Guard:
    """The users and tokens of a file, which is reread when it changes.

    Tokens, and what was right for an address within REMEMBERED_S, are checked at once. Another password takes a thread
    0.1 s or more. The thread has a low priority and checks one password at a time, so that wrong passwords in any
    number delay no message. After wrong passwords or tokens, an address waits before its next one is checked.
    """

    def __init__(
        self,
        path: str,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = gevent.sleep,
    ) -> None:
        """Read the file. `clock` returns seconds, and `sleep` blocks a greenlet. Raises BadAuthFile."""
        self._path = path
        self._log = log
        self._clock = clock
        self._stamp = stamp_of(path)
        self._credentials = read_credentials(path)
        self._poll_at_s = clock() + _POLL_S
        # Digests of headers that were right, and when each must be checked again. The key is a secret of the process.
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        self._logins = Logins(clock, sleep)

    def known(self, authorization: bytes, address: str) -> bool | None:
        """True if the header that `address` sent is right, False if it is wrong, None if only `check` knows."""
        self._reread_if_changed()
        scheme, rest = split_authorization(authorization)
        if scheme == b"basic":
            if not self._credentials.hashes or not parse_login(rest):
                return False
        elif scheme != b"bearer":
            return False
        if self._clock() < self._remembered.get(self._digest(authorization, address), 0.0):
            return True
        if scheme == b"basic" or self._logins.delay_s(address):
            return None
        return self._check_token(authorization, address)

    def check(self, authorization: bytes, address: str) -> Reply | None:
        """Return the refusal of a header that `address` sent; None if it is right. Blocks this greenlet."""
        try:
            with self._logins.turn(address):
                if split_authorization(authorization)[0] == b"bearer":
                    passes = self._check_token(authorization, address)
                else:
                    known = self.known(authorization, address)  # another request may have had the same header
                    passes = self._check_password(authorization, address) if known is None else known
        except TooManyLogins:
            return TOO_MANY_LOGINS
        return None if passes else UNAUTHORIZED

    def user_of(self, authorization: bytes) -> str:
        """Return the name for the log of who sent a header that is right: the user, or `token:NAME` for a token."""
        scheme, rest = split_authorization(authorization)
        if scheme == b"bearer":
            name = b"token:" + (self._credentials.token_name(rest) or b"")
        else:
            login = parse_login(rest)
            name = login.user if login else b""
        return name.decode("utf-8", "backslashreplace")

    def _check_token(self, authorization: bytes, address: str) -> bool:
        is_right = self._credentials.token_name(split_authorization(authorization)[1]) is not None
        self._note(authorization, address, is_right=is_right)
        return is_right

    def _check_password(self, authorization: bytes, address: str) -> bool:
        login = parse_login(split_authorization(authorization)[1])
        assert login is not None
        credentials = self._credentials
        is_right: bool = _thread().apply(_is_right, (login, credentials.hash_of(login.user)))
        if credentials is self._credentials or not is_right:
            self._note(authorization, address, is_right=is_right)
        return is_right

    # ---- what was right, and what was wrong

    def _note(self, authorization: bytes, address: str, *, is_right: bool) -> None:
        if not is_right:
            self._logins.note_failure(address)
            return
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[self._digest(authorization, address)] = self._clock() + REMEMBERED_S

    def _digest(self, authorization: bytes, address: str) -> bytes:
        """Return the key of a header of an address: guesses of another address must not find what it remembers."""
        return hashlib.blake2b(
            address.encode() + b"\0" + authorization, key=self._key, digest_size=32
        ).digest()

    # ---- the file

    def _reread_if_changed(self) -> None:
        """Read the file if it changed. If it cannot be used, log that once and keep the accounts."""
        now_s = self._clock()
        if now_s < self._poll_at_s:
            return
        self._poll_at_s = now_s + _POLL_S
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._credentials = read_credentials(self._path)
        except BadAuthFile as error:
            self._log.error("HTTP: %s; the previous accounts stay valid", error)
            return
        self._remembered.clear()
        self._log.info("HTTP: read --http-auth-file %s again", self._path)


def admin_guard(auth_file: str, log: Log) -> Guard | None:
    """Return the guard with the accounts of --http-auth-file; None if it is "". Raises BadAuthFile."""
    return Guard(auth_file, log) if auth_file else None


@cache
def _thread() -> Any:
    """Return the thread that checks the passwords of this process, in all its roles."""
    return ThreadPool(1)


def _is_right(login: Login, known_hash: bytes) -> bool:
    """True if the password is right. Call it in a thread; bcrypt releases the interpreter lock."""
    import bcrypt  # slow to import, and requests without a password do not need it

    if sys.platform == "linux":  # where each thread has a priority
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
    try:
        return bcrypt.checkpw(login.password[:_BCRYPT_BYTES], known_hash)
    except ValueError:  # bcrypt cannot hash this password
        return False


class TooManyLogins(Exception):
    """Too many logins wait for a check, of this address or of all."""


class Logins:
    """Lets one login at a time be checked, and delays those of addresses that sent wrong passwords or tokens.

    At most MOST_WAITING_PER_ADDRESS logins of an address wait, and MOST_WAITING of all. The event loop does not wait.
    """

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()  # count, and when the last one was
        self._waiting: Counter[str] = Counter()
        self._turn = Semaphore()

    def note_failure(self, address: str) -> None:
        """Count a wrong password or token. The addresses that failed longest ago are forgotten if there are many."""
        source = _source(address)
        self._failed[source] = (self._count(source) + 1, self._clock())
        self._failed.move_to_end(source)
        if len(self._failed) > MOST_FAILED_ADDRESSES:
            self._failed.popitem(last=False)

    def delay_s(self, address: str) -> float:
        """Return the time that the next check of this address has to wait."""
        excess = self._count(_source(address)) - FREE_FAILURES
        if excess < 0:
            return 0.0
        doubled_s: float = _FIRST_DELAY_S * 2 ** min(excess, 10)
        return min(LONGEST_DELAY_S, doubled_s)

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Hold the turn, after the delay of this address. Raises TooManyLogins. Blocks this greenlet."""
        source = _source(address)
        # And one is checked.
        if self._waiting[source] > MOST_WAITING_PER_ADDRESS or self._waiting.total() > MOST_WAITING:
            raise TooManyLogins
        self._waiting[source] += 1
        try:
            delay_s = self.delay_s(address)
            if delay_s:
                self._sleep(delay_s)
            with self._turn:
                yield
        finally:
            self._waiting[source] -= 1
            if not self._waiting[source]:
                del self._waiting[source]

    def _count(self, source: str) -> int:
        count, last_s = self._failed.get(source, (0, 0.0))
        if self._clock() < last_s + FORGOTTEN_S:
            return count
        return 0


def _source(address: str) -> str:
    """Return an IPv4 address, or the network of 64 bits of an IPv6 address: one host may use all of it."""
    if ":" not in address:
        return address
    return str(ip_network(f"{address.partition('%')[0]}/64", strict=False))
