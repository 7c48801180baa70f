"""Checks passwords and tokens of requests to admin paths against --http-auth-file."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_network
from typing import Any

import gevent
from gevent.lock import Semaphore
from gevent.threadpool import ThreadPool

from nsqd_py.net.http.answers import TOO_MANY_LOGINS, UNAUTHORIZED, Reply
from nsqd_py.net.http.credentials import BadAuthFile, Login, parse_login, read_credentials, split_authorization
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.private_files import stamp_of

REMEMBERED_S = 60.0
_MOST_REMEMBERED = 1024
# The least time between two looks at the file.
_LOOK_S = 1.0
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


class Guard:
    """The users and tokens of a file, which is read again when it changes.

    Tokens, and what was right for an address within REMEMBERED_S, are checked at once. Another password takes a thread
    0.1 s or more. The thread has a low priority and checks one password at a time, so that wrong passwords in any
    number delay no message. After wrong passwords or tokens, an address waits before its next one is checked.
    """

    def __init__(
        self, path: str, log: Log, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = gevent.sleep
    ) -> None:
        """Read the file. `clock` returns seconds, and `sleep` blocks a greenlet. Raises BadAuthFile."""
        self._path = path
        self._log = log
        self._clock = clock
        self._stamp = stamp_of(path)
        self._credentials = read_credentials(path)
        self._look_at_s = clock() + _LOOK_S
        # Digests of headers that were right, and when each must be checked again. The key is a secret of the process.
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        self._logins = Logins(clock, sleep)
        self._pool: Any = None

    def known(self, authorization: bytes, address: str) -> bool | None:
        """True if the header that `address` sent is right, False if it is wrong, None if only `check` can tell."""
        self._read_again_if_changed()
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
        """Return the name for the log of who sent a header that is right: `ann`, or `token:ci` for a token."""
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
        if self._pool is None:
            self._pool = ThreadPool(1)
        is_right: bool = self._pool.apply(_is_right, (login, credentials.hash_of(login.user)))
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
        return hashlib.blake2b(address.encode() + b"\0" + authorization, key=self._key, digest_size=32).digest()

    # ---- the file

    def _read_again_if_changed(self) -> None:
        """Read the file if it changed. If it cannot be used, log that once and keep the accounts."""
        now_s = self._clock()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_S
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
        return 0.0 if excess < 0 else min(LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** min(excess, 10))

    @contextmanager
    def turn(self, address: str) -> Iterator[None]:
        """Hold the turn, after the delay of this address. Raises TooManyLogins. Blocks this greenlet."""
        source = _source(address)
        if self._waiting[source] > MOST_WAITING_PER_ADDRESS or self._waiting.total() > MOST_WAITING:  # and one is checked
            raise TooManyLogins
        self._waiting[source] += 1
        try:
            if delay_s := self.delay_s(address):
                self._sleep(delay_s)
            with self._turn:
                yield
        finally:
            self._waiting[source] -= 1
            if not self._waiting[source]:
                del self._waiting[source]

    def _count(self, source: str) -> int:
        count, last_s = self._failed.get(source, (0, 0.0))
        return count if self._clock() < last_s + FORGOTTEN_S else 0


def _source(address: str) -> str:
    """Return an IPv4 address, or the network of 64 bits of an IPv6 address: one host may use all of it."""
    if ":" not in address:
        return address
    return str(ip_network(f"{address.partition('%')[0]}/64", strict=False))
